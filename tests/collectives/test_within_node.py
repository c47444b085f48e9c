"""The formula within a node by hand, and what measured points make of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog import records
from planner.catalog.collectives import (
    OPERATIONS,
    CollectiveSystem,
    collective_shapes,
    collective_systems,
)
from planner.catalog.interconnect import CollectiveShape
from planner.collectives.within_node import (
    link_seconds,
    measured,
    pipelined,
    traffic,
    transfer_seconds,
    within_node,
)
from planner.core.units import GIB
from planner.domain.cluster import Link, Provenance

LINK = Link(
    name="test",
    bytes_per_second=370.8e9,
    latency_seconds=15e-6,
    provenance=Provenance.DERIVED,
    source="this test",
    medium="nvswitch",
)


def system(name: str) -> CollectiveSystem:
    return next(each for each in collective_systems() if each.name == name)


def test_bus_traffic_is_that_of_nccl_tests() -> None:
    assert traffic("all_reduce", 8) == 2 * 7 / 8
    assert [traffic(operation, 4) for operation in OPERATIONS[1:]] == [3 / 4] * 3


def test_a_pipeline_pays_a_root_between_latency_and_transfer() -> None:
    # 10 us + 40 us + 2 * sqrt(0.25 * 10 us * 40 us) = 50 + 2 * 10 = 70 us.
    assert pipelined(10e-6, 40e-6, 0.25) == pytest.approx(70e-6)
    assert pipelined(10e-6, 40e-6, 0.0) == pytest.approx(50e-6)


def test_a_ring_moves_its_traffic_and_its_own_part() -> None:
    shape = CollectiveShape(
        operation="all_gather", latency_seconds=5e-6, own_share=0.4, efficiency=0.8
    )
    # 4 ranks, 1 GB: (3/4 + 0.4/4) * 1 GB / (0.8 * 100 GB/s) = 0.85 / 80 s.
    assert transfer_seconds(shape, 4, 1e9, 100e9) == pytest.approx(0.85 / 80)


def test_the_switch_reduces_where_that_is_faster() -> None:
    shape = CollectiveShape(operation="all_reduce", latency_seconds=0.0, switch_efficiency=0.8)
    # Ring 2 * 7/8 = 1.75 s; switch 1.125 / 0.8 = 1.41 s. With 2 ranks: 1 s against 1.875 s.
    assert transfer_seconds(shape, 8, 1e9, 1e9, in_switch=True) == pytest.approx(1.125 / 0.8)
    assert transfer_seconds(shape, 8, 1e9, 1e9) == pytest.approx(1.75)
    assert transfer_seconds(shape, 2, 1e9, 1e9, in_switch=True) == pytest.approx(1.0)


def test_latency_grows_with_the_ranks() -> None:
    shape = CollectiveShape(
        operation="all_reduce", latency_seconds=5e-6, latency_seconds_per_rank=2e-6
    )
    assert within_node(shape, 8, 0.0, 1e9) == pytest.approx(19e-6)


@pytest.mark.parametrize("each", collective_systems(), ids=lambda each: each.name)
def test_every_measured_point_is_answered_as_measured(each: CollectiveSystem) -> None:
    for operation in OPERATIONS:
        for ranks, seconds in each.seconds[operation].items():
            sizes = np.array(each.sizes_bytes)
            answer = measured(each, operation, ranks, sizes, each.bytes_per_second)
            assert np.asarray(answer).tolist() == pytest.approx(seconds)


def test_beyond_the_largest_size_bandwidth_rules_and_below_the_smallest_latency() -> None:
    h100 = system("h100_sxm")
    at = {size: measured(h100, "all_gather", 8, size, 370.8e9) for size in (1, 64, 8e9, 16e9)}
    assert at[16e9] == pytest.approx(2 * at[8e9], rel=0.02)
    assert at[1] == pytest.approx(at[64], rel=0.02)


def test_published_groups_of_5_to_7_are_between_the_measured_ones() -> None:
    # NVIDIA/nccl-tests #212: 414, 436 and 460 GB/s with 5, 6 and 7 of 8 GPUs, in the switch.
    size = 8.0 * GIB
    rates = [
        traffic("all_reduce", ranks)
        * size
        / measured(system("h200_sxm"), "all_reduce", ranks, size, 370.8e9)
        for ranks in (5, 6, 7)
    ]
    assert rates == pytest.approx([414e9, 436e9, 460e9], rel=0.06)


def test_more_gpus_than_were_measured_follow_the_formula() -> None:
    gb200 = system("gb200")
    four, more = (measured(gb200, "all_gather", n, GIB, 721.8e9) for n in (4, 64))
    shape = gb200.shapes["all_gather"]
    four_by_formula, more_by_formula = (within_node(shape, n, GIB, 721.8e9) for n in (4, 64))
    assert more / four == pytest.approx(more_by_formula / four_by_formula)


@given(
    ranks=st.integers(2, 1024),
    size=st.floats(1, 1e12),
    medium=st.sampled_from(("nvswitch", "nvlink", "xgmi", "fabric", "pcie", "host", "given")),
    operation=st.sampled_from(OPERATIONS),
)
def test_more_ranks_or_bytes_never_take_less_time(
    ranks: int, size: float, medium: str, operation: str
) -> None:
    link = replace(LINK, medium=medium)
    gpu = records.gpu("a100")
    time = link_seconds(gpu, link, operation, ranks, size)
    assert link_seconds(gpu, link, operation, ranks, 2 * size) >= time
    assert link_seconds(gpu, link, operation, 2 * ranks, size) >= time * (1 - 1e-9)


def test_a_link_whose_figures_were_given_has_no_other_constants() -> None:
    given_link = replace(LINK, medium="given", bytes_per_second=10e9, latency_seconds=20e-6)
    gpu = records.gpu("h100")
    # 4 ranks, 1 GB: 20 us + 2 * 3/4 * 1 GB / 10 GB/s = 150.02 ms.
    assert link_seconds(gpu, given_link, "all_reduce", 4, 1e9) == pytest.approx(0.15002)
    assert collective_shapes("given") == {}


def test_only_hopper_and_newer_reduce_in_the_switch() -> None:
    times = [
        link_seconds(records.gpu(gpu), link, "all_reduce", 8, GIB)
        for gpu in ("a100", "h20")
        for link in (LINK, replace(LINK, medium="nvlink"))
    ]
    assert times[0] == times[1] == times[3]
    assert times[2] < 0.9 * times[3]


def test_a_relative_has_the_curve_of_the_measured_system_over_its_own_bandwidth() -> None:
    link = replace(LINK, system="h100_sxm")
    half = replace(link, bytes_per_second=LINK.bytes_per_second / 2)
    own, kin = records.gpu("h100-sxm-80gb"), records.gpu("h800")
    measured_seconds = link_seconds(own, link, "all_gather", 8, GIB)
    assert link_seconds(kin, link, "all_gather", 8, GIB) == measured_seconds
    assert link_seconds(own, half, "all_gather", 8, GIB) == measured_seconds
    slow = link_seconds(kin, half, "all_gather", 8, GIB)
    assert slow == pytest.approx(2 * measured_seconds, rel=0.03)


def test_an_unknown_system_is_answered_by_formula() -> None:
    gpu = records.gpu("a100")
    unknown = link_seconds(gpu, replace(LINK, system="nobody's"), "all_reduce", 8, GIB)
    assert unknown == link_seconds(gpu, LINK, "all_reduce", 8, GIB)
