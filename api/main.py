"""The app: REST under /v1, probes, and the pages where there are any.

Run it with `uvicorn api.main:app`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from http import HTTPStatus
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from api import jobs
from api.body import read_body
from api.headers import KnownAnswers, SecurityHeaders
from api.problems import Answer, install, no_page
from api.schema import PROBLEMS, App, estimate_body, suggest_body, topology_body
from api.settings import Settings
from api.work import Work
from planner import answers
from planner.catalog import records
from planner.report import glossary

HAS_PAGES = find_spec("web") is not None
"""REST serves without them."""
if HAS_PAGES:
    from web import routes as pages

router = APIRouter(default_response_class=Answer, responses=PROBLEMS)

Body = Annotated[bytes, Depends(read_body)]


@router.post("/v1/suggest", openapi_extra=suggest_body())
async def suggest(http: Request, body: Body) -> Response:
    """Recommend a strategy, with its estimates, the rules that fired and the alternatives."""
    return await _answered(http, jobs.suggestion, body)


@router.post("/v1/estimate", openapi_extra=estimate_body())
async def estimate(http: Request, body: Body) -> Response:
    """Estimate the memory and step time of one strategy."""
    return await _answered(http, jobs.estimation, body)


@router.post("/v1/topology", openapi_extra=topology_body())
async def topology(http: Request, body: Body) -> Response:
    """Read how the GPUs of one node are connected from what nvidia-smi printed."""
    return await _answered(http, jobs.topology, body)


@router.get("/v1/models")
def models() -> Answer:
    """List the models that need no network."""
    return Answer({"models": records.model_ids()})


@router.get("/v1/models/{name:path}")
async def model(http: Request, name: str) -> Response:
    """Describe a model: its parameters and parts."""
    return await _answered(http, jobs.model, name)


@router.get("/v1/gpus")
def gpus() -> Answer:
    """List the known GPUs, in base units."""
    return Answer({"gpus": [asdict(records.gpu(name)) for name in records.gpu_names()]})


@router.get("/v1/gpus/{name}")
def gpu(name: str) -> Answer:
    """Describe a GPU, by its name, an alias, or the name NVML reports."""
    return Answer(asdict(records.gpu(name)))


@router.get("/v1/instances")
def instances() -> Answer:
    """List the known cloud instances, in base units; null is not known."""
    known = [records.instance(name) for name in records.instance_names()]
    return Answer({"instances": [answers.answer_instance(instance) for instance in known]})


@router.get("/v1/instances/{name}")
def instance(name: str) -> Answer:
    """Describe a cloud instance, by its name in any case."""
    return Answer(answers.answer_instance(records.instance(name)))


@router.get("/v1/rules")
def list_rules() -> Answer:
    """List the rules, and the findings about topologies and machines."""
    return Answer({"rules": [asdict(code) for code in glossary.codes()]})


@router.get("/v1/rules/{code}")
def rule(code: str) -> Answer:
    """Explain a rule, or a finding about a topology or a machine."""
    return Answer(asdict(glossary.find_code(code)))


@router.get("/v1/terms")
def terms() -> Answer:
    """List the terms and strategies, group by group."""
    return Answer({"terms": [asdict(entry) for entry in glossary.entries()]})


@router.get("/v1/terms/{name}")
def term(name: str) -> Answer:
    """Explain a term or strategy, by its name, title or a synonym."""
    return Answer(asdict(glossary.find_term(name)))


@router.get("/healthz")
def healthz() -> Answer:
    """Say that the process answers."""
    return Answer({"status": "ok"})


@router.get("/readyz")
def readyz() -> Answer:
    """Say whether the catalogue can be read."""
    try:
        counts = {"gpus": len(records.gpu_names()), "models": len(records.model_ids())}
    except OSError as error:
        raise HTTPException(
            HTTPStatus.SERVICE_UNAVAILABLE, "the catalogue cannot be read"
        ) from error
    return Answer({"status": "ok", **counts})


@router.get("/version")
def get_version() -> Answer:
    """Say which version answers, and by which schema."""
    return Answer({"version": version("planner"), "schema_version": answers.SCHEMA_VERSION})


async def _answered(http: Request, job: Callable[..., jobs.Reply], *arguments: Any) -> Response:
    """Return what a job answers; its tag is weak, as the search's seconds are not in it."""
    reply = await http.app.state.work.run(http, job, *arguments)
    return Response(reply.body, media_type="application/json", headers={"ETag": f'W/"{reply.tag}"'})


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with app.state.work.started(jobs.warm):
        yield


def create_app(settings: Settings | None = None) -> App:
    """Return the app. Its /docs is a page of ours, as FastAPI's loads scripts from elsewhere."""
    settings = settings or Settings()
    app = App(
        title="planner",
        summary="Plans how to train a model on several GPUs.",
        version=version("planner"),
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.work = Work(settings)
    app.include_router(router)
    if HAS_PAGES:
        pages.mount(app)
    app.add_middleware(KnownAnswers)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.trusted_hosts)
    install(app, pages.error_page if HAS_PAGES else no_page)
    return app


app = create_app()
