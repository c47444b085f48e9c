"""Searches too large to weigh every order, or made up to be slow."""

from itertools import combinations

import pytest

from planner.catalog import records
from planner.hardware.group_links import groups, node_links
from planner.hardware.placement import order
from planner.hardware.rank_order import RankOrderSearch
from planner.hardware.topology import Nic, Topology


def _search(topology: Topology, gpu: str, num_used: int) -> RankOrderSearch:
    node = node_links(records.gpu(gpu), num_used, topology)
    return RankOrderSearch(node=node, topology=topology, num_used=num_used)


def _interleaved(num_gpus: int, num_switches: int) -> Topology:
    """Return GPUs dealt out to PCIe switches in turn, the switches to two sockets in turn."""
    pcie = {}
    for low, high in combinations(range(num_gpus), 2):
        far = "NODE" if low % 2 == high % 2 else "SYS"
        pcie[low, high] = "PIX" if low % num_switches == high % num_switches else far
    return Topology(num_gpus=num_gpus, nvlink={}, pcie=pcie)


def test_sixteen_gpus_are_grown_from_pairs_on_one_switch() -> None:
    topology = _interleaved(16, 4)
    found = order(topology, 16, records.gpu("a10"))
    assert sorted(found) == list(range(16))
    for size, shared in ((2, 4), (4, 4), (8, 2)):
        for block in groups(found, size, 1):
            assert len({gpu % shared for gpu in block}) == 1


def test_the_nearest_of_many_gpus_are_taken() -> None:
    found = order(_interleaved(16, 4), 4, records.gpu("a10"))
    assert len({gpu % 4 for gpu in found}) == 1


def test_an_odd_gpu_comes_last() -> None:
    pcie = {pair: "SYS" if 3 in pair else "PIX" for pair in combinations(range(9), 2)}
    topology = Topology(num_gpus=9, nvlink={}, pcie=pcie)
    assert order(topology, 9, records.gpu("a10"))[-1] == 3


def test_growing_agrees_with_weighing_every_order() -> None:
    topology = _interleaved(8, 2)
    exact, grown = (getattr(_search(topology, "a10", 8), way)() for way in ("exact", "grown"))
    assert [set(block) for block in groups(exact, 4, 1)] == [{0, 2, 4, 6}, {1, 3, 5, 7}]
    assert [set(block) for block in groups(grown, 4, 1)] == [{0, 2, 4, 6}, {1, 3, 5, 7}]


def test_alike_gpus_are_told_apart_by_their_network_adapter() -> None:
    pairs = dict.fromkeys(combinations(range(4), 2), "NODE")
    nic = Nic(name="mlx5_0", pcie={0: "SYS", 1: "SYS", 2: "PIX", 3: "PIX"})
    # GPU0 and GPU1 share a switch as GPU2 and GPU3 do; only those have the adapter at hand.
    pcie = pairs | {(0, 1): "PIX", (2, 3): "PIX"}
    topology = Topology(num_gpus=4, nvlink={}, pcie=pcie, nics=(nic,))
    assert order(topology, 2, records.gpu("a10")) == (2, 3)


def test_a_made_up_mesh_ends_the_search_with_the_best_so_far() -> None:
    pairs = list(combinations(range(8), 2))
    nvlink = {(a, b): 1 + (7 * a + 3 * b) % 3 for a, b in pairs}
    search = _search(Topology(num_gpus=8, nvlink=nvlink, pcie={}), "v100-sxm2-32gb", 8)
    assert sorted(search.exact()) == list(range(8))


@pytest.mark.parametrize("num_used", [2, 3, 5, 6, 7])
def test_any_number_of_gpus_can_be_taken(num_used: int) -> None:
    found = order(_interleaved(8, 4), num_used, records.gpu("a10"))
    assert len(set(found)) == num_used
