"""The app: REST under /v1, probes, and the pages where there are any.

`planner serve` runs it.
"""

import gc
import os
from asyncio import CancelledError, Task, current_task, wait
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import body, description, jobs, logs
from api.access import FOR_ALL, Access, admitted
from api.headers import SECURITY_HEADERS, UNKEPT, KnownAnswers, SecurityHeaders, Tagged, Unread
from api.lanes import is_small
from api.later import Later
from api.metrics import Metrics
from api.problems import ProblemAnswer, install, no_page, plain_problem
from api.settings import Settings, read_settings
from api.work import Work

HAS_PAGES = find_spec("web") is not None
"""REST serves without them."""
_WARM = [jobs.warm]
"""What a process reads before it is asked."""
if HAS_PAGES:
    from web import jobs as drawing
    from web import routes as pages

    _WARM.append(drawing.warm)


_LAST_ANSWERS_SECONDS = 4.0
"""For those who wait to be told that the service ends: a search stops within three."""


class TrustedHosts:
    """Passes on what names a host that is trusted, as Starlette judges it."""

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self.app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        is_trusted = False
        answer: list[Message] = []

        async def note(*_: object) -> None:
            nonlocal is_trusted
            is_trusted = True

        async def keep(message: Message) -> None:
            answer.append(message)

        await TrustedHostMiddleware(note, self._trusted)(scope, receive, keep)
        if is_trusted:
            await self.app(scope, receive, send)
        elif answer[0]["status"] == HTTPStatus.BAD_REQUEST:
            await _refusal(scope["path"])(scope, receive, send)
        else:  # it leads to www.
            for message in answer:
                await send(message)


class Ended:
    """Answers 503 where the server ends before a request is answered: uvicorn would say 500, with a traceback."""

    def __init__(self, app: ASGIApp, open_requests: set[Task[Any] | None]) -> None:
        self.app = app
        self._open_requests = open_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, which is open until it is answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = current_task()
        self._open_requests.add(request)
        try:
            await self._answered(scope, receive, send)
        finally:
            self._open_requests.remove(request)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except CancelledError:
            if is_begun:
                raise
            said = "the service ends, or begins anew: ask again in some seconds"
            problem = plain_problem(scope["path"], HTTPStatus.SERVICE_UNAVAILABLE, said)
            headers = {**SECURITY_HEADERS, **UNKEPT, "Retry-After": "5", "Connection": "close"}
            answer = ProblemAnswer(problem.model_dump(), problem.status, headers)
            await answer(scope, receive, send)


def _refusal(path: str) -> ProblemAnswer:
    problem = plain_problem(
        path,
        HTTPStatus.BAD_REQUEST,
        "this service does not answer to the host that the request names",
        hint="whoever runs it can add the host to PLANNER_TRUSTED_HOSTS",
    )
    return ProblemAnswer(problem.model_dump(), problem.status, {**SECURITY_HEADERS, **UNKEPT})


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    work = app.state.work
    logs.configure(work.settings.logs)
    work.know(description.described, description.kept())
    async with work.started(*_WARM, ahead=description.described):
        is_small(b'{"model": "gpt2"}')  # what it reads at first holds the loop for a second
        gc.freeze()  # what is loaded stays: looking through it holds the loop for a tenth of a second
        yield
        if app.state.open_requests:
            await wait(app.state.open_requests, timeout=_LAST_ANSWERS_SECONDS)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the app. Its description and /docs are routes of ours: FastAPI's hold the loop, and load scripts."""
    settings = settings or read_settings()
    app = FastAPI(
        openapi_url=None,
        dependencies=[Depends(admitted)],
        lifespan=_lifespan,
        telemetry={
            "auto_configure": "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ,
            "exclude": lambda scope: scope["path"] in FOR_ALL,
            "logs": False,  # with what was sent in them
        },
    )
    app.state.work = Work(settings)
    app.state.later = Later(app.state.work)
    app.state.access = Access(settings, app.state.work.far)
    app.state.metrics, app.state.read_within = Metrics(), body.read_within
    app.state.described = partial(app.state.work.once, description.described)
    for part in (*description.PARTS, description):
        app.include_router(part.router)
    if HAS_PAGES:
        pages.mount(app)
    app.add_middleware(Tagged)
    app.add_middleware(KnownAnswers)
    app.add_middleware(GZipMiddleware)
    if settings.origins:
        headers = ("Authorization", "Content-Type", "X-API-Key", "X-HF-Token")
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=headers,
            expose_headers=("ETag", "Location", "Retry-After", "X-Request-ID"),
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(TrustedHosts, trusted=settings.trusted_hosts)
    app.add_middleware(Unread)
    app.state.open_requests = set()
    app.add_middleware(Ended, open_requests=app.state.open_requests)
    app.add_middleware(logs.Logged, metrics=app.state.metrics)
    install(app, pages.error_page if HAS_PAGES else no_page)
    return app


app = create_app()
