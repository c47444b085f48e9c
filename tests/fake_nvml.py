"""Machines for the probe: a fake NVML whose errors, constants and records are the bindings' own."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from planner.core.units import GIB, MIB
from planner.hardware.probe import Machine, probe
from planner.hardware.topology import Topology, TopologyFinding, dump, parse_topology

PUBLISHED = Path(__file__).parent / "topologies"
GPU, NPU, SWITCH, UNKNOWN = 0x00, 0x01, 0x02, 0xFF
NOT_SUPPORTED, NO_PERMISSION, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 4, 12, 13
IS_LOST, RESET_REQUIRED = 15, 16
LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
P2P_OK, P2P_CHIPSET, P2P_NOT_SUPPORTED = 0, 1, 5
Link = tuple[int | None, str]


@dataclass
class FakeGpu:
    """One GPU: `fails` holds the error by call, under * for every call."""

    name: str = "NVIDIA A100-SXM4-80GB"
    bus: int = 0x3B
    links: list[Link] = field(default_factory=list)
    nodes: int = 0b1
    mig: list["FakeGpu"] | None = None
    fabric: tuple[int, int, int] = (0, 0, 0)
    """State, status and health mask."""
    cluster: tuple[int, int] = (0, 0)
    """The first byte of its fabric cluster's UUID, and the clique."""
    fails: dict[str, int] = field(default_factory=dict)
    uuid: str = ""
    memory_bytes: int = 80 * GIB


class FakeNvml:
    """A driver with these GPUs; what is not a call is the bindings' own."""

    def __init__(
        self,
        gpus: Sequence[FakeGpu],
        *,
        paths: Callable[[int, int], str] = lambda _low, _high: "SYS",
        p2p: Callable[[int, int, int], int] = lambda _from, _to, _what: P2P_OK,
        fails: Mapping[str, int] | None = None,
    ) -> None:
        fails = fails or {}
        assert all(hasattr(pynvml, call) for call in fails)
        self.gpus, self.paths, self.p2p, self.fails = list(gpus), paths, p2p, fails
        self.is_open = False
        for position, gpu in enumerate(self.gpus):
            gpu.bus = 0x10 + position
            gpu.uuid = f"GPU-{position:08x}-aaaa"

    def __getattr__(self, name: str) -> Any:
        assert hasattr(pynvml, name), f"the bindings have no {name}"
        if name in ANSWERS:
            return partial(self._answer, name)
        assert not name.startswith("nvmlDevice"), f"{name} is not faked"
        return getattr(pynvml, name)

    def _answer(self, call: str, *arguments: Any) -> Any:
        asked: list[Mapping[str, int]] = [self.fails]
        asked += [gpu.fails for gpu in arguments if isinstance(gpu, FakeGpu)]
        for fails in asked:
            if code := fails.get(call) or fails.get("*"):
                raise pynvml.NVMLError(code)
        return ANSWERS[call](self, *arguments)

    def handle(self, index: int) -> FakeGpu:
        if "handle" in self.gpus[index].fails:
            raise pynvml.NVMLError(self.gpus[index].fails["handle"])
        return self.gpus[index]

    def link(self, gpu: FakeGpu, number: int) -> Link:
        if number >= len(gpu.links):
            raise pynvml.NVMLError(2)
        return gpu.links[number]

    def end(self, gpu: FakeGpu, number: int) -> Any:
        if not self.link(gpu, number)[1]:
            raise pynvml.NVMLError(NOT_SUPPORTED)
        return pynvml.nvmlPciInfo_t(busId=self.link(gpu, number)[1].encode())

    def pair(self, one: FakeGpu, other: FakeGpu) -> tuple[int, int]:
        return self.gpus.index(one), self.gpus.index(other)

    def slot(self, gpu: FakeGpu, number: int) -> FakeGpu:
        if number >= len(gpu.mig or []):
            raise pynvml.NVMLError(6)
        return (gpu.mig or [])[number]

    def fabric(self, gpu: FakeGpu, pointer: Any) -> int:
        record = pointer._obj  # noqa: SLF001 - how ctypes names it
        record.state, record.status = gpu.fabric[:2]
        record.clusterUuid[0], record.cliqueId = gpu.cluster
        if hasattr(record, "healthMask"):
            record.healthMask = gpu.fabric[2]
        return 0


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda nvml: setattr(nvml, "is_open", True),
    "nvmlShutdown": lambda nvml: setattr(nvml, "is_open", False),
    "nvmlSystemGetDriverVersion": lambda _nvml: b"550.54.15",
    "nvmlDeviceGetCount": lambda nvml: len(nvml.gpus),
    "nvmlDeviceGetHandleByIndex": FakeNvml.handle,
    "nvmlDeviceGetName": lambda _nvml, gpu: gpu.name,
    "nvmlDeviceGetUUID": lambda _nvml, gpu: gpu.uuid,
    "nvmlDeviceGetPciInfo": lambda _nvml, gpu: pynvml.nvmlPciInfo_t(
        busId=long_address(gpu.bus).encode()
    ),
    "nvmlDeviceGetCudaComputeCapability": lambda _nvml, _gpu: (8, 0),
    "nvmlDeviceGetMemoryInfo": lambda _nvml, gpu: SimpleNamespace(total=gpu.memory_bytes),
    "nvmlDeviceGetEnforcedPowerLimit": lambda _nvml, _gpu: 400_000,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda _nvml, _gpu: 4,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda _nvml, _gpu: 16,
    "nvmlDeviceGetMemoryAffinity": lambda _nvml, gpu, words, _scope: [
        gpu.nodes >> 64 * word & (1 << 64) - 1 for word in range(words)
    ],
    "nvmlDeviceGetMigMode": lambda _nvml, gpu: [
        int(gpu.mig is not None),
        int(gpu.mig is None),  # what a reboot would bring
    ],
    "nvmlDeviceGetMaxMigDeviceCount": lambda _nvml, _gpu: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": FakeNvml.slot,
    "nvmlDeviceGetAttributes_v2": lambda _nvml, gpu: SimpleNamespace(
        memorySizeMB=gpu.memory_bytes // MIB
    ),
    "nvmlDeviceGetNvLinkState": lambda nvml, gpu, number: int(nvml.link(gpu, number)[1] != "off"),
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda nvml, gpu, number: nvml.link(gpu, number)[0],
    "nvmlDeviceGetNvLinkRemotePciInfo": FakeNvml.end,
    "nvmlDeviceGetNvLinkVersion": lambda _nvml, _gpu, _number: 4,
    "nvmlDeviceGetTopologyCommonAncestor": lambda nvml, one, other: LEVELS[
        nvml.paths(*nvml.pair(one, other))
    ],
    "nvmlDeviceGetP2PStatus": lambda nvml, one, other, what: nvml.p2p(
        *nvml.pair(one, other), int(what)
    ),
    "nvmlDeviceGetGpuFabricInfoV": FakeNvml.fabric,
    "nvmlDeviceGetGpuFabricInfo": FakeNvml.fabric,
}


def long_address(bus: int) -> str:
    """As nvmlDeviceGetPciInfo writes it; the far ends of links are written short, in capitals."""
    return f"00000000:{bus:02X}:00.0"


def short_address(position: int) -> str:
    return f"0000:{0x10 + position:02x}:00.0"


def switched(count: int, links: int) -> list[FakeGpu]:
    ends: list[Link] = [(SWITCH, f"00000000:{0xC0 + n % 4:02X}:00.0") for n in range(links)]
    return [FakeGpu(links=list(ends), nodes=1 << (n // 4)) for n in range(count)]


def published(name: str) -> Topology:
    return parse_topology((PUBLISHED / f"{name}.txt").read_text(encoding="utf-8"))


def wired_as(topology: Topology, **options: Any) -> FakeNvml:
    gpus = [FakeGpu() for _ in range(topology.num_gpus)]
    for (low, high), links in topology.nvlink.items():
        gpus[low].links += [(GPU, short_address(high))] * links
        gpus[high].links += [(GPU, short_address(low))] * links
    return FakeNvml(gpus, paths=lambda low, high: topology.pcie[low, high], **options)


def mixed() -> FakeNvml:
    """Two bridged A100, of which the second is split, then a T4 and another A100."""
    gpus = [
        FakeGpu(links=[(GPU, short_address(3 - n))] * 12 if n in {0, 3} else []) for n in range(4)
    ]
    gpus[1].mig = [FakeGpu(uuid=f"MIG-{n}0", memory_bytes=10 * GIB) for n in range(2)]
    gpus[2].name = "Tesla T4"
    return FakeNvml(gpus, paths=lambda low, high: "PIX" if (low, high) == (2, 3) else "SYS")


Look = Callable[[FakeNvml], Machine]


def bare(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No nvidia-smi, no variables, a /sys of the test's own, and an NVML for the fake to be."""
    monkeypatch.setattr("planner.hardware.probe.driver.has_library", lambda: True)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr("planner.hardware.probe.nvml.SYS", folder)


def looker(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Look:
    """Return how a test sees a machine."""
    bare(monkeypatch, folder)

    def look(nvml: FakeNvml) -> Machine:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        machine = probe()
        assert not nvml.is_open
        assert machine is not None
        assert parse_topology(dump(machine.topology)) == machine.topology
        return machine

    return look


def codes(machine: Machine) -> list[str]:
    return [finding.code for finding in machine.findings]


def notes(machine: Machine) -> list[TopologyFinding]:
    """Return what the probe itself found: the topology's own findings come after."""
    own = len(machine.findings) - len(machine.topology.findings)
    assert machine.findings[own:] == machine.topology.findings
    return list(machine.findings[:own])


def pairs(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(count), 2))
