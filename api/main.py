"""The app: REST under /v1, probes, and the pages where there are any.

Run it with `uvicorn api.main:app --http api.connections:Connection`.
"""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec

from fastapi import Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware

from api import body, catalog, jobs, logs, operations, planning, questions
from api.access import Access, admitted
from api.description import App
from api.headers import KnownAnswers, SecurityHeaders, Unread
from api.hosts import TrustedHosts
from api.metrics import Metrics
from api.problems import install, no_page
from api.settings import Settings, read_settings
from api.work import Work

HAS_PAGES = find_spec("web") is not None
"""REST serves without them."""
if HAS_PAGES:
    from web import routes as pages


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    logs.configure(app.state.work.settings.logs)
    async with app.state.work.started(jobs.warm):
        gc.freeze()  # what is loaded stays: looking through it holds the loop for a tenth of a second
        yield


def create_app(settings: Settings | None = None) -> App:
    """Return the app. Its /docs is a page of ours, as FastAPI's loads scripts from elsewhere."""
    settings = settings or read_settings()
    app = App(
        title="planner",
        summary="Plans how to train a model on several GPUs.",
        version=version("planner"),
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(admitted)],
        lifespan=_lifespan,
    )
    app.state.work, app.state.access = Work(settings), Access(settings)
    app.state.metrics, app.state.read_within = Metrics(), body.read_within
    for part in (planning, catalog, questions, operations):
        app.include_router(part.router)
    if HAS_PAGES:
        pages.mount(app)
    app.add_middleware(KnownAnswers)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(TrustedHosts, trusted=settings.trusted_hosts)
    app.add_middleware(Unread)
    app.add_middleware(logs.Logged, metrics=app.state.metrics)
    install(app, pages.error_page if HAS_PAGES else no_page)
    return app


app = create_app()
