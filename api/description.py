"""The OpenAPI description: what the routes say, the contract's schemas, and examples of what is answered.

It takes seconds, so a process makes it, once for each release: it is kept where Hub's models are, or in the image.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from api import catalog, later, operations, planning, questions
from api.access import FOR_ALL, SCHEMES
from api.batch_route import BatchRequest
from api.body import CheckRequest, TopologyRequest
from api.cache import packed, release, unpacked
from api.doctor import LogRequest, ScriptsRequest, TimingsRequest
from api.examples import add_examples
from api.jobs import Reply, reply_of
from api.machines import MachineRequest
from api.problems import Problem
from api.schema import NAMED_ALONE
from api.words import add_words
from planner import __version__
from planner.models.hub_cache import cache_root, replacing
from planner.request import schema
from planner.request.raced import RaceRequest

router = APIRouter(include_in_schema=False)

PARTS = (planning, later, catalog, questions, operations)
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
_IN_A_PATH = {
    "name": "As its list has it, in any case, or another name that is known for it.",
    "code": "Such as ONE002.",
    "source": "As GET /v1/accuracy lists it.",
    "id": "As POST /v1/jobs answered it.",
}
"""What stands in a path, by its name."""
_FILE = "openapi.kept"
_IN_AN_IMAGE = Path(sys.prefix, "share", "planner")
"""Where PLANNER_CACHE_DIR is while it is built."""
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
    """Return the description of every route, in bytes, and keep it: a disk that is full or read-only is no error."""
    made, folder = reply_of(description()), cache_root()
    if folder is not None:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(folder / _FILE) as file:
                file.write_bytes(release().encode() + packed(made))
    return made


def kept() -> Reply | None:
    """Return the description that the same release made before, if it did."""
    for folder in filter(None, (_IN_AN_IMAGE, cache_root())):
        with suppress(OSError):
            held = (folder / _FILE).read_bytes()
            if held.startswith(release().encode()):
                return unpacked(held.removeprefix(release().encode()))
    return None


def description() -> dict[str, Any]:
    """Describe every route."""
    app = FastAPI(
        title="planner",
        summary="Plans how to train a model on several GPUs.",
        version=__version__,
        servers=[{"url": "/"}],
        openapi_tags=[{"name": _tag(part), "description": _subject(part)} for part in PARTS],
        generate_unique_id_function=lambda route: route.name,
    )
    for part in PARTS:
        app.include_router(part.router, tags=[_tag(part)])
    said = app.openapi()
    schemas = said["components"]["schemas"]
    for model in (*_BODIES, Problem, *NAMED_ALONE):
        schemas |= {name: each for name, each in _schemas(model).items() if name not in schemas}
    said["components"]["securitySchemes"] = {
        name: scheme.model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, scheme in SCHEMES.items()
    }
    said["security"] = [{}, *({name: []} for name in SCHEMES)]  # none where the service has no keys
    for path in FOR_ALL & said["paths"].keys():
        probe = said["paths"][path]["get"]
        probe["security"] = []
        for status in ("401", "429"):
            probe["responses"].pop(status, None)
    add_words(schemas)
    for operation in (each for methods in said["paths"].values() for each in methods.values()):
        for part in operation.get("parameters", ()):
            part.setdefault("description", _IN_A_PATH.get(part["name"], ""))
    add_examples(said["paths"])
    return said


def _tag(part: ModuleType) -> str:
    return part.__name__.rpartition(".")[2]


def _subject(part: ModuleType) -> str:
    """Return what the docstring of a part says that its routes do."""
    said = (part.__doc__ or "").strip().removeprefix("Routes that ").removeprefix("Routes for ")
    return said[:1].upper() + said[1:]


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}
