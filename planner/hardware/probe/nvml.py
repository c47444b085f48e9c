"""This machine as NVML describes it; where NVML cannot be opened, as `nvidia-smi` does."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.core.units import MIB, MILLI
from planner.domain.topology import TopologyFinding
from planner.hardware.probe import driver
from planner.hardware.probe.fabric import fabric_cluster, fabric_findings
from planner.hardware.probe.links import OpenGpu, bus_id, connect, nvlinks
from planner.hardware.probe.machine import Machine, MigInstance, ProbedGpu, make_machine
from planner.hardware.probe.session import LOST, NO_PERMISSION, Failure, Session
from planner.hardware.probe.smi import read_smi

_LIBRARY_NOT_FOUND = 12
_NO_NVML = {
    4: "this user may not talk to the NVIDIA driver",
    9: "the NVIDIA driver is not loaded",
    _LIBRARY_NOT_FOUND: driver.NO_LIBRARY,
    18: "the NVIDIA driver was replaced and waits for a reboot",
}
"""By the error of nvmlInit."""

_NEEDED = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName")
"""Without these there is nothing to plan for."""

_NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""NVML_NVLINK_VERSION_*: an enumeration, not the version."""
SYS = Path("/sys")
_WORDS = 16
"""64-bit words of the mask asked for: 1,024 nodes, the most that Linux is built with."""
_NODE_SCOPE = 0


def read_machine() -> Machine | str:
    """Return the machine, or why there is none to show."""
    if not driver.has_library():
        return read_smi(driver.NO_LIBRARY)
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return read_smi(_NO_NVML.get(error.value, f"NVML cannot be opened ({error})"))
    try:
        return _read(Session(nvml=pynvml))
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read(session: Session) -> Machine | str:
    count = session.ask("nvmlDeviceGetCount")
    if not count:
        reasons = [failure.text for failure in session.failures]
        return f"the NVIDIA driver lists no GPU ({reasons[0] if reasons else 'it counts 0'})"
    opened = [_device(session, index) for index in range(count)]
    devices = [device for device in opened if isinstance(device, OpenGpu)]
    left_out = [finding for finding in opened if isinstance(finding, TopologyFinding)]
    if not devices:
        return "; ".join(finding.message for finding in left_out)
    topology, assumed = connect(session, devices)
    topology = replace(
        topology,
        fabric_cluster=fabric_cluster(session, devices),
        mig_instances={
            position: len(device.gpu.mig)
            for position, device in enumerate(devices)
            if _is_split(session, device.handle)
        },
    )
    notes = (
        *left_out,
        *fabric_findings(session, devices),
        *assumed,
        *_permission_findings(session.failures),
    )
    driver = session.ask_text("nvmlSystemGetDriverVersion")
    return make_machine([device.gpu for device in devices], topology, driver, notes)


def _device(session: Session, index: int) -> OpenGpu | TopologyFinding:
    before = len(session.failures)
    handle = session.ask("nvmlDeviceGetHandleByIndex", index)
    device = None if handle is None else _describe(session, index, handle)
    failures = session.failures[before:]
    lost = next((failure for failure in failures if failure.code in LOST), None)
    if lost:
        return TopologyFinding(
            code="PRB001",
            message=f"GPU {index} does not answer ({lost.text}) and is left out: it has fallen off"
            " the bus or needs a reset, and CUDA may fail on the others until it is back",
        )
    if device is None or not device.gpu.name:
        reasons = [failure.text for failure in failures if failure.call in _NEEDED]
        return TopologyFinding(
            code="PRB002",
            message=f"GPU {index} cannot be read ({''.join(reasons) or 'no name'}) and is left out",
        )
    return device


def _describe(session: Session, index: int, handle: Any) -> OpenGpu:
    pci = session.ask("nvmlDeviceGetPciInfo", handle)
    address = "" if pci is None else bus_id(pci.busId)
    is_split = _is_split(session, handle)
    links = () if is_split else nvlinks(session, handle)
    version = next(
        (session.ask("nvmlDeviceGetNvLinkVersion", handle, link.number) for link in links), None
    )
    memory = session.ask("nvmlDeviceGetMemoryInfo", handle)
    capability = session.ask("nvmlDeviceGetCudaComputeCapability", handle)
    milliwatts = session.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    gpu = ProbedGpu(
        index=index,
        name=session.ask_text("nvmlDeviceGetName", handle),
        uuid=session.ask_text("nvmlDeviceGetUUID", handle),
        memory_bytes=None if memory is None else int(memory.total),
        compute_capability="" if capability is None else "{}.{}".format(*capability),
        pcie_generation=session.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_lanes=session.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        nvlink_links=len(links),
        nvlink_version=_NVLINK_VERSIONS.get(version or 0, ""),
        numa_node=_numa_node(session, handle, address),
        mig=_mig_instances(session, handle) if is_split else (),
        power_limit_watts=None if milliwatts is None else milliwatts * MILLI,
    )
    return OpenGpu(handle=handle, bus_id=address, links=links, gpu=gpu)


def _is_split(session: Session, handle: Any) -> bool:
    modes = session.ask("nvmlDeviceGetMigMode", handle)
    return bool(modes and modes[0])


def _mig_instances(session: Session, handle: Any) -> tuple[MigInstance, ...]:
    slots = range(session.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
    handles = (session.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in slots)
    return tuple(
        MigInstance(
            uuid=session.ask_text("nvmlDeviceGetUUID", instance),
            memory_bytes=_mig_memory_bytes(session, instance),
        )
        for instance in handles
        if instance is not None
    )


def _mig_memory_bytes(session: Session, instance: Any) -> int | None:
    attributes = session.ask("nvmlDeviceGetAttributes_v2", instance)
    if attributes is not None:
        return int(attributes.memorySizeMB) * MIB
    memory = session.ask("nvmlDeviceGetMemoryInfo", instance)
    return None if memory is None else int(memory.total)


def _permission_findings(failures: Sequence[Failure]) -> list[TopologyFinding]:
    calls = sorted({failure.call for failure in failures if failure.code == NO_PERMISSION})
    message = f"this user may not make {', '.join(calls)}: what they would say is left open"
    return [TopologyFinding(code="PRB003", message=message)] if calls else []


def _numa_node(session: Session, handle: object, bus_id: str) -> int | None:
    """Return the node whose memory is near: NVML's affinity where it names one, else /sys.

    Leaves out: a GPU that is near to several nodes with processors; it gets the node that its
    PCI device is listed under, if any.
    """
    near = _affinity(session, handle)
    with suppress(OSError, ValueError):
        # On Grace the GPUs' own memories are nodes too, and NVML lists them.
        near &= _nodes((SYS / "devices/system/node/has_cpu").read_text(encoding="ascii"))
    if len(near) == 1:
        return near.pop()
    with suppress(OSError, ValueError):
        listed = (SYS / "bus/pci/devices" / bus_id / "numa_node").read_text(encoding="ascii")
        return int(listed) if int(listed) >= 0 else None
    return None


def _affinity(session: Session, handle: object) -> set[int]:
    words = session.ask("nvmlDeviceGetMemoryAffinity", handle, _WORDS, _NODE_SCOPE) or ()
    return {
        64 * index + bit
        for index, word in enumerate(words)
        for bit in range(64)
        if int(word) >> bit & 1
    }


def _nodes(text: str) -> set[int]:
    """Return the nodes of a list as the kernel writes it: 0-1,8."""
    nodes: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        nodes.update(range(int(first), min(int(last or first), 64 * _WORDS) + 1))
    return nodes
