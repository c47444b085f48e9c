"""Routes for whoever runs the service: is it there, is it ready, which release is it."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from api.problems import Answer
from api.schema import answered
from planner import __version__, answers
from planner.catalog import records

router = APIRouter(default_response_class=Answer)


class Health(BaseModel):
    """The process answers."""

    status: str


class Readiness(Health):
    """The catalogue can be read, with so many records."""

    gpus: int
    models: int


class Version(BaseModel):
    """The release, and the schema of its answers."""

    version: str
    schema_version: str


@router.get("/healthz", responses=answered((), Health))
async def healthz() -> Answer:
    """Say that the process answers."""  # on the event loop: others may have taken all threads
    return Answer({"status": "ok"})


@router.get("/readyz", responses=answered((503,), Readiness))
def readyz() -> Answer:
    """Say whether the catalogue can be read."""
    try:
        counts = {"gpus": len(records.gpu_names()), "models": len(records.model_ids())}
    except OSError as error:
        raise HTTPException(
            HTTPStatus.SERVICE_UNAVAILABLE, "the catalogue cannot be read"
        ) from error
    return Answer({"status": "ok", **counts})


@router.get("/version", responses=answered((), Version))
def get_version() -> Answer:
    """Say which version answers, and by which schema."""
    return Answer({"version": __version__, "schema_version": answers.SCHEMA_VERSION})


@router.get("/metrics", include_in_schema=False)
def metrics(http: Request) -> Response:
    """Return what Prometheus asks for."""
    text = http.app.state.metrics.text(http.app.state.work.waiting)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
