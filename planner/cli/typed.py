"""Flags that are typed with units, or under another name than the request's."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from planner.cli import wishes
from planner.cli.output import say
from planner.core.errors import InvalidInputError
from planner.request.amounts import read_precision
from planner.request.typed import TYPED, Read

_FIELDS = {
    "sequence_length": "sequence_length",
    "global_batch_size": "global_batch_size",
    "tokens": "training_tokens",
}
"""The field that a flag of a recipe is read into."""


def of_recipe(flags: dict[str, Any]) -> Iterator[Read]:
    """Yield what reads the flags of a recipe: sizes, precision, the length of the run."""
    for flag, field in _FIELDS.items():
        if flags[flag] is not None:
            yield partial(TYPED[field], flags[flag])
    if flags["precision"] is not None:
        yield lambda: _precision(flags["precision"])
    yield lambda: _samples(flags["samples"], flags["epochs"])


def of_goal(flags: dict[str, Any]) -> Iterator[Read]:
    """Yield what reads what a suggestion is to be best at, and what it is asked about."""
    plain = {name: flags[name] for name in ("objective", "max_gpus") if flags.get(name) is not None}
    yield lambda: plain
    if flags.get("deadline"):
        yield partial(TYPED["deadline_hours"], flags["deadline"])
    if flags.get("why"):
        yield lambda: {"why": wishes.read(flags["why"], "--why")}


def _precision(typed: str) -> dict[str, Any]:
    precision, note = read_precision(typed)
    say([note] if note else [])
    return {"precision": precision}


def _samples(samples: int | None, epochs: float | None) -> dict[str, Any]:
    """Return how many samples the run trains on, in the request's words."""
    if samples is not None:
        return {"training_samples": round(samples * (1.0 if epochs is None else epochs))}
    if epochs is None:
        return {}
    raise InvalidInputError(
        "--epochs needs the size of the data set", hint="add --samples N", field="--epochs"
    )
