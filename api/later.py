"""Plans that take longer than anybody waits: asked for by one request, fetched under an id by others.

With Redis any replica knows them; one that ends says so, and of one that was killed they are gone in half a minute.
"""

from asyncio import Task, create_task
from http import HTTPStatus
from typing import Literal
from uuid import uuid4

from anyio import CancelScope, CapacityLimiter, create_task_group, sleep, to_thread
from cachetools import TTLCache
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from api import jobs
from api.body import read_request
from api.cache import weight
from api.models import answer_model
from api.planning import Body
from api.problems import Problem, described_failure
from api.process import Outcome
from api.schema import BATCH, answered, described_body
from api.work import LostProcessError, TooBusyError, Work
from planner.answers import shapes
from planner.core.errors import UnknownNameError

router = APIRouter()

_PATH = "/v1/jobs"
_KEPT_SECONDS = 3600
"""An answer, after it was made."""
_ALIVE_SECONDS, _LOOK_SECONDS = 30, 1.0
"""A job without a sign of life from its replica; how often one gives it, and looks whether it is still wanted."""
_MOST_KEPT = 256
_LEFT = b""
"""In place of a job that nobody wants any more."""


class Job(BaseModel):
    """A plan that is being made, or was."""

    id: str
    """To ask for it with."""
    state: Literal["going", "done", "failed"]
    """Whether there is an answer yet, or a problem."""
    answer: answer_model(shapes.SuggestionAnswer) | None = None  # type: ignore[valid-type]
    """What POST /v1/suggest would have said, once it is done."""
    problem: Problem | None = None
    """What was wrong, where it failed."""


class Later:
    """The jobs of one server."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._near: TTLCache[str, bytes] = TTLCache(_MOST_KEPT, _KEPT_SECONDS, getsizeof=weight)
        self._going: set[Task[None]] = set()
        self._reading = CapacityLimiter(1)

    async def begin(self, body: bytes) -> tuple[str, bytes]:
        """Begin to plan; return the job's name, and what is known of it.

        Raises:
            MalformedError: the body is not JSON.
            InvalidRequestError: it is JSON, but not of the contract.
            TooBusyError: as many go on as may.
        """
        # Here, as every process may be planning for minutes: a body of 1 MiB takes a tenth of a second.
        await to_thread.run_sync(read_request, body, limiter=self._reading)
        if len(self._going) >= self._work.settings.jobs:
            raise TooBusyError("as many jobs go on as may", hint="wait for one of them")
        name = uuid4().hex
        going = _told(name, "going")
        await self._put(name, going, _ALIVE_SECONDS)
        task = create_task(self._run(name, body))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        return name, going

    async def find(self, name: str) -> bytes:
        """Return what is known of a job.

        Raises:
            UnknownNameError: nothing.
        """
        known = await self._far(name)
        known = self._near.get(name, _LEFT) if known is None else known
        if known == _LEFT:
            hint = f"it may be over an hour old, or its server was ended: POST {_PATH} again"
            raise UnknownNameError(f"there is no job {name[:80]!r}", hint=hint, field="id")
        return known

    async def leave(self, name: str) -> None:
        """End a job, wherever it goes on, and forget its answer."""
        await self.find(name)
        await self._put(name, _LEFT, _KEPT_SECONDS)

    async def _run(self, name: str, body: bytes) -> None:
        seconds = self._work.settings.job_seconds
        ended = LostProcessError("the service ended before it was done", hint="ask again")
        told = _told_of(name, Outcome(error=ended))
        try:
            async with create_task_group() as group:
                group.start_soon(self._until_left, name, group.cancel_scope)
                outcome = await self._work.outcome(
                    jobs.suggestion, body, may_wait=True, seconds=seconds
                )
                told = _told_of(name, outcome)
                group.cancel_scope.cancel()
        finally:
            with CancelScope(shield=True):
                if self._near.get(name) != _LEFT:
                    await self._put(name, told, _KEPT_SECONDS)

    async def _until_left(self, name: str, scope: CancelScope) -> None:
        while self._near.get(name) != _LEFT:
            await sleep(_LOOK_SECONDS)
            if await self._far(name) == _LEFT:
                self._near[name] = _LEFT
            else:
                await self._put(name, self._near.get(name, _told(name, "going")), _ALIVE_SECONDS)
        scope.cancel()

    async def _far(self, name: str) -> bytes | None:
        found = await self._work.far.ask(lambda redis: redis.get(f"planner:job:{name}"))
        return found if isinstance(found, bytes) else None

    async def _put(self, name: str, told: bytes, seconds: int) -> None:
        self._near[name] = told
        await self._work.far.ask(lambda redis: redis.set(f"planner:job:{name}", told, ex=seconds))


@router.post(
    _PATH,
    status_code=HTTPStatus.ACCEPTED,
    openapi_extra=described_body("suggest"),
    responses=answered(BATCH, Job, HTTPStatus.ACCEPTED),
)
async def begin_job(http: Request, body: Body) -> Response:
    """Begin a plan that may take minutes; its address is in Location."""
    name, told = await http.app.state.later.begin(body)
    prefix = http.scope.get("root_path", "").rstrip("/")
    return _answer(told, HTTPStatus.ACCEPTED, {"Location": f"{prefix}{_PATH}/{name}"})


@router.get(_PATH + "/{id}", responses=answered((404, 422), Job))
async def job(http: Request, id: str) -> Response:  # noqa: A002 - a field of the answer, too
    """Say how a plan that was begun stands, with its answer once it is done."""
    return _answer(await http.app.state.later.find(id))


@router.delete(
    _PATH + "/{id}",
    status_code=HTTPStatus.NO_CONTENT,
    responses=answered((404, 422), None, HTTPStatus.NO_CONTENT),
)
async def leave_job(http: Request, id: str) -> Response:  # noqa: A002
    """End a plan that was begun, and forget its answer."""
    await http.app.state.later.leave(id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _answer(
    told: bytes, status: int = HTTPStatus.OK, more: dict[str, str] | None = None
) -> Response:
    headers = {"Cache-Control": "no-store", **(more or {})}
    if b'"state":"going"' in told[:80]:
        headers["Retry-After"] = "2"
    return Response(told, status, headers, "application/json")


def _told_of(name: str, outcome: Outcome) -> bytes:
    if outcome.error is None:
        return _told(name, "done", answer=outcome.result.body)
    problem = described_failure(f"{_PATH}/{name}", outcome.error)
    return _told(name, "failed", problem=jobs.to_json(problem))


def _told(name: str, state: str, *, answer: bytes = b"null", problem: bytes = b"null") -> bytes:
    head = jobs.to_json({"id": name, "state": state}).removesuffix(b"}")
    return head + b',"answer":' + answer + b',"problem":' + problem + b"}"
