"""Routes that take a request: plans, estimates, memory, launch files, topologies; one or many."""

from asyncio import Task, create_task
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api import jobs
from api.body import read_body, read_lines
from api.models import answer_model
from api.schema import (
    BATCH,
    LOOKED_UP,
    PLANNED,
    READ,
    Bundle,
    EstimateLine,
    ModelWithNotes,
    SuggestionLine,
    TopologyAnswer,
    answered,
    batch_body,
    described_body,
    json_lines,
    zip_file,
)
from api.work import Work
from planner.accuracy.predict import Accuracy
from planner.answers import memory_shapes, shapes
from planner.core.errors import PlannerError
from planner.gate.verdict import VerdictsAnswer

router = APIRouter()

_LineJob = Callable[[bytes, str], bytes]
_Line = tuple[int, bytes]
"""Of a batch, with its number."""
Body = Annotated[bytes, Depends(read_body)]
Lines = Annotated[tuple[_Line, ...], Depends(read_lines)]
Token = Annotated[
    str,
    Header(
        alias="X-HF-Token",
        max_length=200,
        pattern="^[A-Za-z0-9_.-]*$",
        description="Opens its owner's models of the Hub for this request; it is kept nowhere.",
    ),
]


@router.post(
    "/v1/suggest",
    openapi_extra=described_body("suggest"),
    responses=answered(PLANNED, answer_model(shapes.SuggestionAnswer)),
)
async def suggest(http: Request, body: Body, token: Token = "") -> Response:
    """Recommend a strategy, with its estimates, the rules that fired and the alternatives."""
    return await answered_by(http, jobs.suggestion, body, token=token)


@router.post(
    "/v1/estimate",
    openapi_extra=described_body("estimate"),
    responses=answered(PLANNED, answer_model(shapes.EstimateAnswer)),
)
async def estimate(http: Request, body: Body, token: Token = "") -> Response:
    """Estimate the memory and step time of one strategy."""
    return await answered_by(http, jobs.estimation, body, token=token)


@router.post(
    "/v1/memory",
    openapi_extra=described_body("estimate"),
    responses=answered(PLANNED, answer_model(memory_shapes.MemoryOfLayoutAnswer)),
)
async def memory(http: Request, body: Body, token: Token = "") -> Response:
    """Show where the memory of one strategy goes, or of the suggested one, and what would fit."""
    return await answered_by(http, jobs.memory, body, token=token)


@router.post(
    "/v1/bundle", openapi_extra=described_body("suggest"), responses=answered(PLANNED, Bundle)
)
async def bundle(http: Request, body: Body, token: Token = "") -> Response:
    """Write the launch files of the recommended strategy, each as a text."""
    return await answered_by(http, jobs.bundle, body, token=token)


@router.post(
    "/v1/bundle.zip",
    openapi_extra=described_body("suggest"),
    responses=zip_file(PLANNED),
    response_class=Response,
)
async def zipped_bundle(http: Request, body: Body, token: Token = "") -> Response:
    """Write the launch files of the recommended strategy into a zip; the same request gives the same bytes."""
    answer = await answered_by(http, jobs.zipped_bundle, body, token=token)
    answer.headers["Content-Type"] = "application/zip"
    answer.headers["Content-Disposition"] = 'attachment; filename="plan.zip"'
    return answer


@router.post(
    "/v1/suggest/batch",
    openapi_extra=batch_body(),
    responses=json_lines(BATCH, SuggestionLine),
    response_class=Response,
)
async def suggest_many(http: Request, lines: Lines, token: Token = "") -> StreamingResponse:
    """Recommend a strategy for every line, in order; a line without an answer spoils no other."""
    return _answer_lines(http, jobs.suggested_line, lines, token=token)


@router.post(
    "/v1/estimate/batch",
    openapi_extra=batch_body(),
    responses=json_lines(BATCH, EstimateLine),
    response_class=Response,
)
async def estimate_many(http: Request, lines: Lines, token: Token = "") -> StreamingResponse:
    """Estimate the strategy of every line, in order; a line without an answer spoils no other."""
    return _answer_lines(http, jobs.estimated_line, lines, token=token)


@router.post(
    "/v1/check",
    openapi_extra=described_body("check"),
    responses=answered(PLANNED, answer_model(VerdictsAnswer)),
)
async def check(http: Request, body: Body, token: Token = "") -> Response:
    """Judge what another tool reads: a DeepSpeed or accelerate configuration, training arguments, a launch.

    All files are of one run: what they amount to, every contradiction with its code and line, what mends it.
    """
    return await answered_by(http, jobs.check, body, token=token)


@router.post(
    "/v1/topology",
    openapi_extra=described_body("topology"),
    responses=answered(READ, TopologyAnswer),
)
async def topology(http: Request, body: Body) -> Response:
    """Read how the GPUs of one node are connected from what nvidia-smi printed."""
    return await answered_by(http, jobs.topology, body)


@router.get("/v1/models/{name:path}", responses=answered(LOOKED_UP, ModelWithNotes))
async def model(http: Request, name: str, token: Token = "") -> Response:
    """Describe a model: its parameters and parts."""
    return await answered_by(http, jobs.model, name, token=token)


@router.get("/v1/accuracy/{source}", responses=answered(LOOKED_UP, answer_model(Accuracy)))
async def accuracy(http: Request, source: str) -> Response:
    """Predict the published runs of a source again, and say how far off that is."""
    return await answered_by(http, jobs.accuracy, source)


async def answered_by(
    http: Request, job: Callable[..., jobs.Reply], *arguments: Any, token: str = ""
) -> Response:
    """Return what a job answers; its tag is weak, as the search's seconds are not in it."""
    reply = await http.app.state.work.run(http, job, *arguments, token=token)
    headers = {"ETag": f'W/"{reply.tag}"'}
    return Response(reply.body, media_type="application/json", headers=headers)


def _answer_lines(
    http: Request, job: _LineJob, lines: Iterable[_Line], *, token: str
) -> StreamingResponse:
    """Return the stream of what a job answers to each line; it ends with its client."""
    stream = _stream(http.app.state.work, job, lines, token)
    return _Lines(stream, media_type="application/jsonl")


class _Lines(StreamingResponse):
    """Answers of a batch, which is a search of its client as long as it goes on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, or refuse them before the first."""
        with scope["app"].state.access.searching(Request(scope)):
            await super().__call__(scope, receive, send)


async def _stream(
    work: Work, job: _LineJob, lines: Iterable[_Line], token: str
) -> AsyncIterator[bytes]:
    """Yield the answers; as many are made ahead as there are processes."""
    ahead: deque[Task[bytes]] = deque()
    try:
        for line in lines:
            ahead.append(create_task(_answered(work, job, line, token)))
            if len(ahead) > work.settings.processes:
                yield await ahead.popleft()
        while ahead:
            yield await ahead.popleft()
    finally:
        for task in ahead:
            task.cancel()


async def _answered(work: Work, job: _LineJob, line: _Line, token: str) -> bytes:
    """Return a line's answer under its number: the answer is known by what the line says, wherever it stands."""
    number, said = line
    outcome = await work.outcome(job, said, token=token, may_wait=True)
    if outcome.error is None:
        return _numbered(number, outcome.result)
    error = outcome.error
    if not isinstance(error, PlannerError):
        error = PlannerError("this is a fault of the planner; its log says more")
    return _numbered(number, await to_thread.run_sync(jobs.refused_line, said, error))


def _numbered(number: int, answer: bytes) -> bytes:
    return b'{"line":%d,' % number + answer.removeprefix(b"{") + b"\n"
