"""What is typed at a terminal or into a form, read word by word; all that is wrong with it at once."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from planner.core.errors import InvalidInputError, InvalidRequestError, problems_of

Read = Callable[[], dict[str, Any]]
"""What gives some fields of a request, or refuses what was typed."""
ResultT = TypeVar("ResultT")


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
