"""Which modules of a block recompute="selective" repeats, and what a block still keeps beside them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import add, or_

import numpy as np

from planner.core.term import Truth
from planner.domain.kept import Kept
from planner.domain.model import Module, Part
from planner.domain.recompute_modules import CORE_ATTENTION, names_of, number_of
from planner.domain.strategy import Recompute, Strategy


def repeats(s: Strategy, name: str) -> Truth:
    """Return whether a layout names a module to recompute."""
    is_named: Truth = (np.asarray(s.recompute_modules) & number_of([name])) > 0
    both: Truth = np.logical_and(np.asarray(s.recompute) == Recompute.SELECTIVE, is_named)
    return both


def repeats_core_attention(s: Strategy) -> Truth:
    """Return whether attention's scores are computed again: where they are named, or nothing is."""
    is_usual = np.asarray(s.recompute_modules) == 0
    is_selective = np.asarray(s.recompute) == Recompute.SELECTIVE
    again: Truth = np.logical_or(np.logical_and(is_selective, is_usual), repeats(s, CORE_ATTENTION))
    return again


def repeated_modules(s: Strategy, part: Part) -> Iterator[tuple[Module, Truth]]:
    """Yield the modules of a part that any layout repeats, each with which of them do."""
    for name, module in part.modules.items():
        is_repeated = repeats(s, name)
        if np.any(is_repeated):
            yield module, is_repeated


def without_freed(s: Strategy, part: Part) -> Iterator[tuple[Part, Truth]]:
    """Yield a part as each set of recomputed modules leaves it, with the layouts that have the set."""
    is_selective = np.asarray(s.recompute) == Recompute.SELECTIVE
    for number in np.flatnonzero(np.bincount(np.ravel(s.recompute_modules))).tolist():
        modules = [part.modules[name] for name in names_of(number) if name in part.modules]
        if modules:
            is_of_set = is_selective & (np.asarray(s.recompute_modules) == number)
            yield replace(part, kept=_left(part, modules)), is_of_set


def _left(part: Part, modules: list[Module]) -> tuple[Kept, ...]:
    """Return what a part keeps of its own and of the modules' checkpoints: what several free goes once."""
    freed = reduce(or_, (Counter(module.freed) for module in modules))
    held = reduce(add, (Counter(module.checkpoint) for module in modules), Counter(part.kept))
    return tuple((held - freed).elements())
