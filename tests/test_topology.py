from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InvalidInputError
from planner.topology import LARGEST_TEXT, PCIE_CLASSES, Topology, parse_topology

PUBLISHED = Path(__file__).parent / "topologies"


def _published(name: str) -> Topology:
    return parse_topology((PUBLISHED / f"{name}.txt").read_text(encoding="utf-8"))


def _pairs(num_gpus: int) -> list[tuple[int, int]]:
    return list(combinations(range(num_gpus), 2))


def _read_or_refuse(text: str) -> Topology | None:
    try:
        return parse_topology(text)
    except InvalidInputError:
        return None


def _matrix(rows: list[list[str]]) -> str:
    header = "\t".join(f"GPU{index}" for index in range(len(rows)))
    lines = ["\t".join([f"GPU{index}", *row]) for index, row in enumerate(rows)]
    return "\n".join([f"\t{header}\tCPU Affinity", *lines])


def test_a_switch_links_every_pair_with_all_links() -> None:
    topology = _published("a100-nvswitch-8-gpus-8-nics")
    assert topology.num_gpus == 8
    assert topology.nvlink == dict.fromkeys(_pairs(8), 12)
    assert not topology.pcie


def test_bridges_link_pairs_and_leave_pcie_between_them() -> None:
    topology = _published("a30-two-bridged-pairs")
    assert topology.nvlink == {(0, 1): 4, (2, 3): 4}
    assert topology.pcie == dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], "SYS")


def test_a_cube_mesh_keeps_its_single_and_double_links() -> None:
    topology = _published("dgx1-v100-cube-mesh")
    double = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
    single = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
    assert topology.nvlink == dict.fromkeys(double, 2) | dict.fromkeys(single, 1)
    assert set(topology.pcie.values()) == {"SYS"}
    assert len(topology.pcie) == 28 - 16


def test_links_between_all_pairs_need_no_switch() -> None:
    assert _published("c4140-v100-all-pairs").nvlink == dict.fromkeys(_pairs(4), 2)


def test_pcie_alone_has_no_nvlink() -> None:
    topology = _published("rtx4090-8-gpus-pcie")
    assert (topology.num_gpus, dict(topology.nvlink)) == (8, {})
    assert topology.pcie == dict.fromkeys(_pairs(8), "SYS")


def test_escape_codes_of_a_terminal_are_not_read() -> None:
    text = (PUBLISHED / "rtx-pro-6000-escape-codes.txt").read_text(encoding="utf-8")
    assert "\x1b[4mGPU0" in text
    topology = parse_topology(text)
    near = [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [pair for pair in _pairs(8) if topology.pcie[pair] == "PIX"] == near
    assert topology.pcie[0, 2] == "NODE"
    assert parse_topology(text.replace("\n", "\x1b[K\r\n")) == topology


def test_one_gpu_has_no_pairs() -> None:
    topology = _published("single-gpu")
    assert (topology.num_gpus, dict(topology.nvlink), dict(topology.pcie)) == (1, {}, {})


def test_an_old_drivers_word_for_the_socket_is_understood() -> None:
    assert _published("p100-old-driver").pcie == {(0, 1): "SYS"}


def test_text_around_the_matrix_and_its_indentation_do_not_matter() -> None:
    matrix = _matrix([["X", "PHB"], ["PHB", "X"]])
    indented = "\n".join(f"    {line}" for line in matrix.splitlines())
    second = "        GPU0 GPU1\nGPU0 X OK\nGPU1 OK X"
    pasted = f"$ nvidia-smi topo -m\n\n{indented}\n\nLegend:\n  X = Self\n\n{second}\n"
    assert parse_topology(pasted) == parse_topology(matrix)


@settings(deadline=None)
@given(st.data())
def test_any_well_formed_matrix_is_read_as_it_is(data: st.DataObject) -> None:
    num_gpus = data.draw(st.integers(1, 12))
    words = st.sampled_from([*PCIE_CLASSES, "NV1", "NV6", "NV12", "NV18"])
    cells = {pair: data.draw(words) for pair in _pairs(num_gpus)}
    rows = [
        ["X" if a == b else cells[min(a, b), max(a, b)] for b in range(num_gpus)]
        for a in range(num_gpus)
    ]
    topology = parse_topology(_matrix(rows))
    read = {pair: f"NV{links}" for pair, links in topology.nvlink.items()} | dict(topology.pcie)
    assert (topology.num_gpus, read) == (num_gpus, cells)


MALFORMED = {
    "empty": ("", "no header"),
    "blank": (" \n\t\n", "no header"),
    "something else": ("hello\nworld", "no header"),
    "no header": ("GPU1 NV4 X", "no header"),
    "rows without their header": ("GPU0 X NV4\nGPU1 NV4 X", "expected GPU0"),
    "a missing row": ("GPU0 GPU1\nGPU0 X NV4", "1 rows for 2 GPUs"),
    "no rows": ("GPU0 GPU1 CPU Affinity", "0 rows for 2 GPUs"),
    "a missing first row": ("GPU0 GPU1\nGPU1 NV4 X", "line 2: expected GPU0"),
    "a short row": ("GPU0 GPU1\nGPU0 X\nGPU1 NV4 X", "line 2: expected GPU0 with 2 cells"),
    "a repeated row": ("GPU0 GPU1\nGPU0 X NV4\nGPU0 X NV4", "line 3: expected GPU1"),
    "links that disagree": ("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X", "'NV4' and 'NV2'"),
    "classes that disagree": ("GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X", "'PIX' and 'SYS'"),
    "X off the diagonal": ("GPU0 GPU1\nGPU0 X X\nGPU1 X X", "'X' and 'X'"),
    "no X on the diagonal": ("GPU0 GPU1\nGPU0 NV4 NV4\nGPU1 NV4 X", "to itself"),
    "an unknown cell": ("GPU0 GPU1\nGPU0 X ABC\nGPU1 ABC X", "line 2: cannot read 'ABC'"),
    "no links at all": ("GPU0 GPU1\nGPU0 X NV0\nGPU1 NV0 X", "cannot read 'NV0'"),
    "too many links": ("GPU0 GPU1\nGPU0 X NV999\nGPU1 NV999 X", "cannot read 'NV999'"),
    "an affinity for a cell": ("GPU0 GPU1\nGPU0 X 0-31\nGPU1 0-31 X", "cannot read '0-31'"),
    "a gap in the numbers": ("GPU0 GPU2\nGPU0 X NV4\nGPU2 NV4 X", "not numbered"),
    "numbers out of order": ("GPU0 GPU2 GPU1\n", "not numbered"),
    "too long": ("GPU0\nGPU0 X\n" + " " * LARGEST_TEXT, "more than 65,536 characters"),
}


@pytest.mark.parametrize(("text", "says"), MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_matrix_says_what_is_wrong_with_it(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        parse_topology(text)
    assert caught.value.field == "cluster.topology"
    assert "nvidia-smi topo -m" in caught.value.hint


@pytest.mark.parametrize("name", sorted(path.stem for path in PUBLISHED.glob("*.txt")))
@settings(deadline=None)
@given(data=st.data())
def test_a_damaged_paste_is_read_or_refused_but_never_breaks(
    name: str, data: st.DataObject
) -> None:
    text = (PUBLISHED / f"{name}.txt").read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    damage = data.draw(st.text(alphabet="GPUNVX SYS0123456789\n\t\x1b[m", max_size=20))
    topology = _read_or_refuse(text[:start] + damage + text[end:])
    if topology:
        assert {*topology.nvlink, *topology.pcie} == set(_pairs(topology.num_gpus))


@settings(deadline=None)
@given(st.text(max_size=500))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert _read_or_refuse(text) is None or "GPU0" in text


def test_every_published_matrix_has_a_source() -> None:
    sources = (PUBLISHED / "SOURCES.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in sources for path in PUBLISHED.glob("*.txt"))
