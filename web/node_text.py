"""A node's wiring in words: what its picture shows, for those who do not see it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from planner.hardware.topology import Pair
from planner.hardware.topology.words import gpu_span, ranges
from web.node_tree import Near, Node, NodePart, NvlinkFabric, links_word

_MOST_NAMES = 8
_MOST_PAIRS = 64
CLASSES: Mapping[str, str] = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "a host bridge of the CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between sockets",
}
"""What lies between two GPUs, as nvidia-smi's legend has it."""


def title(node: Node) -> str:
    """Return the GPUs of a node and what joins them, in a line."""
    topology = node.topology
    count = topology.num_gpus
    names = [f"{len(list(same))} x {name}" for name, same in groupby(topology.gpu_names)]
    gpus_text = names[0] if len(names) == 1 else f"{count} GPU{'s' if count > 1 else ''}"
    islands = [island for island in topology.islands if len(island) > 1]
    if islands:
        return f"{gpus_text}, {len(islands)} NVLink island{'s' if len(islands) > 1 else ''}"
    return f"{gpus_text}, no NVLink" if count > 1 else gpus_text


def describe(node: Node) -> Iterator[str]:
    """Yield the facts of the picture as sentences."""
    yield from _joints(node.root)
    for numa, gpus in node.topology.numa_nodes.items():
        yield f"NUMA node {numa}: {gpu_span(gpus)}."
    sharing: dict[Near, list[int]] = {}
    for gpu, near in enumerate(node.adapters):
        if near:
            sharing.setdefault(near, []).append(gpu)
    for (names, pcie), served in sharing.items():
        yield f"{some_names(names)}: {pcie} to {gpu_span(served)}."
    if not node.is_in_index_order:
        yield f"Ranks from 0: {', '.join(f'GPU{gpu}' for gpu in node.gpu_order)}."


def legend(node: Node) -> Iterator[tuple[str, str]]:
    """Yield (kind of mark, meaning) of what the picture shows."""
    topology = node.topology
    if topology.nvlink:
        word = links_word(topology.nvlink.values())
        yield "island", f"NVLink joins every pair in a box ({word})"
    if len(set(topology.nvlink.values())) > 1:
        yield "line", "the wider a line, the more NVLinks"
    if topology.numa:
        yield "numa", "NUMA node"
    if any(node.adapters):
        yield "chip", "network adapter, with its PCIe class to the GPUs beside it"
    if len(node.gpu_order) < topology.num_gpus:
        yield "unused", "GPU that this plan leaves free"
    classes = set(topology.pcie.values())
    classes |= {near[1] for near in node.adapters if near}
    for name, meaning in CLASSES.items():
        if name in classes:
            yield "class", f"{name}: over {meaning}"


def _joints(part: NodePart) -> Iterator[str]:
    if isinstance(part, NvlinkFabric):
        yield from _fabric(part)
        return
    for inner in part.parts:
        yield from _joints(inner)
    yield f"Between {_and([gpu_span(inner.gpus) for inner in part.parts])}: {part.word}."


def _fabric(fabric: NvlinkFabric) -> Iterator[str]:
    if not fabric.nvlink:
        return
    if fabric.is_uniform:
        of_every_pair = " every pair" if len(fabric.nvlink) > 1 else ""
        yield f"{gpu_span(fabric.gpus)}: {links_word(fabric.nvlink.values())}{of_every_pair}."
        return
    for island in fabric.islands:
        if len(island) > 1:
            yield f"{gpu_span(island)}: NVLink joins every pair."
    by_links: dict[int, list[Pair]] = {}
    for pair, links in sorted(fabric.nvlink.items()):
        by_links.setdefault(links, []).append(pair)
    for links, pairs in sorted(by_links.items()):
        pairs_text = ", ".join(f"GPU{a}-GPU{b}" for a, b in pairs[:_MOST_PAIRS])
        more = f" and {len(pairs) - _MOST_PAIRS} more" if len(pairs) > _MOST_PAIRS else ""
        yield f"NV{links}: {pairs_text}{more}."
    if fabric.word:
        yield f"All other pairs of {gpu_span(fabric.gpus)}: {fabric.word}."


def some_names(names: Sequence[str]) -> str:
    """Return names with runs of numbers joined; of many, the first."""
    more = len(names) - _MOST_NAMES
    return ranges(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
