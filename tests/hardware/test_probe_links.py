"""How a machine's GPUs are connected, as a fake NVML tells it."""

from pathlib import Path

import pytest
from fake_nvml import (
    FUNCTION_NOT_FOUND,
    GPU,
    NOT_SUPPORTED,
    NPU,
    P2P_CHIPSET,
    P2P_NOT_SUPPORTED,
    P2P_OK,
    SWITCH,
    UNKNOWN,
    FakeGpu,
    FakeNvml,
    Link,
    Look,
    codes,
    looker,
    pairs,
    published,
    short_address,
    switched,
    wired_as,
)

from planner.hardware.probe import describe
from planner.report.values import columns_text


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    return looker(monkeypatch, tmp_path)


def test_the_gpu_with_fewer_links_to_switches_decides(look: Look) -> None:
    gpus = switched(3, 12)
    gpus[1].links[5:] = [(SWITCH, "off")] * 7
    assert look(FakeNvml(gpus)).topology.nvlink == {(0, 1): 5, (0, 2): 12, (1, 2): 5}


@pytest.mark.parametrize("name", ["dgx1-v100-cube-mesh", "a30-two-bridged-pairs"])
def test_direct_links_are_counted_pair_by_pair(look: Look, name: str) -> None:
    expected = published(name)
    topology = look(wired_as(expected)).topology
    assert topology.nvlink == expected.nvlink
    assert topology.pcie == expected.pcie


def test_pcie_cards_have_classes_and_no_peer_to_peer(look: Look) -> None:
    expected = published("rtx4090-8-gpus-pcie")
    machine = look(wired_as(expected, p2p=lambda *_: P2P_CHIPSET))
    assert machine.topology.pcie == expected.pcie
    assert machine.topology.peer_to_peer == dict.fromkeys(pairs(8), False)
    assert machine.gpus[0].nvlink_links == 0


def test_peer_to_peer_must_work_both_ways(look: Look) -> None:
    def one_way(source: int, target: int, _what: int) -> int:
        return P2P_OK if source < target else P2P_NOT_SUPPORTED

    gpus = [FakeGpu(), FakeGpu()]
    assert look(FakeNvml(gpus)).topology.peer_to_peer == {(0, 1): True}
    assert look(FakeNvml(gpus, p2p=one_way)).topology.peer_to_peer == {(0, 1): False}
    silent = FakeNvml(gpus, fails={"nvmlDeviceGetP2PStatus": NOT_SUPPORTED})
    assert look(silent).topology.peer_to_peer == {}


@pytest.mark.parametrize("end", [(UNKNOWN, ""), (UNKNOWN, "FFFFFFFF:FF:1F.0"), (UNKNOWN, "junk")])
def test_switches_that_a_virtual_machine_hides_are_assumed(look: Look, end: Link) -> None:
    machine = look(FakeNvml([FakeGpu(links=[end] * 12) for _ in range(8)]))
    assert machine.topology.nvlink == dict.fromkeys(pairs(8), 12)
    assert codes(machine) == ["PRB008"]


def test_hidden_ends_are_not_confused_with_a_gpu_of_unknown_address(look: Look) -> None:
    gpus = [FakeGpu(links=[(UNKNOWN, "")] * 12) for _ in range(2)]
    machine = look(FakeNvml(gpus, fails={"nvmlDeviceGetPciInfo": NOT_SUPPORTED}))
    assert machine.topology.nvlink == {(0, 1): 12}
    assert codes(machine) == ["PRB008"]


def test_hidden_ends_are_no_switch_where_the_driver_denies_nvlink(look: Look) -> None:
    gpus = [FakeGpu(links=[(UNKNOWN, "")] * 6) for _ in range(2)]
    machine = look(FakeNvml(gpus, p2p=lambda *_: P2P_NOT_SUPPORTED))
    assert (machine.topology.nvlink, machine.topology.pcie) == ({}, {(0, 1): "SYS"})
    assert codes(machine) == ["TOP008", "TOP010"]


def test_links_to_a_power9_processor_are_not_between_gpus(look: Look) -> None:
    peers = (1, 0, 3, 2)
    npus: list[Link] = [(NPU, "00000004:00:01.0")] * 3
    gpus = [FakeGpu(links=npus + [(GPU, short_address(peer))] * 3) for peer in peers]
    machine = look(FakeNvml(gpus))
    assert machine.topology.nvlink == {(0, 1): 3, (2, 3): 3}
    assert set(machine.topology.pcie.values()) == {"SYS"}
    assert machine.gpus[0].nvlink_links == 3


def test_links_to_gpus_that_a_container_hides_are_ignored(look: Look) -> None:
    machine = look(FakeNvml([FakeGpu(links=[(GPU, short_address(5))] * 2), FakeGpu()]))
    assert machine.topology.nvlink == {}
    assert codes(machine) == ["PRB009"]


OLD_DRIVER = dict.fromkeys(
    (
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetMemoryAffinity",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetEnforcedPowerLimit",
    ),
    FUNCTION_NOT_FOUND,
)


def test_an_old_driver_still_tells_a_mesh(look: Look) -> None:
    expected = published("dgx1-v100-cube-mesh")
    machine = look(wired_as(expected, fails=OLD_DRIVER))
    assert machine.topology.nvlink == expected.nvlink
    assert machine.gpus[0].power_limit_watts is None
    assert machine.gpus[0].mig == ()
    assert machine.findings == ()


def test_an_old_driver_names_switches_by_an_address_that_is_no_gpu(look: Look) -> None:
    machine = look(FakeNvml(switched(4, 12), fails=OLD_DRIVER))
    assert machine.topology.nvlink == dict.fromkeys(pairs(4), 12)
    assert codes(machine) == ["PRB008"]


def test_a_path_that_nvml_does_not_know_is_said(look: Look) -> None:
    gpus = [FakeGpu(), FakeGpu()]
    machine = look(
        FakeNvml(gpus, fails={"nvmlDeviceGetTopologyCommonAncestor": FUNCTION_NOT_FOUND})
    )
    assert (machine.topology.pcie, codes(machine)) == ({}, ["TOP002"])
    assert "unknown: 1 pair" in describe(machine, columns_text)
