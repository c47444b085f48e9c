"""Topology -> nested parts: what NVLink joins, then what each PCIe class joins, from near to far."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from typing import TypeVar

from planner.hardware.topology import PCIE_CLASSES, Pair, Topology

_Item = TypeVar("_Item")

_FARTHEST = PCIE_CLASSES[-1]

Near = tuple[tuple[str, ...], str]
"""Names of network adapters, and their PCIe class to a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlinkFabric:
    """Islands that NVLink joins, wholly or by some pairs; a GPU without NVLink is one by itself."""

    islands: tuple[tuple[int, ...], ...]
    nvlink: Mapping[Pair, int]
    """Links of each pair of these GPUs that has any."""
    word: str
    """PCIe classes of the pairs that have none."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Return all GPUs, as their ranks go."""
        return tuple(gpu for island in self.islands for gpu in island)

    @property
    def is_uniform(self) -> bool:
        """Return whether every pair has as many links: a switch, or cannot be told from one."""
        return len(self.islands) == 1 and len(set(self.nvlink.values())) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieGroup:
    """Parts with the same PCIe class between any two of them."""

    parts: "tuple[NodePart, ...]"
    word: str
    """The class; several where the pairs differ."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Return all GPUs, as their ranks go."""
        return tuple(gpu for part in self.parts for gpu in part.gpus)


NodePart = NvlinkFabric | PcieGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node's wiring as it is drawn and told."""

    topology: Topology
    gpu_order: tuple[int, ...]
    """GPU of each local rank."""
    root: NodePart
    adapters: tuple[Near | None, ...]
    """What is near to each GPU."""

    @property
    def is_in_index_order(self) -> bool:
        """Return whether rank and index are the same for every GPU."""
        return self.gpu_order == tuple(range(self.topology.num_gpus))

    def numa(self, gpus: Iterable[int]) -> int | None:
        """Return the NUMA node that all of these GPUs share; None where there is none."""
        nodes = {self.topology.numa.get(gpu) for gpu in gpus}
        return nodes.pop() if len(nodes) == 1 else None

    def near(self, gpus: Iterable[int]) -> Near | None:
        """Return the network adapters near these GPUs, if they are the same for all of them."""
        first, *others = (self.adapters[gpu] for gpu in gpus)
        return first if all(adapters == first for adapters in others) else None


def node_tree(topology: Topology, gpu_order: Sequence[int]) -> Node:
    """Return a node's parts, in the order of the ranks; GPUs without a rank come last.

    Parts are joined class by class from PIX to SYS, each class joining what has any pair at it;
    within a class, those that share a NUMA node first.
    """
    ranks = {gpu: rank for rank, gpu in enumerate(gpu_order)}

    def place(gpu: int) -> int:
        return ranks.get(gpu, topology.num_gpus + gpu)

    parts: list[NodePart] = list(_fabrics(topology, place))
    for level in range(len(PCIE_CLASSES)):
        are_near = partial(_are_near, topology, level)
        parts = [_group(topology, joined) for joined in _components(parts, are_near)]
    root = parts[0] if len(parts) == 1 else _group(topology, parts)
    return Node(
        topology=topology,
        gpu_order=tuple(gpu_order),
        root=root,
        adapters=tuple(_adapters(topology)),
    )


def links_word(links: Collection[int]) -> str:
    """Return numbers of NVLinks as nvidia-smi spells them: NV12, or NV1 to NV2."""
    low, high = min(links), max(links)
    return f"NV{low}" if low == high else f"NV{low} to NV{high}"


def _adapters(topology: Topology) -> Iterator[Near | None]:
    """Yield what is near to each GPU: nothing across sockets, unless all adapters of all are."""
    has_nearer = any(set(nic.pcie.values()) - {_FARTHEST} for nic in topology.nics)
    for gpu in range(topology.num_gpus):
        nics = topology.nics_near(gpu)
        pcie = nics[0].pcie[gpu] if nics else _FARTHEST
        is_near = nics and not (has_nearer and pcie == _FARTHEST)
        yield (tuple(nic.name for nic in nics), pcie) if is_near else None


def _fabrics(topology: Topology, place: Callable[[int], int]) -> list[NvlinkFabric]:
    islands = [tuple(sorted(island, key=place)) for island in topology.islands]
    islands.sort(key=lambda island: place(island[0]))

    def are_joined(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
        return any(pair in topology.nvlink for pair in _across(first, second))

    return [_fabric(topology, joined) for joined in _components(islands, are_joined)]


def _fabric(topology: Topology, islands: Sequence[tuple[int, ...]]) -> NvlinkFabric:
    gpus = sorted(gpu for island in islands for gpu in island)
    pairs = list(combinations(gpus, 2))
    return NvlinkFabric(
        islands=tuple(islands),
        nvlink={pair: topology.nvlink[pair] for pair in pairs if pair in topology.nvlink},
        word=_classes(topology, pairs),
    )


def _group(topology: Topology, parts: Sequence[NodePart]) -> NodePart:
    if len(parts) == 1:
        return parts[0]
    by_numa = [
        list(parts_of_numa)
        for _, parts_of_numa in groupby(parts, lambda part: _numa(topology, part))
    ]
    if 1 < len(by_numa) < len(parts):
        parts = [_group(topology, parts_of_numa) for parts_of_numa in by_numa]
    pairs = [
        pair
        for first, second in combinations(parts, 2)
        for pair in _across(first.gpus, second.gpus)
    ]
    return PcieGroup(parts=tuple(parts), word=_classes(topology, pairs))


def _numa(topology: Topology, part: NodePart) -> int:
    """Return the NUMA node of a part; one of its own where it has none, or several."""
    nodes = {topology.numa.get(gpu, -1) for gpu in part.gpus}
    return nodes.pop() if len(nodes) == 1 and -1 not in nodes else -1 - min(part.gpus)


def _classes(topology: Topology, pairs: Iterable[Pair]) -> str:
    classes = {topology.pcie[pair] for pair in pairs if pair in topology.pcie}
    return ", ".join(sorted(classes, key=PCIE_CLASSES.index))


def _are_near(topology: Topology, level: int, first: NodePart, second: NodePart) -> bool:
    near = PCIE_CLASSES[: level + 1]
    return any(topology.pcie.get(pair) in near for pair in _across(first.gpus, second.gpus))


def _across(first: Iterable[int], second: Collection[int]) -> list[Pair]:
    return [(min(a, b), max(a, b)) for a in first for b in second]


def _components(
    items: Sequence[_Item], are_joined: Callable[[_Item, _Item], bool]
) -> list[list[_Item]]:
    """Return the items in groups that are connected, in the order of their first members."""
    rest = list(items)
    groups = []
    while rest:
        group = [rest.pop(0)]
        for member in group:
            is_near = [are_joined(member, item) for item in rest]
            group += [item for item, near in zip(rest, is_near, strict=True) if near]
            rest = [item for item, near in zip(rest, is_near, strict=True) if not near]
        groups.append(sorted(group, key=items.index))
    return groups
