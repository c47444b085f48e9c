"""The OpenAPI description: what the routes say, the contract's schemas, and examples of what is answered.

It takes seconds, so a process makes it, once.
"""

import json
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from api import catalog, operations, planning, questions
from api.batch_route import BatchRequest
from api.body import CheckRequest, TopologyRequest
from api.doctor import LogRequest, ScriptsRequest, TimingsRequest
from api.examples import add_examples
from api.jobs import Reply, reply_of
from api.machines import MachineRequest
from api.problems import Problem
from api.race import RaceRequest
from api.schema import LateProblem, UnfittingProblem
from planner import __version__
from planner.request import schema

router = APIRouter(include_in_schema=False)

PARTS = (planning, catalog, questions, operations)
"""With routes that are described."""
_BODIES = (
    schema.Request,
    CheckRequest,
    TopologyRequest,
    TimingsRequest,
    ScriptsRequest,
    LogRequest,
    BatchRequest,
    MachineRequest,
    RaceRequest,
)
"""That routes read by themselves."""
_REFERENCE = "#/components/schemas/{model}"


@router.get("/openapi.json")
async def openapi(http: Request) -> Response:
    """Return the description, with the address that a proxy takes away."""
    reply: Reply = await http.app.state.described()
    headers, prefix = {"ETag": f'W/"{reply.tag}"'}, http.scope.get("root_path", "").rstrip("/")
    if not prefix:
        return Response(reply.body, media_type="application/json", headers=headers)
    told = reply_of({**json.loads(reply.body), "servers": [{"url": prefix}]})
    return Response(told.body, media_type="application/json", headers={"ETag": f'W/"{told.tag}"'})


def described() -> Reply:
    """Return the description of every route, in bytes."""
    return reply_of(description())


def description() -> dict[str, Any]:
    """Describe every route."""
    app = FastAPI(
        title="planner",
        summary="Plans how to train a model on several GPUs.",
        version=__version__,
        servers=[{"url": "/"}],
    )
    for part in PARTS:
        app.include_router(part.router)
    said = app.openapi()
    schemas = said.setdefault("components", {}).setdefault("schemas", {})
    for model in (*_BODIES, Problem):
        schemas |= _schemas(model)
    said["components"]["schemas"] = {
        **_schemas(UnfittingProblem),
        **_schemas(LateProblem),
        **schemas,
    }
    add_examples(said["paths"])
    return said


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}
