"""nanoGPT: a line per `log_interval` with the milliseconds of that iteration."""

import re
from collections.abc import Sequence

from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import LineFormat, StepLog, count, number, numbered

_LINES = LineFormat(
    name="nanoGPT",
    mark="ms, mfu ",
    step=re.compile(r"\biter (\d{1,12}):"),
    value=numbered(r"\btime ", "ms, mfu "),
    scale=1e-3,
)
_TOKENS = numbered(r"tokens per iteration will be: ")


class NanoGPT:
    """Reads what train.py prints; an iteration is an optimizer step, and one with an evaluation takes longer.

    Source: karpathy/nanoGPT, train.py.
    """

    name = _LINES.name

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether some line is an iteration."""
        return _LINES.recognises(lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        log = _LINES.read(lines)
        for line in lines:
            if (tokens := _TOKENS.search(line)) and (amount := number(tokens[1])):
                log.per_step = (PerStep(amount=amount, of="tokens"),)
                log.tokens_per_step = count(tokens[1])
                log.understood.add(line)
        return log


NANOGPT = NanoGPT()
