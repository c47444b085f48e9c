import re
from html import unescape
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from planner.hardware.topology import Nic, Topology, parse_topology
from web.node_picture import draw_node
from web.node_text import CLASSES, describe, legend, title
from web.node_tree import Node, NodePart, NvlinkFabric, PcieGroup, node_tree

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
COMPLETE = tuple(
    file.stem
    for file in sorted(TOPOLOGIES.glob("*.txt"))
    if not parse_topology(file.read_text()).missing_pairs
)


Edges = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class Drawing(HTMLParser):
    """The elements of a drawing with their attributes, and the text in each kind of element."""

    def __init__(self, svg: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str, str]] = []
        self.boxes: list[tuple[str, Edges]] = []
        """Class and place in the whole drawing of each rectangle."""
        self._open: list[tuple[str, str]] = []
        self._origins = [(0.0, 0.0)]
        self.feed(svg)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        self._open.append((tag, attributes.get("class", "")))
        left, top = self._origins[-1]
        numbers = re.findall(r"-?[\d.]+", attributes.get("transform", ""))
        x, y = map(float, numbers or (attributes.get("x", 0), attributes.get("y", 0)))
        self._origins.append((left + x, top + y))
        if tag == "rect":
            width, height = float(attributes["width"]), float(attributes["height"])
            self.boxes.append(
                (self._open[-1][1], (left + x, top + y, left + x + width, top + y + height))
            )

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag
        self._origins.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((*self._open[-1], data))

    def said(self, css: str) -> list[str]:
        return [text for tag, found, text in self.texts if tag == "text" and found == css]

    def places(self, *css: str) -> list[Edges]:
        return [edges for found, edges in self.boxes if found.split()[0] in css]

    def all(self, tag: str, css: str) -> list[dict[str, str]]:
        return [found for name, found in self.elements if name == tag and found["class"] == css]


def read(name: str) -> Topology:
    return parse_topology((TOPOLOGIES / f"{name}.txt").read_text())


def node_of(topology: Topology, order: tuple[int, ...] | None = None) -> Node:
    return node_tree(topology, order or tuple(range(topology.num_gpus)))


def drawn(node: Node) -> Drawing:
    return Drawing(str(draw_node(node)))


def joined(num_gpus: int, links: int) -> dict[tuple[int, int], int]:
    return dict.fromkeys(combinations(range(num_gpus), 2), links)


def outline(part: NodePart) -> Any:
    """A tree as (class, parts), with islands as tuples of GPUs."""
    return (
        part.islands if isinstance(part, NvlinkFabric) else (part.word, *map(outline, part.parts))
    )


def cells_of(drawing: Drawing) -> list[str]:
    return drawing.said("gpu-name")


@pytest.mark.parametrize("name", COMPLETE)
def test_every_published_topology_shows_each_gpu_once(name: str) -> None:
    topology = read(name)
    drawing = drawn(node_of(topology))
    assert cells_of(drawing) == [f"GPU{gpu}" for gpu in node_of(topology).root.gpus]
    assert sorted(cells_of(drawing)) == sorted(f"GPU{g}" for g in range(topology.num_gpus))


def overlap(first: Edges, second: Edges) -> bool:
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )


@pytest.mark.parametrize("name", COMPLETE)
def test_nothing_overlaps_or_leaves_the_drawing(name: str) -> None:
    drawing = drawn(node_of(read(name)))
    _, root = drawing.elements[0]
    width, height = map(float, root["viewbox"].split()[2:])
    for left, top, right, bottom in drawing.places("gpu", "chip", "pill", "numa", "island"):
        assert left >= 0
        assert top >= 0
        assert right <= width + 0.5
        assert bottom <= height + 0.5
    solid = drawing.places("gpu", "chip", "pill")
    assert not any(overlap(*pair) for pair in combinations(solid, 2))
    assert not any(overlap(*pair) for pair in combinations(drawing.places("island"), 2))


@pytest.mark.parametrize("name", COMPLETE)
def test_a_telephone_shows_the_drawing_in_its_own_size(name: str) -> None:
    _, root = drawn(node_of(read(name))).elements[0]
    assert float(root["viewbox"].split()[2]) <= 320
    assert "height" not in root


def test_a_drawing_needs_no_style_attributes() -> None:
    drawing = drawn(node_of(read("dgx1-v100-cube-mesh")))
    assert drawing.elements[0][1]["role"] == "img"
    assert not any("style" in attributes for _, attributes in drawing.elements)


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("single-gpu", ((0,),)),
        ("dgxa100_40gb_12mlx5_tabs", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("dgx1-v100-cube-mesh", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("a100_pcie80_2bridged_pairs_2numa_tabs", ("SYS", ((0, 1),), ((2, 3),))),
        ("rtx5060ti_4gpu_phb_tabs", ("PHB", ((0,),), ((1,),), ((2,),), ((3,),))),
        (
            "rtxpro6000_8gpu_microchip_pxb_spaces",
            (
                "NODE",
                ("PXB", ("PIX", ((0,),), ((1,),)), ("PIX", ((2,),), ((3,),))),
                ("PXB", ("PIX", ((4,),), ((5,),)), ("PIX", ((6,),), ((7,),))),
            ),
        ),
        (
            "rtx4090_8gpu_2nic_gogpuallocator_tabs",
            (
                "SYS",
                ("SYS", ((0,),), ((1,),), ((2,),), ((3,),)),
                ("SYS", ((4,),), ((5,),), ((6,),), ((7,),)),
            ),
        ),
    ],
)
def test_parts_are_joined_from_near_to_far(name: str, tree: Any) -> None:
    assert outline(node_of(read(name)).root) == tree


def test_pairs_that_differ_are_all_named() -> None:
    pcie = {(0, 1): "PIX", (0, 2): "PHB", (1, 2): "SYS"}
    root = node_of(Topology(num_gpus=3, nvlink={}, pcie=pcie)).root
    assert outline(root) == ("PHB, SYS", ("PIX", ((0,),), ((1,),)), ((2,),))


def test_parts_whose_connection_is_unknown_are_joined_without_a_word() -> None:
    topology = Topology(num_gpus=2, nvlink={}, pcie={})
    assert outline(node_of(topology).root) == ("", ((0,),), ((1,),))
    assert drawn(node_of(topology)).said("pill pcie") == []


def test_a_switch_has_one_label_and_a_mesh_a_line_for_each_pair() -> None:
    switch = drawn(node_of(read("dgxa100_40gb_12mlx5_tabs")))
    assert switch.said("pill nvlink") == ["NV12 every pair"]
    assert switch.all("path", "nvlink") == []
    drawing = drawn(node_of(read("dgx1-v100-cube-mesh")))
    lines = drawing.all("path", "nvlink")
    assert len(lines) == 16
    assert {line["stroke-width"] for line in lines} == {"2", "3"}
    labels = drawing.said("line-label inside") + drawing.said("line-label between")
    assert sorted(labels) == ["NV1"] * 8 + ["NV2"] * 8
    assert drawing.said("pill pcie") == ["SYS"]
    assert len(drawing.all("rect", "island")) == 2


def test_a_pair_is_not_called_every_pair() -> None:
    drawing = drawn(node_of(read("a100_pcie80_2bridged_pairs_2numa_tabs")))
    assert drawing.said("pill nvlink") == ["NV12", "NV12"]
    assert drawing.said("numa") == ["NUMA 0", "NUMA 1"]


@pytest.mark.parametrize(("num_gpus", "rails"), [(4, 1), (8, 1), (16, 4)])
def test_rails_of_an_island_of_several_rows(num_gpus: int, rails: int) -> None:
    topology = Topology(num_gpus=num_gpus, nvlink=joined(num_gpus, 6), pcie={})
    drawing = drawn(node_of(topology))
    assert len(drawing.all("path", "rail nvlink")) == rails
    assert drawing.said("pill nvlink") == ["NV6 every pair"]


def test_ranks_are_named_where_they_differ_from_indices() -> None:
    topology = read("dgx1-v100-cube-mesh")
    order = (0, 3, 2, 1, 4, 7, 6, 5)
    drawing = drawn(node_of(topology, order))
    assert cells_of(drawing) == [f"GPU{gpu}" for gpu in order]
    assert drawing.said("role") == [f"rank {rank}" for rank in range(8)]
    drawing = drawn(node_of(topology))
    assert drawing.said("role") == []


def test_gpus_without_a_rank_come_last_and_say_so() -> None:
    node = node_of(Topology(num_gpus=4, nvlink=joined(4, 4), pcie={}), (2, 1))
    drawing = drawn(node)
    assert cells_of(drawing) == ["GPU2", "GPU1", "GPU0", "GPU3"]
    assert drawing.said("role") == ["rank 0", "rank 1", "unused", "unused"]
    assert len(drawing.all("rect", "gpu unused")) == 2
    assert ("unused", "GPU that this plan leaves free") in legend(node)


def test_adapters_are_beside_the_gpus_that_share_them() -> None:
    node = node_of(read("dgxa100_40gb_12mlx5_tabs"))
    drawing = drawn(node)
    assert sorted(drawing.said("chip")) == [f"mlx5_{n}" for n in (0, 1, 2, 3, 6, 7, 8, 9)]
    assert drawing.said("class") == ["PXB"] * 4
    assert "mlx5_0, mlx5_1: PXB to GPU0-1." in describe(node)


def test_an_adapter_of_all_gpus_is_shown_once() -> None:
    drawing = drawn(node_of(read("p40_8gpu_soc_paddle_tabs")))
    assert drawing.said("chip") == ["mlx5_0"]


def test_an_adapter_across_sockets_is_near_to_no_gpu() -> None:
    node = node_of(read("rtx4090_8gpu_2nic_gogpuallocator_tabs"))
    assert [near is not None for near in node.adapters] == [gpu == 6 for gpu in range(8)]
    drawing = drawn(node)
    assert drawing.said("chip") == ["NIC0", "NIC1"]


def test_many_adapters_become_a_range_and_long_names_are_cut() -> None:
    nics = tuple(Nic(name=f"adapter{n}", pcie={0: "PIX"}) for n in range(12))
    node = node_of(Topology(num_gpus=1, nvlink={}, pcie={}, nics=nics))
    drawing = drawn(node)
    assert drawing.said("chip") == ["adapte…"]
    titles = [text for tag, _, text in drawing.texts if tag == "title"]
    assert "adapter0 to adapter7 and 4 more" in titles


def test_names_are_escaped() -> None:
    markup = "\"><script>alert(1)</script>'"
    topology = Topology(
        num_gpus=1,
        nvlink={},
        pcie={},
        nics=(Nic(name=markup, pcie={0: "PIX"}),),
        gpu_names=(markup,),
    )
    svg = str(draw_node(node_of(topology)))
    assert "<script" not in svg
    assert unescape(svg).count(f"1 x {markup}") == 1


def test_a_frame_holds_a_group_that_needs_two_rows() -> None:
    near = {(a, b) for a, b in combinations(range(10), 2) if b < 5 or a >= 5}
    pcie = {pair: "PIX" if pair in near else "SYS" for pair in combinations(range(10), 2)}
    drawing = drawn(node_of(Topology(num_gpus=10, nvlink={}, pcie=pcie)))
    assert len(drawing.all("rect", "frame")) == 2


def test_a_part_too_wide_for_the_drawing_gets_a_row_of_its_own() -> None:
    numa = {gpu: gpu // 4 for gpu in range(8)}
    pcie = {(a, b): "PIX" if a // 4 == b // 4 else "SYS" for a, b in combinations(range(8), 2)}
    drawing = drawn(node_of(Topology(num_gpus=8, nvlink={}, pcie=pcie, numa=numa)))
    (_, upper_end, *_), (_, lower, *_) = drawing.places("numa")[1], drawing.places("numa")[0]
    assert upper_end != lower
    assert drawing.said("pill pcie") == ["SYS", "PIX", "PIX"]


def test_an_irregular_mesh_has_all_its_lines() -> None:
    ring = {(gpu, gpu + 1): 1 + gpu % 3 for gpu in range(11)} | {(0, 11): 2}
    pcie = {pair: "SYS" for pair in combinations(range(12), 2) if pair not in ring}
    node = node_of(Topology(num_gpus=12, nvlink=ring, pcie=pcie))
    drawing = drawn(node)
    titles = {text for tag, _, text in drawing.texts if tag == "title"}
    assert len(drawing.all("path", "nvlink")) == 12
    assert "GPU0 to GPU1: NV1" in titles
    assert ("island", "NVLink joins every pair in a box (NV1 to NV3)") in legend(node)


def test_a_mesh_of_very_many_lines_is_told_in_words() -> None:
    links = {pair: 1 + sum(pair) % 2 for pair in combinations(range(20), 2)}
    node = node_of(Topology(num_gpus=20, nvlink=links, pcie={}))
    drawing = drawn(node)
    assert drawing.all("path", "nvlink") == []
    assert len(drawing.all("rect", "island")) == 1
    facts = " ".join(describe(node))
    assert "GPU0-19: NVLink joins every pair." in facts
    assert re.search(r"NV1: GPU0-GPU2, .* and \d+ more\.", facts)


def test_two_gpus_alone_between_facing_rows_need_no_other_class() -> None:
    links = {(0, 1): 2, (1, 2): 1, (2, 3): 2, (3, 4): 1, (4, 5): 2}
    pcie = {pair: "SYS" for pair in combinations(range(6), 2) if pair not in links}
    drawing = drawn(node_of(Topology(num_gpus=6, nvlink=links, pcie=pcie)))
    assert len(drawing.all("path", "nvlink")) == 5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("single-gpu", "1 GPU"),
        ("rtx5060ti_4gpu_phb_tabs", "4 GPUs, no NVLink"),
        ("dgxa100_40gb_12mlx5_tabs", "8 GPUs, 1 NVLink island"),
        ("dgx1-v100-cube-mesh", "8 GPUs, 2 NVLink islands"),
    ],
)
def test_title(name: str, words: str) -> None:
    assert title(node_of(read(name))) == words


def test_title_and_facts_are_those_of_the_drawing() -> None:
    node = node_of(read("dgx1-v100-cube-mesh"), (0, 3, 2, 1, 4, 7, 6, 5))
    facts = " ".join(describe(node))
    assert "NV2: GPU0-GPU3, GPU0-GPU4, GPU1-GPU2" in facts
    assert "All other pairs of GPU0-7: SYS." in facts
    assert facts.endswith("Ranks from 0: GPU0, GPU3, GPU2, GPU1, GPU4, GPU7, GPU6, GPU5.")
    drawing = drawn(node)
    assert drawing.elements[0][1]["aria-labelledby"] == "node-title node-facts"
    assert ("desc", "", facts) in drawing.texts


def test_facts_name_what_lies_between_islands_and_the_nodes() -> None:
    facts = list(describe(node_of(read("a100_pcie80_2bridged_pairs_2numa_tabs"))))
    assert facts == [
        "GPU0-1: NV12.",
        "GPU2-3: NV12.",
        "Between GPU0-1 and GPU2-3: SYS.",
        "NUMA node 0: GPU0-1.",
        "NUMA node 1: GPU2-3.",
    ]


@pytest.mark.parametrize("name", COMPLETE)
def test_legend_explains_each_class_that_is_shown(name: str) -> None:
    node = node_of(read(name))
    drawing = drawn(node)
    shown = {
        c for text in drawing.said("class") + drawing.said("pill pcie") for c in text.split(", ")
    }
    explained = {text[:4].rstrip(": ") for mark, text in legend(node) if mark == "class"}
    assert shown <= explained <= set(CLASSES)


def test_groups_keep_the_order_of_ranks() -> None:
    root = node_of(read("a100_pcie80_2bridged_pairs_2numa_tabs"), (2, 3, 0, 1)).root
    assert isinstance(root, PcieGroup)
    assert root.gpus == (2, 3, 0, 1)
