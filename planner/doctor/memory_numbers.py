"""The numbers in PyTorch's out-of-memory message, what they say, and what a plan had said."""

import re
from collections.abc import Mapping
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import GIB, KIB, MIB, format_bytes

_AMOUNT = r"(\d{1,12}(?:\.\d{1,6})?) (GiB|MiB|KiB|bytes)"
_UNITS = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "bytes": 1}
_PATTERNS = {
    "wanted_bytes": (rf"Tried to allocate {_AMOUNT}",),
    "total_bytes": (rf"total capac(?:ity|ty) of {_AMOUNT}", rf"{_AMOUNT} total capacity"),
    "free_bytes": (rf"of which {_AMOUNT} is free", rf"{_AMOUNT} free"),
    "process_bytes": (rf"this process has {_AMOUNT} memory in use",),
    "allocated_bytes": (rf"{_AMOUNT} is allocated by PyTorch", rf"{_AMOUNT} already allocated"),
    "unused_bytes": (rf"{_AMOUNT} is reserved by PyTorch but unallocated",),
    "reserved_bytes": (rf"{_AMOUNT} reserved in total", rf"{_AMOUNT} cached"),
}
_SHOWN_TERMS = 3
_FRAGMENTED = 0.1
"""Of the card, reserved and unused, from which on fragmentation is worth a try."""
_CONTEXT_BYTES = GIB
"""What a CUDA context and NCCL take beside PyTorch at the most; more is another process."""


@frozen
class MemoryNumbers:
    """Bytes that an out-of-memory message names; 0 where it does not."""

    wanted_bytes: int = 0
    total_bytes: int = 0
    free_bytes: int = 0
    process_bytes: int = 0
    allocated_bytes: int = 0
    unused_bytes: int = 0
    """Reserved by PyTorch's allocator, and not in use."""

    @property
    def needed_bytes(self) -> int:
        """Return what PyTorch held and asked for: what would have had to fit."""
        return self.allocated_bytes + self.wanted_bytes


def read_numbers(message: str) -> MemoryNumbers | None:
    """Return the bytes that a message names; None where it is not about a tensor that found no room."""
    found = {name: _first(patterns, message) for name, patterns in _PATTERNS.items()}
    if not found["wanted_bytes"]:
        return None
    reserved = found.pop("reserved_bytes")
    found["unused_bytes"] = found["unused_bytes"] or max(0, reserved - found["allocated_bytes"])
    return MemoryNumbers(**found)


def _first(patterns: tuple[str, ...], message: str) -> int:
    match = next(filter(None, (re.search(pattern, message) for pattern in patterns)), None)
    return round(float(match[1]) * _UNITS[match[2]]) if match else 0


def number_lines(numbers: MemoryNumbers) -> tuple[str, ...]:
    """Return what the numbers say, in sentences."""
    n, lines = numbers, []
    short = n.wanted_bytes - n.free_bytes
    if n.total_bytes and short > 0:
        lines.append(
            f"{format_bytes(n.wanted_bytes)} asked for, {format_bytes(n.free_bytes)} free of"
            f" {format_bytes(n.total_bytes)}: {format_bytes(short)} short"
        )
    if n.unused_bytes >= _FRAGMENTED * n.total_bytes > 0:
        left = short - n.unused_bytes
        outcome = f"{format_bytes(left)} too little still" if left > 0 else "which would do"
        lines.append(
            f"{format_bytes(n.unused_bytes)} are reserved and unused, in pieces: with the free memory"
            f" {format_bytes(n.unused_bytes + n.free_bytes)}, {outcome};"
            " PYTORCH_ALLOC_CONF=expandable_segments:True (before PyTorch 2.9 PYTORCH_CUDA_ALLOC_CONF)"
        )
    ours = n.process_bytes or n.allocated_bytes + n.unused_bytes
    others = n.total_bytes - n.free_bytes - ours
    if ours and others > _CONTEXT_BYTES:
        lines.append(_held_by_others(others, is_told=bool(n.process_bytes)))
    if n.wanted_bytes > n.total_bytes > 0:
        lines.append(
            "one tensor is larger than the whole card: the logits, or attention without a fused kernel"
        )
    return tuple(lines)


def _held_by_others(amount: int, *, is_told: bool) -> str:
    """Return who holds the rest of the card: an older message does not count this process's own beside PyTorch."""
    if is_told:
        return (
            f"{format_bytes(amount)} of the card are held by something else: another process"
            " (nvidia-smi), or two ranks on one GPU"
        )
    return (
        f"{format_bytes(amount)} of the card are not PyTorch's tensors: this process's CUDA context and NCCL,"
        " or another process (nvidia-smi tells); a message of this age does not say"
    )


def compare_with_plan(numbers: MemoryNumbers, plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how the message's numbers stand to the ledger of a plan's chosen layout, or of an estimate.

    Args:
        numbers: of the message.
        plan: what `suggest --json` or `estimate --json` printed.

    Raises:
        InvalidInputError: it has no ledger.
    """
    try:
        memory = plan.get("chosen", plan)["memory"]
        peak, high, usable = (float(memory[f"{name}_bytes"]) for name in ("peak", "high", "usable"))
        terms = [(str(term["name"]), float(term["bytes"])) for term in memory["terms"]]
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(
            "the plan has no ledger of memory",
            hint="what `planner suggest --json` or `planner estimate --json` printed",
            field="--plan",
        ) from None
    terms = sorted(terms, key=lambda term: -term[1])[:_SHOWN_TERMS]
    needed = numbers.needed_bytes
    largest = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in terms)
    times = f", {needed / peak:.2f} times that" if peak else ""
    said = f"the plan's peak is {format_bytes(peak)} ({largest}); the run held and asked for"
    lines = [f"{said} {format_bytes(needed)}{times}"]
    if numbers.total_bytes and abs(numbers.total_bytes - usable) > _FRAGMENTED * usable:
        lines.append(
            f"the plan is for a card of {format_bytes(usable)}, the message is from one of"
            f" {format_bytes(numbers.total_bytes)}"
        )
    if needed > high:
        lines.append(
            "more than the plan's range: the run is not what was planned (micro-batch, length, recompute,"
            " attention kernel, sharding, or the optimizer's dtype)"
        )
    return tuple(lines)
