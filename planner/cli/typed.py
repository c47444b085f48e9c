"""What is typed with units, or under another name than the request's; all that is wrong with it at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from planner.cli import wishes
from planner.cli.output import say
from planner.core.errors import InvalidInputError, InvalidRequestError, problems_of
from planner.request.amounts import read_batch, read_hours, read_length, read_precision, read_tokens

Read = Callable[[], dict[str, Any]]
"""What gives some fields of a request, or refuses what was typed."""
ResultT = TypeVar("ResultT")


def of_recipe(flags: dict[str, Any]) -> Iterator[Read]:
    """Yield what reads the flags of a recipe: sizes, precision, the length of the run."""
    length, batch, tokens = (
        flags[name] for name in ("sequence_length", "global_batch_size", "tokens")
    )
    if length is not None:
        yield lambda: {"sequence_length": read_length(length)}
    if batch is not None:
        yield lambda: dict(read_batch(batch))
    if flags["precision"] is not None:
        yield lambda: _precision(flags["precision"])
    if tokens is not None:
        yield lambda: {"training_tokens": read_tokens(tokens)}
    yield lambda: _samples(flags["samples"], flags["epochs"])


def of_goal(flags: dict[str, Any]) -> Iterator[Read]:
    """Yield what reads what a suggestion is to be best at, and what it is asked about."""
    plain = {name: flags[name] for name in ("objective", "max_gpus") if flags.get(name) is not None}
    yield lambda: plain
    if flags.get("deadline"):
        yield lambda: {"deadline_hours": read_hours(flags["deadline"])}
    if flags.get("why"):
        yield lambda: {"why": wishes.read(flags["why"], "--why")}


def read_each(reads: Iterable[Read]) -> tuple[dict[str, Any], list[InvalidInputError]]:
    """Return the fields that can be read, and what is wrong with the others."""
    found: dict[str, Any] = {}
    wrong: list[InvalidInputError] = []
    for read in reads:
        try:
            found |= read()
        except InvalidInputError as error:
            wrong.append(error)
    return found, wrong


def unless_wrong(make: Callable[[], ResultT], wrong: list[InvalidInputError]) -> ResultT:
    """Return what is made of what could be read.

    Raises:
        InvalidInputError: something could not; with that and what is wrong with the rest.
    """
    try:
        made = make()
    except InvalidRequestError as error:
        wrong = [*wrong, error]
    if not wrong:
        return made
    if len(wrong) == 1:
        raise wrong[0]
    raise InvalidRequestError(tuple(each for error in wrong for each in problems_of(error)))


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
