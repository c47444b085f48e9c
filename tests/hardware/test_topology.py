from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.findings import findings
from planner.core.errors import InvalidInputError
from planner.hardware.topology import (
    LARGEST_TEXT,
    PCIE_CLASSES,
    Nic,
    Topology,
    parse_topology,
)

PUBLISHED = Path(__file__).parents[1] / "topologies"


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
    pasted = f"$ nvidia-smi topo -m\n\n{indented}\n\nLegend:\n  X = Self\n\nThat is all.\n"
    assert parse_topology(pasted) == parse_topology(matrix)


@settings(deadline=None)
@given(st.data())
def test_any_well_formed_matrix_is_read_as_it_is(data: st.DataObject) -> None:
    num_gpus = data.draw(st.integers(1, 16))
    words = st.sampled_from([*PCIE_CLASSES, "NV1", "NV6", "NV12", "NV18", "NV36"])
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
    "rows without their header": ("GPU0 X NV4\nGPU1 NV4 X", "no header"),
    "no rows": ("GPU0 GPU1 CPU Affinity", "0 rows for 2 GPUs"),
    "nothing between GPUs": ("GPU0 GPU1\nGPU0 X", "1 rows for 2 GPUs"),
    "a row too many": (
        "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\nGPU2 NV4 NV4",
        "line 4: a row of GPU2, but the header ends at GPU1",
    ),
    "a row twice": ("GPU0 GPU1\nGPU0 X NV4\nGPU0 X NV2", "line 3: another row of GPU0"),
    "a column twice": ("GPU0 NIC0 NIC0\nGPU0 X PIX PIX", "line 1: the header names a column"),
    "links that disagree": ("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X", "'NV4' and 'NV2'"),
    "classes that disagree": ("GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X", "lines 2 and 3: .* 'PIX' and"),
    "X off the diagonal": ("GPU0 GPU1\nGPU0 X X\nGPU1 X X", "line 2: cannot read 'X' between"),
    "no X on the diagonal": ("GPU0 GPU1\nGPU0 NV4 NV4\nGPU1 NV4 X", "line 2: .* to itself"),
    "an unknown cell": ("GPU0 GPU1\nGPU0 X ABC\nGPU1 ABC X", "line 2: cannot read 'ABC'"),
    "no links at all": ("GPU0 GPU1\nGPU0 X NV0\nGPU1 NV0 X", "cannot read 'NV0'"),
    "too many links": ("GPU0 GPU1\nGPU0 X NV37\nGPU1 NV37 X", "cannot read 'NV37'"),
    "an affinity for a cell": ("GPU0 GPU1\nGPU0 X 0-31\nGPU1 0-31 X", "cannot read '0-31'"),
    "a word among adapters": (
        "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tPIX\nGPU1\tNV4\tX\twhat",
        "line 3: cannot read 'what' under NIC0",
    ),
    "a lost cell": (
        "GPU0 GPU1 GPU2 CPU Affinity\nGPU0 X NV4 0-3\nGPU1 NV4 X NV4 0-3",
        "line 2: cannot read '0-3' between GPU0 and GPU2",
    ),
    "two lost cells": (
        "GPU0 GPU1 GPU2 CPU Affinity\nGPU0 X 0-3\nGPU1 NV4 X NV4 0-3",
        "line 2: 1 cells for 3 GPUs, then '0-3'",
    ),
    "a gap in the numbers": ("GPU0 GPU2\nGPU0 X NV4\nGPU2 NV4 X", "not numbered"),
    "a number that no GPU has": ("GPU0 GPU9999999999\nGPU0 X PHB\n", "not numbered"),
    "a GPU after an adapter": ("GPU0 mlx5_0 GPU1\nGPU0 X SYS NV4\n", "not numbered"),
    "a column twice in another order": ("GPU1 GPU0 GPU1\nGPU0 X X X\n", "not numbered"),
    "more GPUs than a node has": (" ".join(f"GPU{i}" for i in range(73)), "73 GPUs; a node has"),
    "too long": ("GPU0\nGPU0 X\n" + " " * LARGEST_TEXT, "more than 65,536 characters"),
}


@pytest.mark.parametrize(("text", "says"), MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_matrix_says_what_is_wrong_with_it(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        parse_topology(text)
    assert caught.value.field == "cluster.topology"
    assert "nvidia-smi topo -m" in caught.value.hint


@settings(deadline=None)
@given(st.text(max_size=500))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert _read_or_refuse(text) is None or any(word in text for word in ("GPU", "{", "index"))


PAIR = Topology(num_gpus=2, nvlink={(0, 1): 4}, pcie={})
LAYOUTS = {
    "tabs": "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n",
    "doubled tabs": "\t\tGPU0\t\tGPU1\nGPU0\t\t X \t\tNV4\nGPU1\t\tNV4\t\t X ",
    "a tab before the label": "\t\tGPU0\tGPU1\n\tGPU0\tX\tNV4\n\tGPU1\tNV4\tX",
    "some tabs": "\tGPU0 GPU1\nGPU0 \tX NV4\nGPU1\tNV4 X",
    "single spaces": "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X",
    "the first tab lost": "\tGPU0\tGPU1\nGPU0 X\tNV4\nGPU1 NV4\tX",
    "a quote": "> \tGPU0\tGPU1\n> GPU0\tX\tNV4\n> GPU1\tNV4\tX",
    "a comment": "#     GPU0 GPU1\n# GPU0 X  NV4\n# GPU1 NV4 X",
    "a code comment": " //   GPU0 GPU1\n // GPU0 X  NV4\n // GPU1 NV4 X",
    "srun --label": "0:       GPU0 GPU1\n0: GPU0   X   NV4\n0: GPU1  NV4   X",
    "a table of Markdown": "| | GPU0 | GPU1 |\n|---|---|---|\n| GPU0 | X | NV4 |\n| GPU1 | NV4 | X |",
    "no-break spaces": "\u00a0GPU0\u00a0GPU1\nGPU0\u00a0X\u00a0NV4\nGPU1\u00a0NV4\u00a0X",
    "a byte order mark": "\ufeffGPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X",
    "escape codes": "\x1b[4mGPU0 GPU1\x1b[0m\nGPU0 \x1b[1;32mX\x1b[m NV4\nGPU1 NV4 X\x1b[K",
    "codes without ESC": "\t[4mGPU0\tGPU1[0m\nGPU0\tX\tNV4\nGPU1\tNV4\tX[K",
    "codes with a caret": "^[[4mGPU0 GPU1^[[0m\nGPU0 X NV4\nGPU1 NV4 X",
    "codes spelled out": "\\033[4mGPU0 GPU1\\x1b[0m\nGPU0 X NV4\nGPU1 NV4 X",
    "old line ends": "GPU0 GPU1\r\nGPU0 X NV4\r\nGPU1 NV4 X\r\n",
    "rows out of order": "GPU0 GPU1\nGPU1 NV4 X\nGPU0 X NV4",
    "a row twice, alike": "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\nGPU1 NV4 X",
    "remarks about GPUs": "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\nGPU0 and GPU7 are a pair\nGPU1: fine",
    "a prompt": "me@node:~$ nvidia-smi topo -m\n GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\nme@node:~$ ",
    "an extra column": "  GPU0 GPU1 Slot CPU Affinity\nGPU0 X NV4 7 0-3\nGPU1 NV4 X 8 0-3",
    "a header of its own": "GPU0 is old\nGPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=list(LAYOUTS))
def test_how_a_matrix_was_pasted_does_not_matter(text: str) -> None:
    assert parse_topology(text) == PAIR


def _numa(lines: list[str]) -> dict[int, int]:
    return dict(parse_topology("\n".join(lines)).numa)


def test_the_numa_column_is_found_where_cells_are_blank() -> None:
    head = "        GPU0    CPU Affinity    NUMA Affinity   GPU NUMA ID"
    assert _numa([head, "GPU0     X      0-31    2               N/A"]) == {0: 2}
    assert _numa([head, "GPU0     X              2               N/A"]) == {0: 2}
    assert _numa([head, "GPU0     X      0-31    N/A             N/A"]) == {}
    assert _numa([head, "GPU0     X      0-31"]) == {}
    assert _numa([head, "GPU0     X"]) == {}
    tabs = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    assert _numa([tabs, "GPU0\t X \t0-31\t2\t\tN/A"]) == {0: 2}
    assert _numa([tabs, "GPU0\t X \t\t2\t\tN/A"]) == {0: 2}
    assert _numa([tabs, "GPU0\t X \t0-31\t\t\t3"]) == {}
    assert _numa([tabs, "GPU0\t X \t0-31\t4,6-8\t\t3"]) == {0: 4}
    assert _numa(["\tGPU0\tNUMA Affinity", "GPU0\tX\t5"]) == {0: 5}


def test_a_blank_cell_is_filled_by_symmetry() -> None:
    spaces = [
        "        GPU0    GPU1    GPU2    NUMA Affinity",
        "GPU0     X              SYS     0",
        "GPU1    NV4      X      SYS     0",
        "GPU2    SYS              X      1",
    ]
    expected = ({(0, 1): 4}, {(0, 2): "SYS", (1, 2): "SYS"}, {0: 0, 1: 0, 2: 1})
    for text in ("\n".join(spaces), "\tGPU0\tGPU1\nGPU0\tX\t\nGPU1\tNV4\tX"):
        topology = parse_topology(text)
        assert topology.nvlink == expected[0]
    topology = parse_topology("\n".join(spaces))
    assert (topology.nvlink, topology.pcie, topology.numa) == expected


def test_adapters_take_their_names_from_the_legend_and_classes_from_either_side() -> None:
    text = (
        "\tGPU0\tGPU1\tNIC0\tNIC1\n"
        "GPU0\t X \tNV4\tPIX\tSYS\n"
        "NIC0\tPIX\tNODE\t X \tSYS\n"
        "NIC1\tSYS\tPXB\tSYS\t X \n"
        "NIC Legend:\n"
        "  NIC0: mlx5_7\n"
    )
    topology = parse_topology(text)
    first = Nic(name="mlx5_7", pcie={0: "PIX", 1: "NODE"})
    second = Nic(name="NIC1", pcie={0: "SYS", 1: "PXB"})
    assert topology.nics == (first, second)
    assert (topology.nics_near(0), topology.nics_near(1)) == ((first,), (second,))
    assert parse_topology("GPU0 NIC0\nGPU0 X").nics_near(0) == ()


def test_islands_are_groups_in_which_every_pair_has_nvlink() -> None:
    assert _published("dgx1-v100-cube-mesh").islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert _published("a30-two-bridged-pairs").islands == ((0, 1), (2, 3))
    assert _published("a100-nvswitch-8-gpus-8-nics").islands == (tuple(range(8)),)
    assert _published("rtx4090-8-gpus-pcie").islands == tuple((gpu,) for gpu in range(8))
    chain = Topology(num_gpus=4, nvlink={(0, 1): 1, (1, 2): 2, (2, 3): 1}, pcie={})
    assert chain.islands == ((0,), (1, 2), (3,))
    tail = Topology(num_gpus=4, nvlink={(0, 1): 1, (1, 2): 1, (1, 3): 1, (2, 3): 1}, pcie={})
    assert tail.islands == ((0,), (1, 2, 3))


def test_numa_nodes_and_missing_pairs_follow_from_what_was_read() -> None:
    topology = Topology(num_gpus=3, nvlink={(0, 1): 1}, pcie={}, numa={2: 8, 0: 0, 1: 8})
    assert topology.numa_nodes == {0: (0,), 8: (1, 2)}
    assert topology.missing_pairs == ((0, 2), (1, 2))


def test_the_wire_object_has_the_contracts_names() -> None:
    text = "GPU0 GPU1 NIC0 NUMA Affinity\nGPU0 X NV12 SYS 0\nGPU1 NV12 X SYS 1\nNIC0 SYS SYS X"
    assert parse_topology(text).to_wire() == {
        "gpus": 2,
        "nics": ["NIC0"],
        "nvlink": {"0-1": 12},
        "pcie": {},
        "islands": [[0, 1]],
        "numa": {"0": 0, "1": 1},
        "findings": [
            {"code": "TOP012", "message": "SYS to every GPU is what the network adapter reads"}
        ],
    }


@pytest.mark.parametrize("code", sorted(findings("topology")))
def test_every_finding_is_explained(code: str) -> None:
    statement, *paragraphs = findings("topology")[code].split("\n\n")
    assert statement.endswith(".")
    assert [text.split(":")[0] for text in paragraphs] == ["Why", "Instead", "Source"]
    assert max(len(line) for line in findings("topology")[code].splitlines()) <= 100


def test_every_published_output_has_a_source() -> None:
    sources = (PUBLISHED / "SOURCES.md").read_text(encoding="utf-8")
    names = [path.name for path in PUBLISHED.rglob("*") if path.suffix in {".txt", ".csv"}]
    assert len(names) > 80
    assert all(f"`{name}`" in sources for name in names)
