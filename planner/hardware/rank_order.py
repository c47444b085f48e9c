"""The search for the order of a node's GPUs that puts near ones next to each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from planner.domain.topology import PCIE_CLASSES, Topology
from planner.hardware.group_links import groups, link_of_group, shapes
from planner.hardware.node_links import NodeLinks

LARGEST_EXACT = 8
"""GPUs of a topology up to which every order is weighed; larger ones are grown from pairs."""
_MOST_STEPS = 5_000
"""Of one search. No published topology needs a fifth of it; it bounds what a made-up one costs."""
_LARGEST_BLOCK = 8
_POWERS_OF_TWO = (2, 4, 8)

Score = tuple[tuple[float, ...], float, int, tuple[float, float]]


@dataclass(slots=True, kw_only=True)
class RankOrderSearch:
    """Weighs the orders of `num_used` of a topology's GPUs; keeps what it has worked out.

    The better order has, compared in turn:

    - the faster slowest block of consecutive ranks, of each size that divides their number, the
      smallest first (of a prime number of ranks: the fastest set, then blocks of 2 and 4);
    - the faster groups of ranks some stride apart, as data parallelism around tensor parallelism
      has them: the product over all shapes of what the slowest group of each gets;
    - the nearer blocks by PCIe class and NUMA node, and GPUs with a network adapter at hand;
    - the faster hops from each rank to the next.
    """

    node: NodeLinks
    topology: Topology
    num_used: int
    _rates: dict[frozenset[int], float] = field(default_factory=dict)
    _near: dict[frozenset[int], int] = field(default_factory=dict)
    _twins: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _sets: tuple[frozenset[int], ...] = ()
    _steps: int = 0
    _best: tuple[int, ...] = ()
    _best_score: Score = ((), 0.0, 0, (0.0, 0.0))

    def exact(self) -> tuple[int, ...]:
        """Return the best order: every one is weighed that may still be better."""
        sizes = [n for n in range(2, self.num_used + 1) if self.num_used % n == 0]
        if len(sizes) == 1:
            self._keep_fastest_sets()
            sizes = [*(n for n in _POWERS_OF_TWO if n < self.num_used), self.num_used]
        self._extend((), dict.fromkeys(sizes, math.inf))
        return self._best

    def grown(self) -> tuple[int, ...]:
        """Return an order grown by joining the nearest GPUs to pairs, those to fours, to eights."""
        blocks: list[tuple[int, ...]] = [(gpu,) for gpu in range(self.topology.num_gpus)]
        while len(blocks[0]) < _LARGEST_BLOCK and 2 * len(blocks[0]) <= self.num_used:
            blocks = self._paired(blocks)
        full_blocks = [block for block in blocks if len(block) == len(blocks[0])]
        short_blocks = [block for block in blocks if len(block) < len(blocks[0])]
        if len(blocks) > 1:
            full_blocks.sort(key=lambda block: -self._nearness(block))
        return tuple(gpu for block in (*full_blocks, *short_blocks) for gpu in block)[
            : self.num_used
        ]

    def all_pairs_are_equal(self) -> bool:
        """Return whether it does not matter which GPUs stand next to each other."""
        pairs = combinations(range(self.topology.num_gpus), 2)
        return len({(self._rate(pair), self._distance(*pair)) for pair in pairs}) <= 1

    def _keep_fastest_sets(self) -> None:
        """Rule out all but the GPUs whose one block is fastest: no smaller block divides it."""
        sets = list(combinations(range(self.topology.num_gpus), self.num_used))
        fastest = max(map(self._rate, sets))
        self._sets = tuple(frozenset(gpus) for gpus in sets if self._rate(gpus) == fastest)

    def _extend(self, chosen: tuple[int, ...], slowest: dict[int, float]) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS and self._best:
            return
        if len(chosen) == self.num_used:
            score = self._score(chosen, slowest)
            if not self._best or score > self._best_score:
                self._best, self._best_score = chosen, score
            return
        for gpu in range(self.topology.num_gpus):
            if gpu in chosen or self._has_twin_before(gpu, chosen):
                continue
            longer = (*chosen, gpu)
            if self._sets and not any(each.issuperset(longer) for each in self._sets):
                continue
            rates = {n: min(rate, self._completed(longer, n)) for n, rate in slowest.items()}
            if not self._best or tuple(rates.values()) >= self._best_score[0]:
                self._extend(longer, rates)

    def _completed(self, chosen: tuple[int, ...], size: int) -> float:
        """Return the rate of the block that the last GPU completes; infinite where none is."""
        return math.inf if len(chosen) % size else self._rate(chosen[-size:])

    def _rate(self, group: Sequence[int]) -> float:
        members = frozenset(group)
        if members not in self._rates:
            self._rates[members] = link_of_group(sorted(group), self.node).bytes_per_second
        return self._rates[members]

    def _score(self, chosen: tuple[int, ...], slowest: dict[int, float]) -> Score:
        hops = [self._rate(hop) for hop in zip(chosen, (*chosen[1:], chosen[0]), strict=True)]
        strided = [
            # A sum of logarithms orders as the product does.
            math.log2(min(map(self._rate, groups(chosen, ranks, stride))))
            for ranks, stride in shapes(self.num_used)
            if stride > 1 and self.num_used % (ranks * stride) == 0
        ]
        blocks = (block for size in slowest for block in groups(chosen, size, 1))
        near = sum(self._nearness(block) for block in blocks) + self._adapters(chosen)
        # Rounded, as equal rates added in another order must tie.
        return tuple(slowest.values()), round(sum(strided), 6), near, (min(hops), sum(hops))

    def _nearness(self, block: Sequence[int]) -> int:
        members = frozenset(block)
        if members not in self._near:
            nodes = {self.node.numa.get(gpu) for gpu in block}
            farthest = max((self._distance(a, b) for a, b in combinations(block, 2)), default=0)
            # Twice the class: NUMA nodes only decide between pairs of one class.
            self._near[members] = -2 * farthest - (len(nodes) > 1)
        return self._near[members]

    def _distance(self, low: int, high: int) -> int:
        if self.node.nvlinks(low, high):
            # Nearer than every PCIe class, whose numbers begin at 0.
            return -1
        return PCIE_CLASSES.index(self.node.pcie_class(low, high))

    def _adapters(self, chosen: Sequence[int]) -> int:
        # Through PCIe switches alone: there an adapter reads GPU memory without the CPU.
        near = PCIE_CLASSES[: PCIE_CLASSES.index("PHB")]
        return sum(any(nic.pcie.get(gpu) in near for nic in self.topology.nics) for gpu in chosen)

    def _has_twin_before(self, gpu: int, chosen: tuple[int, ...]) -> bool:
        if gpu not in self._twins:
            self._twins[gpu] = tuple(low for low in range(gpu) if self._are_twins(low, gpu))
        return any(low not in chosen for low in self._twins[gpu])

    def _are_twins(self, low: int, high: int) -> bool:
        if self.node.numa.get(low) != self.node.numa.get(high):
            return False
        if any(nic.pcie.get(low) != nic.pcie.get(high) for nic in self.topology.nics):
            return False
        peers = (gpu for gpu in range(self.topology.num_gpus) if gpu not in {low, high})
        return all(self._seen(low, peer) == self._seen(high, peer) for peer in peers)

    def _seen(self, gpu: int, peer: int) -> tuple[float, int, int]:
        return (
            self._rate((gpu, peer)),
            self._distance(gpu, peer),
            self.node.nvlinks(gpu, peer),
        )

    def _paired(self, blocks: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the blocks joined two by two, the nearest first; the odd one comes last."""
        size = len(blocks[0])
        rest = [block for block in blocks if len(block) == size]
        pairs = combinations(rest, 2)
        nearest = sorted(pairs, key=lambda pair: self._affinity(*pair), reverse=True)
        joined: list[tuple[int, ...]] = []
        for first, second in nearest:
            if first in rest and second in rest:
                rest = [block for block in rest if block not in {first, second}]
                joined.append((*first, *second))
        odd = [block for block in blocks if len(block) < size]
        return [*sorted(joined), *rest, *odd]

    def _affinity(self, block: tuple[int, ...], other: tuple[int, ...]) -> tuple[float, int]:
        slowest = min(self._rate((a, b)) for a in block for b in other)
        return slowest, self._nearness((*block, *other))
