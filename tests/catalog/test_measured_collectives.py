"""The measured systems and the fitted constants: they load, and are what their sources give."""

import pytest
from fits.collectives import FAMILIES, as_record, fit

from planner.catalog import records
from planner.catalog.collectives import (
    OPERATIONS,
    CollectiveSystem,
    collective_shapes,
    collective_system,
    collective_systems,
    first_capability_with_switch_reduction,
    measured_system,
    network_shape,
)


@pytest.mark.parametrize("system", collective_systems(), ids=lambda system: system.name)
def test_a_system_holds_a_time_for_every_size(system: CollectiveSystem) -> None:
    assert system.source
    assert list(system.sizes_bytes) == sorted(system.sizes_bytes)
    assert set(system.seconds) == set(OPERATIONS)
    for curves in system.seconds.values():
        assert set(curves) <= {2, 4, 8}
        for curve in curves.values():
            assert len(curve) == len(system.sizes_bytes)
            assert 1e-6 < min(curve) <= max(curve) < 1


@pytest.mark.parametrize("system", collective_systems(), ids=lambda system: system.name)
def test_a_system_stands_for_gpus_of_the_catalogue(system: CollectiveSystem) -> None:
    for gpu in (*system.gpus, *system.relatives):
        assert records.gpu(gpu).name == gpu
        for medium in system.media:
            assert measured_system(gpu, medium) == system.name


def test_units_are_converted_once() -> None:
    a100 = collective_system("a100_sxm")
    assert a100 is not None
    assert a100.bytes_per_second == 240e9
    assert a100.sizes_bytes[-1] == 512 * 2**20
    assert a100.seconds["all_reduce"][8][-1] == pytest.approx(4225.9e-6, rel=1e-4)


def test_nobody_measured_everything() -> None:
    assert collective_system("nobody's") is None
    assert measured_system("a100-sxm-80gb", "pcie") == ""
    assert measured_system("mi300x", "xgmi") == ""
    assert collective_shapes("network") == {}


def test_bare_constants_between_nodes() -> None:
    shape = network_shape()
    assert shape.peer_seconds == pytest.approx(2e-6)
    assert 0 < shape.latency_per_doubling < shape.latency_per_hop < shape.send_latency < 1
    assert first_capability_with_switch_reduction() == 9.0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_constants_are_what_the_fit_prints(family: str, operation: str) -> None:
    record = records.read("calibration", "interconnect")["collectives"][family][operation]
    chosen = [system for system in collective_systems() if system.media[0] in FAMILIES[family]]
    assert record == pytest.approx(as_record(fit(chosen, operation)), rel=0.01)
