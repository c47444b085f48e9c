"""Orders found on published topologies, and ranks worked by hand."""

from itertools import combinations
from pathlib import Path

import pytest

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.units import GIGA
from planner.hardware.group_links import group_links, groups
from planner.hardware.nvlink_rings import ring_links
from planner.hardware.placement import Coordinates, cuda_visible_devices, order, rank_grid
from planner.hardware.topology import Topology, parse_topology

PUBLISHED = Path(__file__).parents[1] / "topologies"


def _published(name: str) -> Topology:
    return parse_topology((PUBLISHED / f"{name}.txt").read_text(encoding="utf-8"))


def test_a_cube_mesh_pairs_double_links_and_keeps_cliques_together() -> None:
    topology, gpu = _published("dgx1-v100-cube-mesh"), records.gpu("v100-sxm2-32gb")
    found = order(topology, 8, gpu)
    assert found == (0, 3, 2, 1, 4, 7, 6, 5)
    assert all(topology.nvlink[low, high] == 2 for low, high in map(sorted, groups(found, 2, 1)))
    assert {frozenset(quad) for quad in groups(found, 4, 1)} == {
        frozenset({0, 1, 2, 3}),
        frozenset({4, 5, 6, 7}),
    }
    links = group_links(gpu, 8, topology, found)
    gb_per_s = {n: links[n, 1].bytes_per_second / GIGA for n in (2, 4, 8)}
    assert gb_per_s == pytest.approx({2: 40, 4: 80, 8: 120})
    # Data parallelism around tensor parallelism stays on NVLink as well.
    assert all(links[shape].is_fast for shape in ((2, 2), (2, 4), (4, 2)))


def test_the_ring_over_double_links_alone_would_cost_the_groups_across_it() -> None:
    topology, gpu = _published("dgx1-v100-cube-mesh"), records.gpu("v100-sxm2-32gb")
    ring = (0, 3, 2, 1, 5, 6, 7, 4)
    hops = zip(ring, (*ring[1:], ring[0]), strict=True)
    assert {topology.nvlink[min(hop), max(hop)] for hop in hops} == {2}
    links = group_links(gpu, 8, topology, ring)
    assert not links[4, 2].is_fast
    # NCCL finds that ring whatever the order of the ranks.
    double = [n if n == 2 else 0 for n in _capacities(topology)]
    assert ring_links(8, tuple(double)) == pytest.approx(4)


def _capacities(topology: Topology) -> list[int]:
    return [topology.nvlink.get(pair, 0) for pair in combinations(range(8), 2)]


def test_another_mesh_of_eight_gets_an_order_of_its_own() -> None:
    topology, gpu = _published("v100_8gpu_node_not_sys_tabs"), records.gpu("v100-sxm2-32gb")
    links = group_links(gpu, 8, topology, order(topology, 8, gpu))
    gb_per_s = {n: links[n, 1].bytes_per_second / GIGA for n in (2, 4, 8)}
    assert gb_per_s == pytest.approx({2: 40, 4: 80, 8: 120})
    assert all(links[shape].is_fast for shape in ((2, 2), (2, 4), (4, 2)))


def test_bridged_pairs_stay_together_however_they_are_numbered() -> None:
    gpu = records.gpu("a100-pcie-80gb")
    assert order(_published("a100_pcie80_2bridged_pairs_2numa_tabs"), 4, gpu) == (0, 1, 2, 3)
    apart = dict.fromkeys([(0, 1), (0, 3), (1, 2), (2, 3)], "SYS")
    shuffled = Topology(num_gpus=4, nvlink={(0, 2): 12, (1, 3): 12}, pcie=apart)
    found = order(shuffled, 4, gpu)
    assert found == (0, 2, 1, 3)
    links = group_links(gpu, 4, shuffled, found)
    assert 208 <= links[2, 1].bytes_per_second / GIGA <= 240
    assert links[4, 1].bytes_per_second / GIGA == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize(
    ("name", "gpu", "num_used", "expected"),
    [
        ("v100_4gpu_p3_8xlarge_tabs", "v100-sxm2-16gb", 4, (0, 3, 2, 1)),
        ("v100_4gpu_p3_8xlarge_tabs", "v100-sxm2-16gb", 2, (0, 3)),
        ("power9_ac922_4gpu_nv3_6nic_tabs", "v100-sxm2-16gb", 4, (0, 1, 2, 3)),
        ("rtxa6000_3gpu_2bridged_1alone_tabs", "a6000", 3, (0, 1, 2)),
        ("p2p_mixed_pxb_pix_sys_nccl667_tabs", "a10", 2, (2, 3)),
        ("dgx1-v100-cube-mesh", "v100-sxm2-32gb", 4, (0, 3, 2, 1)),
        ("dgx1-v100-cube-mesh", "v100-sxm2-32gb", 5, (0, 4, 5, 1, 2)),
        ("rtxpro6000_8gpu_2switch_spaces", "rtx-pro-6000", 8, tuple(range(8))),
        ("a100-nvswitch-8-gpus-8-nics", "a100-sxm-80gb", 4, (0, 1, 2, 3)),
    ],
)
def test_published_nodes_get_their_best_gpus_in_their_best_order(
    name: str, gpu: str, num_used: int, expected: tuple[int, ...]
) -> None:
    assert order(_published(name), num_used, records.gpu(gpu)) == expected


def test_a_node_nothing_was_read_of_stays_in_index_order() -> None:
    gpu = records.gpu("v100-sxm2-32gb")
    assert order(None, 8, gpu) == tuple(range(8))
    assert order(_published("dgx1-v100-cube-mesh"), 1, gpu) == (0,)


def test_without_peer_to_peer_nvlink_decides_nothing() -> None:
    topology, gpu = _published("v100_4gpu_p3_8xlarge_tabs"), records.gpu("v100-sxm2-16gb")
    assert order(topology, 4, gpu, peer_to_peer=False) == (0, 1, 2, 3)


def test_more_gpus_than_the_topology_has_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="shows 4 GPUs") as caught:
        order(_published("v100_4gpu_p3_8xlarge_tabs"), 8, records.gpu("v100-sxm2-16gb"))
    assert caught.value.field == "cluster.topology"


def test_devices_are_named_only_out_of_order() -> None:
    assert cuda_visible_devices((0, 3, 2, 1)) == "0,3,2,1"
    assert cuda_visible_devices((2, 3)) == "2,3"
    assert cuda_visible_devices((0, 1, 2)) == ""
    assert cuda_visible_devices(()) == ""


def test_ranks_run_through_tensor_then_context_then_data_then_pipeline() -> None:
    sizes = {"tensor": 2, "context": 2, "expert": 4, "data": 2, "pipeline": 2}
    grid = rank_grid(sizes, gpus_per_node=8, nodes=2)
    assert grid.groups("tensor")[:2] == ((0, 1), (2, 3))
    assert grid.groups("context")[:3] == ((0, 2), (1, 3), (4, 6))
    assert grid.groups("data")[:2] == ((0, 4), (1, 5))
    assert grid.groups("pipeline")[:2] == ((0, 8), (1, 9))
    assert grid.groups("expert") == ((0, 2, 4, 6), (1, 3, 5, 7), (8, 10, 12, 14), (9, 11, 13, 15))
    assert grid.coordinates(13) == Coordinates(tensor=1, context=0, expert=2, data=1, pipeline=1)
    assert grid.place(13) == (1, 5)


@pytest.mark.parametrize("kind", ["tensor", "context", "expert", "data", "pipeline"])
def test_the_ranks_of_a_group_differ_in_their_own_coordinate(kind: str) -> None:
    sizes = {"tensor": 2, "context": 3, "data": 4, "pipeline": 2, "expert": 6}
    grid = rank_grid(sizes, gpus_per_node=8, nodes=6)
    groups_of_kind = grid.groups(kind)
    assert sorted(rank for group in groups_of_kind for rank in group) == list(range(48))
    for group in groups_of_kind:
        own = [getattr(grid.coordinates(rank), kind) for rank in group]
        assert own == list(range(sizes[kind]))
        assert len({grid.coordinates(rank).tensor for rank in group}) == (
            2 if kind == "tensor" else 1
        )


def test_a_picture_of_two_copies_of_two_stages() -> None:
    grid = rank_grid({"data": 2, "pipeline": 2}, gpus_per_node=4)
    assert grid.picture().splitlines() == [
        "        stage 0  stage 1",
        "data 0  [GPU0]   [GPU2]",
        "data 1  [GPU1]   [GPU3]",
    ]


def test_a_picture_names_nodes_and_the_physical_gpus() -> None:
    sizes = {"tensor": 2, "context": 2, "data": 2}
    grid = rank_grid(sizes, gpus_per_node=4, nodes=2, gpu_order=(0, 2, 1, 3))
    assert grid.picture().splitlines() == [
        "data 0, context 0  [0.GPU0 0.GPU2]",
        "data 0, context 1  [0.GPU1 0.GPU3]",
        "data 1, context 0  [1.GPU0 1.GPU2]",
        "data 1, context 1  [1.GPU1 1.GPU3]",
    ]


def test_a_large_job_has_no_picture() -> None:
    assert rank_grid({"data": 32}, gpus_per_node=8, nodes=4).picture() == ""


@pytest.mark.parametrize(
    ("sizes", "message", "hint"),
    [
        ({"tensor": 3}, "= 3 ranks, but 1 x 8 GPUs", "product"),
        ({"tensor": -2, "data": -4}, "tensor -2", "product"),
        ({"data": 8, "expert": 3}, "expert_parallel_size 3 does not divide", "divisor of 8"),
        ({"spare": 8}, "no groups of 'spare'", "pipeline"),
    ],
)
def test_sizes_that_make_no_grid_are_refused(
    sizes: dict[str, int], message: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        rank_grid(sizes, gpus_per_node=8)
    assert hint in caught.value.hint


def test_groups_of_an_unknown_kind_or_of_too_many_ranks_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'sequence'"):
        rank_grid({"data": 8}, gpus_per_node=8).groups("sequence")
    huge = rank_grid({"data": 1024 * 2048}, gpus_per_node=1024, nodes=2048)
    with pytest.raises(InvalidInputError, match="2,097,152 ranks"):
        huge.groups("data")
