"""What the OpenAPI description says beyond the routes: the contract's schema, and examples."""

import json
from http import HTTPStatus
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, create_model

from api.models import answer_model, list_model
from api.problems import Problem, example_problem
from planner.answers import shapes
from planner.calibrate.anchors import RunCheck
from planner.catalog.records import read
from planner.core.errors import WayOut
from planner.machine.document import Machine

_REFERENCE = "#/components/schemas/{model}"

Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""What FastAPI takes to describe a route's answers: by status."""

_JSON, _ZIP, _LINES = "application/json", "application/zip", "application/jsonl"

_BYTES = {"type": "string", "format": "binary"}

READ = (400, 408, 413, 415, 422, 429, 503, 504)
"""Problems of a route that reads a body and looks nothing up."""
LOOKED_UP = (403, 404, 422, 429, 502, 503, 504)
"""Of one that looks up what a name stands for."""
PLANNED = tuple(sorted({*READ, *LOOKED_UP, 409}))
"""Of one that plans for a model."""
ASKED = tuple(sorted({*READ, *LOOKED_UP}))
"""Of one that reads a body and may look up a model."""
BATCH = (400, 408, 413, 415, 422, 429)
"""Of one that answers a request a line: theirs are in their lines."""
NAMED = (404, 422)
"""Of one that has a record by its name."""
_PROBLEMS = {409: "UnfittingProblem", 504: "LateProblem"}
"""Of a status that says more than any other."""
EVERY = (401, 429, 500)
"""Of any route: a key is missing, too many requests, a fault of ours."""


def _best_so_far() -> Any:
    return answer_model(shapes.SuggestionAnswer) | answer_model(shapes.EstimateAnswer) | None


def _ways_out() -> Any:
    return list.__class_getitem__(answer_model(WayOut))


class Bundle(BaseModel):
    """The launch files of a plan: relative path to text."""

    files: dict[str, str]


class TopologyFinding(BaseModel):
    """What is odd about a topology."""

    code: str
    message: str


class TopologyAnswer(BaseModel):
    """How the GPUs of one node are connected; pairs are "low-high" indices."""

    model_config = ConfigDict(extra="forbid")

    gpus: int
    nics: list[str]
    nvlink: dict[str, int]
    """The number of links, absent where there is none."""
    pcie: dict[str, str]
    islands: list[list[int]]
    """Sets of GPUs that NVLink joins, each to each."""
    numa: dict[str, int]
    findings: list[TopologyFinding]


ModelWithNotes = create_model(
    "ModelWithNotes",
    __base__=answer_model(shapes.ModelAnswer),
    __doc__="A model: its parameters and parts, and what to know of its source.",
    notes=(list[str], ...),
)


BatchWithNotes = create_model(
    "BatchWithNotes",
    __base__=answer_model(shapes.BatchPlanAnswer),
    __doc__="How a global batch is made, what follows from it, and what to know of the model.",
    notes=(list[str], ...),
)


MachineDocument = create_model(
    "MachineDocument",
    __base__=answer_model(Machine),
    __doc__="What a machine was measured to do, as requests name it.",
    kind=(str, ...),
    version=(int, ...),
)
MachineAnswer = create_model(
    "MachineAnswer",
    __base__=list_model("Checks", "checks", RunCheck),
    __doc__="A machine by its runs, and how each of them is predicted.",
    machine=(MachineDocument, ...),
)


UnfittingProblem = create_model(
    "UnfittingProblem",
    __base__=Problem,
    __doc__="Nothing fits. Where changes were tried: the job as it was asked, then each of them with what it takes.",
    ways_out=(_ways_out(), []),
)
LateProblem = create_model(
    "LateProblem",
    __base__=Problem,
    __doc__="The time was over. Where some layouts were looked at, with the best of those: a plan where the number of"
    " GPUs was open and some were looked at, else the estimate of a layout. It is kept nowhere and has no tag, as it"
    " depends on how busy the service was.",
    best_so_far=(_best_so_far(), None),
)


def _line(name: str, answer: Any) -> type[BaseModel]:
    said = "A line of a batch's answer, under the number of the line that asked."
    return create_model(name, __base__=answer_model(answer), __doc__=said, line=(int, ...))


SuggestionLine = _line("SuggestionLine", shapes.SuggestionAnswer)
EstimateLine = _line("EstimateLine", shapes.EstimateAnswer)
RefusedLine = _line("RefusedLine", shapes.RefusedAnswer)
NAMED_ALONE = (UnfittingProblem, LateProblem, SuggestionLine, EstimateLine, RefusedLine)
"""That no route has as the model of its answer."""


def answered(
    statuses: tuple[int, ...], model: type[BaseModel] | None, status: int = HTTPStatus.OK
) -> Responses:
    """Return the description of answers in JSON: the model's, or problems."""
    return {int(status): {"model": model} if model else {}, **_problems(statuses)}


def zip_file(statuses: tuple[int, ...]) -> Responses:
    """Return the description of an answer that is a zip, or of problems."""
    content = {_ZIP: {"schema": _BYTES}}
    return {200: {"description": "The files", "content": content}, **_problems(statuses)}


def json_lines(statuses: tuple[int, ...], line: type[BaseModel]) -> Responses:
    """Return the description of answers a line, each of a model or a refusal, or of problems with all of it."""
    names = (line.__name__, RefusedLine.__name__)
    either = {"oneOf": [{"$ref": _REFERENCE.format(model=name)} for name in names]}
    content = {_LINES: {"schema": _BYTES, "x-item-schema": either}}
    said = "A line per request, in order: its answer, or {id, ok: false, error}, under the number of its line"
    return {200: {"description": said, "content": content}, **_problems(statuses)}


def _problems(statuses: tuple[int, ...]) -> Responses:
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": _REFERENCE.format(model=_PROBLEMS.get(status, "Problem"))},
                    "example": example_problem(status),
                }
            },
        }
        for status in sorted({*statuses, *EVERY})
    }


def described_body(name: str) -> dict[str, Any]:
    """Return what describes a body: its model, and the examples of `data/request/bodies.toml`."""
    said = read("request", "bodies")[name]
    content = {
        "schema": {"$ref": _REFERENCE.format(model=said["model"])},
        "examples": said["examples"],
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def batch_body() -> dict[str, Any]:
    """Return the description of a body with a request a line."""
    first = next(iter(read("request", "bodies")["suggest"]["examples"].values()))
    line = json.dumps({"id": 1, **first["value"]}) + "\n"
    content = {_LINES: {"schema": _BYTES, "example": line}}
    return {"requestBody": {"required": True, "content": content}}
