"""The NUMA node that a GPU hangs on."""

from contextlib import suppress
from pathlib import Path

from planner.hardware.probe.session import Session

SYS = Path("/sys")
_WORDS = 16
"""64-bit words of the mask asked for: 1,024 nodes, the most that Linux is built with."""
_NODE_SCOPE = 0


def numa_node(session: Session, handle: object, bus_id: str) -> int | None:
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
