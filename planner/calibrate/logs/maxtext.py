"""MaxText: a line per completed step, and the configuration that it prints."""

import re
from collections.abc import Sequence

from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import Facts, LineFormat, count, number, numbered

_CONFIG = Facts(
    pattern=re.compile(r"Config param (?P<name>[a-z_]+): (?P<value>\S+)$"),
    fields={"max_target_length": ("recipe.sequence_length", count)},
)
_SECONDS = numbered(r"seconds:\s{0,20}")
_RATE = numbered("Tokens/s/device: ")
_WEIGHTS = numbered("total_weights: ")
_ROUNDED_SECONDS = 0.0005


def _per_step(lines: Sequence[str]) -> tuple[PerStep, ...]:
    """Return the last step's tokens with a loss, of which there may be more without, and a device's tokens."""
    found = [
        None if match is None else number(match[1])
        for match in (
            pattern.search(lines[-1] if lines else "") for pattern in (_WEIGHTS, _RATE, _SECONDS)
        )
    ]
    weights, rate, seconds = found
    said = [] if weights is None else [PerStep(amount=weights, of="tokens", is_least=True)]
    if rate is not None and seconds is not None:
        apart = 0.01 + _ROUNDED_SECONDS / seconds
        said.append(PerStep(amount=rate * seconds, of="tokens of a rank", apart=apart))
    return tuple(said)


MAXTEXT = LineFormat(
    name="MaxText",
    mark="completed step: ",
    step=re.compile(r"completed step: (\d{1,12}),"),
    value=_SECONDS,
    facts=(_CONFIG,),
    per_step=_per_step,
)
"""Steps are timed where they are launched: single ones say little, their median does.

Source: AI-Hypercomputer/maxtext, common/metric_logger.py and its guide to logs.
"""
