"""What the watchdogs of all ranks say together: which rank is missing, or in another collective than the others."""

import re
from collections.abc import Iterator
from itertools import islice

_MOST = 4096
"""Lines of watchdogs that are read."""
_WAITING = re.compile(
    r"\[(?P<group>[^\]\n]{0,80}?)\brank (?P<rank>\d{1,6})\][^\n]{0,200}?watchdog caught collective operation timeout:"
    r" WorkNCCL\(SeqNum=(?P<number>\d{1,12}), OpType=(?P<kind>\w{1,40})(?:, NumelIn=(?P<size>\d{1,15}))?",
    re.IGNORECASE,
)
_RANKS = re.compile(r"\bnranks (\d{1,6})\b", re.IGNORECASE)
_LONGEST_PREFIX = 400
_SHOWN = 4


def waiting_lines(text: str) -> Iterator[str]:
    """Yield how the ranks that wait differ, and which of their group does not wait with them."""
    begin = max(0, text.find("Watchdog caught") - _LONGEST_PREFIX)
    found = list(islice(_WAITING.finditer(text, begin), _MOST))
    if len({each["group"] for each in found}) != 1:
        return
    at = {int(each["rank"]): each for each in found[::-1]}
    if len(at) > 1:
        yield from _differences(at)
    ranks = max((len(at), *map(int, _RANKS.findall(text)), max(at) + 1))
    silent = [str(rank) for rank in range(ranks) if rank not in at]
    if silent and len(at) > 1:
        more = f" and {len(silent) - _SHOWN} more" if len(silent) > _SHOWN else ""
        yield f"of rank {', '.join(silent[:_SHOWN])}{more} no time-out is told: begin with that log"


def _differences(at: dict[int, re.Match[str]]) -> Iterator[str]:
    """Yield the first thing in which ranks differ: how far they are, what they do, or with how much."""
    for name, why in (
        ("number", "one has done fewer collectives: a branch, or fewer batches"),
        ("kind", "a branch that only some ranks take, or another order of weights"),
        ("size", "tensors of different shapes: pad them, or gather their sizes first"),
    ):
        by_value: dict[str, int] = {}
        for rank, each in sorted(at.items()):
            by_value.setdefault(each[name] or "", rank)
        if len(by_value) > 1:
            who = ", ".join(
                f"rank {rank} in {at[rank]['kind']} {at[rank]['number']} of {at[rank]['size'] or '?'} elements"
                for rank in [*by_value.values()][:_SHOWN]
            )
            yield f"{who}: {why}"
            return
