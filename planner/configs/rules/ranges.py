"""Numbers that are out of the range in which a setting makes sense: `data/configs/ranges.toml`."""

from collections.abc import Iterator

from planner.catalog.configs import Range, ranges
from planner.configs.found import ACCELERATE, LAUNCH, Setup
from planner.configs.meaning import short
from planner.configs.rules.base import WARNING, Fault

_TAKEN = "which is taken and hardly meant"


def number_is_out_of_range(setup: Setup) -> Iterator[Fault]:
    """A number is out of the range in which its setting makes sense."""
    for found in setup.found:
        seen: set[str] = set()
        of_kind, of_tool = (ranges().get(each, {}) for each in (found.kind, found.tool))
        for name, limits in {**of_kind, **of_tool}.items():
            setting = found.get(name)
            number = None if setting is None else setting.number
            if setting is None or number is None or number in limits.also or setting.key in seen:
                continue
            seen.add(setting.key)
            wrong = _wrong(number, limits)
            if wrong:
                is_taken = wrong.endswith(_TAKEN)
                yield Fault(
                    at=setting,
                    message=f"{setting.key} {short(setting.value)} is {wrong}",
                    hint=_words(limits),
                    level=WARNING if is_taken else None,
                )
    yield from _rank_is_beyond(setup)


def _rank_is_beyond(setup: Setup) -> Iterator[Fault]:
    """Yield a node's number that is none of the nodes'."""
    for found in setup.of(LAUNCH, ACCELERATE):
        rank, nodes = found.get("node_rank", "machine_rank"), found.whole("nnodes", "num_machines")
        if rank is not None and nodes and (rank.whole or 0) >= nodes:
            message = f"{rank.name} {rank.whole} of {nodes} nodes: they are counted from 0"
            yield Fault(at=rank, message=message, hint=f"0 to {nodes - 1}")


def _wrong(number: float, limits: Range) -> str:
    """Return what is wrong with a number; "" where nothing is."""
    if limits.least is not None and number < limits.least:
        return f"below {limits.least:g}"
    if limits.above is not None and number <= limits.above:
        return f"not above {limits.above:g}"
    if limits.most is not None and number > limits.most:
        return f"above {limits.most:g}"
    if limits.below is not None and number >= limits.below:
        return f"not below {limits.below:g}"
    if limits.is_whole and number != int(number):
        return "no whole number"
    is_much = limits.usual is not None and number > limits.usual
    return f"above {limits.usual:g}, {_TAKEN}" if is_much else ""


def _words(limits: Range) -> str:
    """Return the range: 1 or more, 0 to 1."""
    low = limits.least if limits.least is not None else limits.above
    high = next((x for x in (limits.most, limits.below, limits.usual) if x is not None), None)
    kind = "a whole number, " if limits.is_whole else ""
    start = f"{low or 0:g}" if limits.above is None else f"above {low:g}"
    if high is not None:
        end = f"below {high:g}" if limits.below is not None else f"{high:g}"
        return f"{kind}{start} to {end}"
    return f"{kind}{start} or more" if limits.above is None else f"{kind}{start}"
