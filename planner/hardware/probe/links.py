"""How NVML says that GPUs are connected: bonded NVLinks, PCIe classes, peer-to-peer."""

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from planner.core.frozen import frozen
from planner.domain.topology import Topology, TopologyFinding
from planner.hardware.probe.machine import ProbedGpu
from planner.hardware.probe.session import Session, as_text

_TO_GPU, _TO_IBM_NPU, _TO_SWITCH = 0x00, 0x01, 0x02
"""NVML_NVLINK_DEVICE_TYPE_*; 0xFF is unknown, and old drivers do not say."""

_P2P_READ, _P2P_WRITE, _P2P_NVLINK = 0, 1, 2
"""NVML_P2P_CAPS_INDEX_*, of which the bindings' own READ is a tuple by mistake."""
_P2P_OK = 0

_PCIE = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML_TOPOLOGY_* -> what nvidia-smi prints; 0 is two GPUs of one board."""

_BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])$", re.IGNORECASE)


@frozen
class NvLink:
    """One active link of a GPU."""

    number: int
    remote_type: int | None
    remote_bus_id: str


@frozen
class OpenGpu:
    """An open GPU with what its connections are worked out from."""

    handle: Any
    bus_id: str
    links: tuple[NvLink, ...]
    gpu: ProbedGpu


def bus_id(text: object) -> str:
    """Return a PCI address as the kernel writes it, 0000:3b:00.0, or nothing where it is none."""
    match = _BUS_ID.match(as_text(text))
    if not match:
        return ""
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def nvlinks(session: Session, handle: Any) -> tuple[NvLink, ...]:
    """Return the active links to GPUs and switches; POWER9's links to its processor are not."""
    links = []
    for number in range(session.nvml.NVML_NVLINK_MAX_LINKS):
        if session.ask("nvmlDeviceGetNvLinkState", handle, number) != 1:
            continue
        remote = session.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
        if remote == _TO_IBM_NPU:
            continue
        pci = session.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
        address = "" if pci is None else bus_id(pci.busId)
        links.append(NvLink(number=number, remote_type=remote, remote_bus_id=address))
    return tuple(links)


def connect(session: Session, devices: Sequence[OpenGpu]) -> tuple[Topology, list[TopologyFinding]]:
    """Return the connections of every pair, GPU i being `devices[i]`, and what was assumed.

    Links through switches join every pair, by as many as the GPU with fewer of them has. In a
    virtual machine the far end may be hidden; such links count as switched unless the driver
    denies NVLink between the two.

    Source: NVIDIA/nccl issue #1182 (what NCCL assumes of hidden ends).
    Leaves out: the links of a GPU split by MIG, whose instances have none; `devices` bring none.
    """
    known = {device.bus_id for device in devices} - {""}
    nvlink: dict[tuple[int, int], int] = {}
    pcie: dict[tuple[int, int], str] = {}
    peer_to_peer: dict[tuple[int, int], bool] = {}
    guessed: set[int] = set()
    for low, high in combinations(range(len(devices)), 2):
        pair = devices[low], devices[high]
        links = _seen_links(*pair)
        if not links:
            links = _hidden_links(session, *pair, known)
            guessed |= {device.gpu.index for device in pair if links}
        path = "" if links else _pcie_class(session, *pair)
        if links:
            nvlink[low, high] = links
        elif path:
            pcie[low, high] = path
        works = _copies_work(session, *pair)
        if works is not None:
            peer_to_peer[low, high] = works
    outside = {device.gpu.index: _leading_outside(device, known) for device in devices}
    topology = Topology(
        num_gpus=len(devices),
        nvlink=nvlink,
        pcie=pcie,
        peer_to_peer=peer_to_peer,
        active_nvlinks={
            position: len(device.links) - outside[device.gpu.index]
            for position, device in enumerate(devices)
            if device.links
        },
    )
    return topology, [
        *_hidden_peers([gpu for gpu, links in outside.items() if links]),
        *_guess(guessed),
    ]


def _seen_links(low: OpenGpu, high: OpenGpu) -> int:
    direct = max(_links_to(low, high), _links_to(high, low))
    return direct or min(_switched(low), _switched(high))


def _hidden_links(session: Session, low: OpenGpu, high: OpenGpu, known: set[str]) -> int:
    links = min(_hidden(low, known), _hidden(high, known))
    if not links:
        return 0
    status = session.ask("nvmlDeviceGetP2PStatus", low.handle, high.handle, _P2P_NVLINK)
    return links if status in {None, _P2P_OK} else 0


def _pcie_class(session: Session, low: OpenGpu, high: OpenGpu) -> str:
    level = session.ask("nvmlDeviceGetTopologyCommonAncestor", low.handle, high.handle)
    return _PCIE.get(level, "")


def _links_to(device: OpenGpu, peer: OpenGpu) -> int:
    return sum(bool(peer.bus_id) and link.remote_bus_id == peer.bus_id for link in device.links)


def _switched(device: OpenGpu) -> int:
    return sum(link.remote_type == _TO_SWITCH for link in device.links)


def _hidden(device: OpenGpu, known: set[str]) -> int:
    return sum(
        link.remote_type not in {_TO_GPU, _TO_SWITCH} and link.remote_bus_id not in known
        for link in device.links
    )


def _copies_work(session: Session, low: OpenGpu, high: OpenGpu) -> bool | None:
    """Return whether both may read and write each other's memory; None where nobody says."""
    answers = [
        session.ask("nvmlDeviceGetP2PStatus", gpu.handle, peer.handle, ability)
        for gpu, peer in ((low, high), (high, low))
        for ability in (_P2P_READ, _P2P_WRITE)
    ]
    known = [answer for answer in answers if answer is not None]
    return all(answer == _P2P_OK for answer in known) if known else None


def _leading_outside(device: OpenGpu, known: set[str]) -> int:
    return sum(
        link.remote_type == _TO_GPU and link.remote_bus_id not in known for link in device.links
    )


def _guess(indices: set[int]) -> list[TopologyFinding]:
    message = (
        f"the driver does not say where NVLinks of GPU {_listed(sorted(indices))} end, as in a"
        " virtual machine that hides its switches: taken as links to a switch, as NCCL takes them"
    )
    return [TopologyFinding(code="PRB008", message=message)] if indices else []


def _hidden_peers(indices: Sequence[int]) -> list[TopologyFinding]:
    message = f"NVLinks of GPU {_listed(indices)} lead to GPUs that are not visible here: ignored"
    return [TopologyFinding(code="PRB009", message=message)] if indices else []


def _listed(indices: Sequence[int]) -> str:
    return ", ".join(str(index) for index in indices)
