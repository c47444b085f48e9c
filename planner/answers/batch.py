"""Many requests in, one answer each out; a bad one spoils none but its own."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from planner.answers.envelope import answer_error
from planner.answers.estimate import answer_estimate
from planner.core.errors import PlannerError
from planner.request.schema import Request, parse_request


def answer_batch(payloads: Iterable[object], *, allow_paths: bool) -> Iterator[dict[str, Any]]:
    """Yield one estimate per payload, in order; a bad one yields its error and the rest go on."""
    return answer_each(payloads, lambda request: answer_estimate(request, allow_paths=allow_paths))


def answer_each(
    payloads: Iterable[object], answer: Callable[[Request], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield what `answer` gives to each payload's request, or the error of that payload alone.

    A payload that could not be read is the error itself.
    """
    for payload in payloads:
        try:
            if isinstance(payload, PlannerError):
                raise payload
            yield answer(parse_request(payload))
        except PlannerError as error:
            yield answer_error(error, _id(payload))


def _id(payload: object) -> str | int | None:
    """Return the id of what may be no request; an id that is no id is not echoed."""
    request_id = payload.get("id") if isinstance(payload, dict) else None
    return (
        request_id
        if isinstance(request_id, str | int) and not isinstance(request_id, bool)
        else None
    )
