"""Groups on a link of 10 GB/s with 20 us of latency, and 4 nodes on 8 GB/s each, worked by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_clusters import cluster, link

from planner.catalog import records
from planner.collectives import operations
from planner.collectives.operations import (
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
    send,
)
from planner.core.errors import InvalidInputError
from planner.core.term import Amount
from planner.core.units import GIGA
from planner.domain.cluster import Group, Provenance

Collective = Callable[..., Amount]
COLLECTIVES = (all_reduce, all_gather, reduce_scatter, all_to_all, send)
HALVES = (all_gather, reduce_scatter, all_to_all)


NODE, NODES = cluster(), cluster(4)


def test_a_rack_joined_by_nvlink_needs_no_network() -> None:
    """72 ranks of 18 nodes take what 72 ranks of one node take; two racks send through all their nodes."""
    rack = cluster(18, gpus_per_node=4, nvlink_domain_gpus=72, domain_link=link(), inter_node=None)
    node = cluster(1, gpus_per_node=72)
    everyone = Group(ranks=72)
    for operation in (all_reduce, all_gather, reduce_scatter, all_to_all, send):
        assert operation(rack, everyone, GIGA) == operation(node, everyone, GIGA)
    racks = replace(rack, nodes=36, inter_node=link(8, "network"))
    both = Group(ranks=144)
    of_one_node = replace(racks, nvlink_domain_gpus=0)
    assert all_gather(racks, both, GIGA) < all_gather(of_one_node, both, GIGA)
    # A pair across racks has its share of one node's network, 8 / 4 GB/s, as everywhere.
    far = Group(ranks=2, stride=72)
    assert all_gather(racks, far, GIGA) == all_gather(of_one_node, far, GIGA)


def test_an_all_reduce_moves_the_tensor_nearly_twice() -> None:
    # 4 ranks, 1 GB: 2 * 3/4 * 1 GB / 10 GB/s = 0.15 s, and one latency.
    assert all_reduce(NODE, Group(ranks=4), 1e9) == pytest.approx(0.15 + 20e-6)


@pytest.mark.parametrize("half", HALVES)
def test_its_halves_move_it_nearly_once(half: Collective) -> None:
    # 8 ranks, 2 GB: 7/8 * 2 GB / 10 GB/s = 0.175 s.
    assert half(NODE, Group(ranks=8), 2e9) == pytest.approx(0.175 + 20e-6)


def test_a_message_crosses_one_link() -> None:
    assert send(NODE, Group(ranks=4), 1e9) == pytest.approx(0.1 + 20e-6)


def test_every_operation_pays_its_latency() -> None:
    # 2 ranks, 1 MB in 10 buckets: 2 * 1/2 * 1 MB / 10 GB/s = 100 us, and 10 * 20 us.
    assert all_reduce(NODE, Group(ranks=2), 1e6, operations=10) == pytest.approx(300e-6)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_moves_nothing(collective: Collective) -> None:
    for place in (NODE, NODES):
        assert collective(place, Group(ranks=1, stride=8), 1e9) == 0
        assert collective(place, Group(ranks=4), 1e9, 0) == 0


@given(ranks=st.sampled_from((2, 3, 4, 8)), size=st.floats(0, 1e12))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks: int, size: float) -> None:
    group = Group(ranks=ranks)
    halves = reduce_scatter(NODE, group, size) + all_gather(NODE, group, size)
    assert all_reduce(NODE, group, size, operations=2) == pytest.approx(halves)


@given(
    collective=st.sampled_from(COLLECTIVES),
    stride=st.sampled_from((1, 2, 4, 8, 16)),
    size=st.floats(1, 1e12),
)
def test_more_bytes_never_take_less_time(collective: Collective, stride: int, size: float) -> None:
    group = Group(ranks=32 // stride, stride=stride)
    assert collective(NODES, group, 2 * size) >= collective(NODES, group, size)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_columns_give_columns(collective: Collective) -> None:
    rows = [
        (ranks, stride, size, operations)
        for ranks in (1, 2, 4, 8, 16)
        for stride in (1, 2, 8, 32)
        for size, operations in ((0.0, 1), (1e6, 3), (1e9, 0), (2e9, 7))
    ]
    ranks, stride, sizes, operations = (np.array(column) for column in zip(*rows, strict=True))
    column = collective(NODES, Group(ranks=ranks, stride=stride), sizes, operations)
    each = [collective(NODES, Group(ranks=n, stride=k), s, times) for n, k, s, times in rows]
    assert np.asarray(column).tolist() == pytest.approx(each)
    assert all(isinstance(seconds, float) for seconds in each)


def test_a_column_of_groups_may_share_one_size() -> None:
    group = Group(ranks=np.array([1, 2, 4]))
    seconds = all_reduce(NODE, group, 1e9)
    assert np.asarray(seconds).tolist() == pytest.approx([0, 0.1 + 20e-6, 0.15 + 20e-6])


def test_an_empty_table_takes_no_time() -> None:
    none = np.array([], dtype=int)
    assert np.asarray(all_gather(NODES, Group(ranks=none, stride=none), 1e9)).tolist() == []


def test_strided_groups_stay_in_the_node_as_long_as_they_can() -> None:
    pairs = {(2, 4): link(5)}
    place = cluster(group_links=pairs)
    assert all_reduce(place, Group(ranks=2, stride=4), 1e9) == pytest.approx(0.2 + 20e-6)
    assert all_reduce(place, Group(ranks=2, stride=1), 1e9) == pytest.approx(0.1 + 20e-6)


@pytest.mark.parametrize("stride", [8, 16])
def test_a_group_with_one_rank_in_a_node_has_its_share_of_the_network(stride: int) -> None:
    # 8 such groups of 4 nodes share 8 GB/s, and each rank passes on 3/4 of 80 GB.
    found = all_gather(cluster(64), Group(ranks=4, stride=stride), 80e9)
    assert found == pytest.approx(3 / 4 * 80 / (8 / 8), rel=0.02)


def test_a_group_that_leaves_the_only_node_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="does not fit in one node of 8 GPUs") as failure:
        all_reduce(NODE, Group(ranks=16), 1e9)
    assert failure.value.field == "cluster.inter_node"


def test_where_the_seconds_come_from() -> None:
    by_curve = link(240, "nvswitch", system="a100_sxm")
    assumed = link(8, "network", provenance=Provenance.ASSUMED)
    eight, all_32 = Group(ranks=8), Group(ranks=32)
    cases = (
        (NODE, eight, Provenance.DERIVED),
        (cluster(intra_node=link(provenance=Provenance.MEASURED)), eight, Provenance.MEASURED),
        (cluster(intra_node=by_curve), eight, Provenance.MEASURED),
        (cluster(intra_node=by_curve, gpu=records.gpu("a800")), eight, Provenance.DERIVED),
        (cluster(4, intra_node=by_curve), all_32, Provenance.DERIVED),
        (cluster(4, inter_node=assumed), all_32, Provenance.ASSUMED),
        (cluster(4, inter_node=assumed), eight, Provenance.DERIVED),
        (cluster(4, inter_node=assumed), Group(ranks=2, stride=8), Provenance.ASSUMED),
    )
    for place, group, expected in cases:
        assert operations.provenance(place, group) is expected


def test_the_sources_of_all_parts_are_named() -> None:
    by_curve = cluster(4, intra_node=link(240, "nvswitch", system="a100_sxm"))
    assert "a100_sxm" in operations.source(by_curve, Group(ranks=8))
    assert operations.source(NODE, Group(ranks=8)) == "this test"
    whole = operations.source(by_curve, Group(ranks=32))
    assert all(part in whole for part in ("a100_sxm", "that network", "NVIDIA/nccl #1244"))
