"""Failures -> application/problem+json (RFC 9457), or a page where there are pages for a reader."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api import access
from api.body import MalformedError, TooLargeError
from api.fields import by_field, described_by_field, urn_of, words_of
from api.headers import SECURITY_HEADERS, UNKEPT
from api.jobs import to_json
from api.work import LostProcessError, TooBusyError
from planner.core.errors import (
    MOST_PROBLEMS,
    HubUnreachableError,
    InvalidRequestError,
    ModelAccessError,
    ModelNotFoundError,
    NothingFitsError,
    PlannerError,
    TookTooLongError,
    UnknownNameError,
    problems_of,
)
from planner.core.errors import Problem as CoreProblem

STATUSES: Mapping[type[PlannerError], HTTPStatus] = {
    PlannerError: HTTPStatus.UNPROCESSABLE_ENTITY,
    MalformedError: HTTPStatus.BAD_REQUEST,
    ModelNotFoundError: HTTPStatus.NOT_FOUND,
    ModelAccessError: HTTPStatus.FORBIDDEN,
    HubUnreachableError: HTTPStatus.BAD_GATEWAY,
    NothingFitsError: HTTPStatus.CONFLICT,
    TooBusyError: HTTPStatus.TOO_MANY_REQUESTS,
    LostProcessError: HTTPStatus.SERVICE_UNAVAILABLE,
    TookTooLongError: HTTPStatus.GATEWAY_TIMEOUT,
    TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    **access.STATUSES,
}
"""The nearest class of an error decides."""

_EXAMPLES: Mapping[int, PlannerError] = {
    HTTPStatus.BAD_REQUEST: MalformedError(
        "the body is not JSON: Expecting value: line 1 column 1 (char 0)",
        'send one JSON object, such as {"model": "gpt2"}',
    ),
    HTTPStatus.UNAUTHORIZED: access.KeyMissingError(
        "this service asks for a key", "send it as Authorization: Bearer KEY"
    ),
    HTTPStatus.FORBIDDEN: ModelAccessError(
        "'some/model' is gated", "accept its terms on its page, then send X-HF-Token", "model"
    ),
    HTTPStatus.NOT_FOUND: ModelNotFoundError(
        "there is no model 'openai/gtp2' on the Hub, or it is private",
        "did you mean openai-community/gpt2?",
        "model",
    ),
    HTTPStatus.CONFLICT: NothingFitsError(
        "nothing fits: the smallest layout needs 40 GiB of 15 GiB", "take more GPUs", "cluster"
    ),
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidRequestError(
        (
            CoreProblem(
                field="cluster.gpus_per_node",
                message="cluster.gpus_per_node: must be at least 1, not 0",
                hint="",
            ),
            CoreProblem(field="modle", message="unknown field 'modle'", hint="did you mean model?"),
        )
    ),
    HTTPStatus.TOO_MANY_REQUESTS: TooBusyError("too many plans are being made", "try again"),
    HTTPStatus.BAD_GATEWAY: HubUnreachableError(
        "'some/model' does not ship with the planner, and the Hub did not answer",
        "try again, or send its config.json",
        "model",
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: LostProcessError(
        "the processes that planned were ended, one after another", "try again in some seconds"
    ),
    HTTPStatus.GATEWAY_TIMEOUT: TookTooLongError("no answer within 20 s", "ask for fewer GPUs"),
}
"""For the description: one of each status."""

_HAS_JOBS = "/v1/suggest"
"""What jobs take, too."""
_AS_A_JOB = "; as a job (POST /v1/jobs) it may take minutes"

_CLIENT_LEFT = 499
"""No status of HTTP: what logs call a client that left."""


class ErrorItem(BaseModel):
    """One thing that is wrong."""

    field: str
    message: str
    hint: str


class Problem(BaseModel):
    """What went wrong, as RFC 9457 has it, with what to do about it."""

    type: str
    """Names the kind of error; stable, for programs."""
    title: str
    status: int
    detail: str
    instance: str
    """The path that was asked for."""
    hint: str = ""
    field: str = ""
    """The field of the request that is to blame, if one is."""
    errors: list[ErrorItem] = []
    """Every problem of the request."""


class Answer(JSONResponse):
    """JSON in ASCII."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)


class ProblemAnswer(Answer):
    """A failure."""

    media_type = "application/problem+json"


ErrorPage = Callable[[Request, PlannerError, str], str | None]
"""The page that shows an error under a title, or None for a request that wants no page."""


def no_page(_request: Request, _error: PlannerError, _title: str) -> None:
    """Show nothing: every failure is JSON."""


def install(app: FastAPI, error_page: ErrorPage) -> None:
    """Make the app answer every failure with a problem, or with the page for it."""
    for kind in (PlannerError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, partial(_answer_failure, error_page))
    app.add_exception_handler(ClientDisconnect, _answer_nobody)


def _answer_failure(error_page: ErrorPage, request: Request, error: Exception) -> Response:
    """Return the answer to a failed request; an unexpected error says nothing of itself."""
    problem = _problem(request, error)
    headers = {**SECURITY_HEADERS, **UNKEPT, **(getattr(error, "headers", None) or {})}
    shown = error if isinstance(error, PlannerError) else PlannerError(problem.detail)
    page = error_page(request, shown, problem.title)
    if page is not None:
        return HTMLResponse(page, problem.status, headers)
    return ProblemAnswer({**problem.model_dump(), **_more(error)}, problem.status, headers)


def _more(error: Exception) -> dict[str, Any]:
    """Return what an error found all the same: the best so far, or what there is where nothing fits."""
    if isinstance(error, TookTooLongError) and error.best:
        return {"best_so_far": error.best}
    if isinstance(error, NothingFitsError) and error.ways_out:
        return {"ways_out": [asdict(each) for each in error.ways_out]}
    return {}


def _answer_nobody(_request: Request, _error: Exception) -> Response:
    """Return what the client, who has left, will not read; the log has the status."""
    return Response(status_code=_CLIENT_LEFT)


def _problem(request: Request, error: Exception) -> Problem:
    path = request.url.path
    if isinstance(error, PlannerError):
        problem = _planner_problem(path, _status(request, error), error)
        return _of_path(problem, *request.path_params) if error.field else problem
    if isinstance(error, RequestValidationError):
        return _planner_problem(path, HTTPStatus.UNPROCESSABLE_ENTITY, _invalid(error))
    problem = _failure(path, error)
    if problem.detail != problem.title:
        return problem
    said = f"{request.method} {path}: {problem.title.lower()}"
    return problem.model_copy(update={"detail": said})


def described_failure(path: str, error: Exception) -> dict[str, Any]:
    """Return the problem of what failed when no request waited for it."""
    return {**_failure(path, error).model_dump(), **_more(error)}


def _failure(path: str, error: Exception) -> Problem:
    if isinstance(error, PlannerError):
        return _planner_problem(path, _status_of(error), error)
    if isinstance(error, HTTPException):
        return plain_problem(path, error.status_code, str(error.detail))
    reason = "this is a fault of the planner; its log says more"
    return plain_problem(path, HTTPStatus.INTERNAL_SERVER_ERROR, reason)


def _of_path(problem: Problem, *names: str) -> Problem:
    """Return a problem with what a path names, where that has a name: there is no body then."""
    for field in names:
        items = [each.model_copy(update={"field": field}) for each in problem.errors]
        return problem.model_copy(update={"field": field, "errors": items})
    return problem


def _invalid(error: RequestValidationError) -> PlannerError:
    """Return what is wrong with parameters and headers; what they hold may be secret."""
    return InvalidRequestError(
        tuple(
            CoreProblem(field=str(detail["loc"][-1]), message=detail["msg"], hint="")
            for detail in error.errors()[:MOST_PROBLEMS]
        )
    )


def example_problem(status: int) -> dict[str, Any]:
    """Return a problem as a status has it."""
    error = _EXAMPLES.get(status)
    if error is None:
        return plain_problem(
            "/v1/suggest", status, f"such as {HTTPStatus(status).phrase.lower()}"
        ).model_dump()
    return _planner_problem("/v1/suggest", status, error).model_dump()


def _planner_problem(path: str, status: int, error: PlannerError) -> Problem:
    is_late = isinstance(error, TookTooLongError) and path == _HAS_JOBS
    return Problem(
        type=urn_of(error),
        title=" ".join(words_of(error)).capitalize(),
        status=status,
        detail=by_field(error.message),
        instance=path,
        hint=by_field(error.hint) + (_AS_A_JOB if is_late else ""),
        field=error.field,
        errors=[ErrorItem(**described_by_field(asdict(each))) for each in problems_of(error)],
    )


def plain_problem(path: str, status: int, detail: str, hint: str = "") -> Problem:
    """Return what has no type of its own, but that of its status."""
    title = HTTPStatus(status).phrase
    return Problem(
        type="about:blank", title=title, status=status, detail=detail, instance=path, hint=hint
    )


def _status(request: Request, error: PlannerError) -> HTTPStatus:
    if isinstance(error, UnknownNameError) and request.path_params:
        return HTTPStatus.NOT_FOUND
    return _status_of(error)


def _status_of(error: PlannerError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
