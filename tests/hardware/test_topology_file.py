import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.findings import findings
from planner.core.errors import InvalidInputError
from planner.hardware.topology import (
    PCIE_CLASSES,
    Nic,
    Topology,
    TopologyFinding,
    dump,
    parse_topology,
)

NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)


@st.composite
def _topologies(draw: st.DrawFn) -> Topology:
    num_gpus = draw(st.integers(1, 9))
    gpus = st.integers(0, num_gpus - 1)
    pairs = list(combinations(range(num_gpus), 2))
    some_pairs = st.sets(st.sampled_from(pairs)) if pairs else st.just(set())
    with_links = draw(some_pairs)
    nic = st.builds(Nic, name=NAMES, pcie=st.dictionaries(gpus, st.sampled_from(PCIE_CLASSES)))
    finding = st.builds(
        TopologyFinding, code=st.sampled_from(sorted(findings("topology"))), message=NAMES
    )
    count = st.integers(0, 8)
    return Topology(
        num_gpus=num_gpus,
        nvlink={pair: draw(st.integers(1, 36)) for pair in with_links},
        pcie={pair: draw(st.sampled_from(PCIE_CLASSES)) for pair in draw(some_pairs) - with_links},
        nics=tuple(draw(st.lists(nic, max_size=4))),
        numa=draw(st.dictionaries(gpus, st.integers(0, 9999))),
        peer_to_peer={pair: draw(st.booleans()) for pair in draw(some_pairs)},
        gpu_names=tuple(draw(st.sampled_from([[], draw(_lists_of(NAMES, num_gpus))]))),
        active_nvlinks=draw(st.dictionaries(gpus, count)),
        nvlink_bytes_per_second=draw(st.dictionaries(gpus, st.floats(1e-300, 1e12))),
        memory_bytes=draw(st.dictionaries(gpus, st.integers(0, 10**15))),
        pcie_generation=draw(st.dictionaries(gpus, count)),
        pcie_lanes=draw(st.dictionaries(gpus, count)),
        mig_instances=draw(st.dictionaries(gpus, count)),
        findings=tuple(draw(st.lists(finding, max_size=3))),
    )


def _lists_of(names: st.SearchStrategy[str], size: int) -> st.SearchStrategy[list[str]]:
    return st.lists(names, min_size=size, max_size=size)


@settings(deadline=None)
@given(_topologies())
def test_a_file_gives_back_what_was_written(topology: Topology) -> None:
    assert parse_topology(dump(topology)) == topology


def test_all_but_the_number_of_gpus_may_be_left_out() -> None:
    bare = parse_topology('\ufeff {"gpus": 2}')
    assert bare.missing_pairs == ((0, 1),)
    assert [finding.code for finding in bare.findings] == ["TOP002"]
    alone = parse_topology('{"gpus": 1, "nics": ["mlx5_0"]}')
    assert alone == Topology(num_gpus=1, nvlink={}, pcie={}, nics=(Nic(name="mlx5_0", pcie={}),))


def test_the_file_is_the_wire_object_and_more() -> None:
    topology = Topology(num_gpus=2, nvlink={(0, 1): 4}, pcie={}, numa={0: 0}, gpu_names=("A", "B"))
    content = json.loads(dump(topology))
    assert {name: content[name] for name in topology.to_wire()} == topology.to_wire()
    assert content["gpu_names"] == ["A", "B"]
    assert parse_topology(json.dumps(topology.to_wire())).nvlink == topology.nvlink


REFUSED: dict[str, tuple[Any, str]] = {
    "no number of GPUs": ({}, "gpus of the topology file: expected a whole number from 1 to 72"),
    "no GPU": ({"gpus": 0}, "not 0"),
    "too many GPUs": ({"gpus": 73}, "not 73"),
    "half a GPU": ({"gpus": 1.5}, "not 1.5"),
    "a truth for a number": ({"gpus": True}, "not True"),
    "a text for a number": ({"gpus": "8" * 99}, "not '8888"),
    "a list for a number": ({"gpus": [8]}, "not list"),
    "pairs in a list": ({"gpus": 2, "nvlink": []}, "nvlink .* expected an object, not list"),
    "a pair the wrong way": ({"gpus": 2, "nvlink": {"1-0": 1}}, "'1-0' is no pair"),
    "a pair beyond": ({"gpus": 2, "nvlink": {"0-2": 1}}, "'0-2' is no pair low-high of 2"),
    "a pair of one": ({"gpus": 2, "nvlink": {"1-1": 1}}, "no pair"),
    "a padded pair": ({"gpus": 2, "nvlink": {"0-01": 1}}, "no pair"),
    "a foreign digit": ({"gpus": 4, "nvlink": {"0-\u0663": 1}}, "no pair"),
    "no links": ({"gpus": 2, "nvlink": {"0-1": 0}}, "from 1 to 36, not 0"),
    "an unknown class": ({"gpus": 2, "pcie": {"0-1": "SOC"}}, "one of PIX, .*, not 'SOC'"),
    "no class": ({"gpus": 2, "pcie": {"0-1": None}}, "not None"),
    "a pair twice": (
        {"gpus": 2, "nvlink": {"0-1": 1}, "pcie": {"0-1": "SYS"}},
        "0-1 is in nvlink too",
    ),
    "maybe": ({"gpus": 2, "peer_to_peer": {"0-1": 1}}, "expected true or false, not 1"),
    "one name for two": ({"gpus": 2, "gpu_names": ["A"]}, "1 names for 2 GPUs"),
    "three names for two": ({"gpus": 2, "gpu_names": ["A", "B", "C"]}, "a list of at most 2"),
    "an empty name": ({"gpus": 1, "gpu_names": [""]}, "1 to 80 printable characters"),
    "an escape in a name": ({"gpus": 1, "gpu_names": ["\x1b[2J"]}, "printable"),
    "a long name": ({"gpus": 1, "gpu_names": ["A" * 81]}, "printable"),
    "a GPU beyond": ({"gpus": 2, "numa": {"2": 0}}, "'2' is none of 2 GPUs"),
    "a negative node": ({"gpus": 2, "numa": {"0": -1}}, "from 0 to 9,999, not -1"),
    "a rate of nothing": ({"gpus": 1, "nvlink_bytes_per_second": {"0": 0}}, "bytes per second"),
    "a rate in words": ({"gpus": 1, "nvlink_bytes_per_second": {"0": "fast"}}, "not 'fast'"),
    "an adapter of numbers": ({"gpus": 1, "nics": [1]}, 'names or objects of "name"'),
    "an adapter with more": ({"gpus": 1, "nics": [{"name": "a", "speed": 1}]}, "names or objects"),
    "an adapter without a name": ({"gpus": 1, "nics": [{}]}, "printable characters, not None"),
    "adapters without end": ({"gpus": 1, "nics": ["n"] * 257}, "a list of at most 256"),
    "other islands": ({"gpus": 2, "islands": [[0, 1]]}, "not the ones that nvlink makes"),
    "a finding of words": ({"gpus": 1, "findings": ["bad"]}, 'objects of "code" and "message"'),
    "an unknown code": (
        {"gpus": 1, "findings": [{"code": "TOP999", "message": "x"}]},
        "there is no 'TOP999'",
    ),
}


def _refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        parse_topology(text)
    assert caught.value.field == "cluster.topology"
    assert "planner probe" in caught.value.hint
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(("content", "says"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_a_topology_is_refused(content: Any, says: str) -> None:
    _refused(json.dumps(content), says)


def test_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match="unknown field 'cpus'") as caught:
        parse_topology('{"gpus": 2, "cpus": 1}')
    assert caught.value.hint.startswith("did you mean gpus")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ('{"gpus": 2} and more', "is not JSON"),
        ('{"gpus": NaN}', "NaN is not a JSON number"),
        ('{"gpus": 2, "gpus": 3}', "twice in one object"),
        ('{"a":' * 10_000, "nested too deep"),
        ('{"gpus": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_what_is_not_sound_json_is_refused(text: str, says: str) -> None:
    _refused(text, says)
