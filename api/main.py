"""The app: REST under /v1, probes, and the pages where there are any.

Run it with `uvicorn api.main:app`.
"""

from dataclasses import asdict
from http import HTTPStatus
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.exceptions import HTTPException

from api.body import TopologyRequest, read_request, read_topology_request
from api.headers import SecurityHeaders
from api.problems import Answer, install, no_page
from api.schema import PROBLEMS, App, estimate_body, suggest_body, topology_body
from planner import answers
from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.hardware.topology import parse_topology
from planner.report import glossary
from planner.request.schema import Request, load_model

HAS_PAGES = find_spec("web") is not None
"""REST serves without them."""
if HAS_PAGES:
    from web import routes as pages

router = APIRouter(default_response_class=Answer, responses=PROBLEMS)

Asked = Annotated[Request, Depends(read_request)]


@router.post("/v1/suggest", openapi_extra=suggest_body())
def suggest(asked: Asked) -> Answer:
    """Recommend a strategy, with its estimates, the rules that fired and the alternatives."""
    resolved, plan = answers.suggest(asked, allow_paths=False)
    return Answer(answers.answer_suggestion(asked, resolved, plan))


@router.post("/v1/estimate", openapi_extra=estimate_body())
def estimate(asked: Asked) -> Answer:
    """Estimate the memory and step time of one strategy."""
    return Answer(answers.answer_estimate(asked, allow_paths=False))


@router.post("/v1/topology", openapi_extra=topology_body())
def topology(asked: Annotated[TopologyRequest, Depends(read_topology_request)]) -> Answer:
    """Read how the GPUs of one node are connected from what nvidia-smi printed."""
    try:
        parsed = parse_topology(asked.text)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, error.hint, field="text") from None
    return Answer(parsed.to_wire())


@router.get("/v1/models")
def models() -> Answer:
    """List the models that need no network."""
    return Answer({"models": records.model_ids()})


@router.get("/v1/models/{name:path}")
def model(name: str) -> Answer:
    """Describe a model: its parameters and parts."""
    described, notes = load_model(name, allow_paths=False)
    return Answer({**answers.answer_model(described), "notes": notes})


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


def create_app() -> App:
    """Return the app. Its /docs is a page of ours, as FastAPI's loads scripts from elsewhere."""
    app = App(
        title="planner",
        summary="Plans how to train a model on several GPUs.",
        version=version("planner"),
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(router)
    if HAS_PAGES:
        pages.mount(app)
    app.add_middleware(SecurityHeaders)
    install(app, pages.error_page if HAS_PAGES else no_page)
    return app


app = create_app()
