"""The wire schema that serves every door, and its way to a Job.

Field names are the contract: one may be added, none renamed. Unknown fields are errors that name
the nearest known one.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypedDict

from pydantic import BaseModel, Field, ValidationError

from planner.core.errors import (
    InvalidInputError,
    InvalidRequestError,
    PlannerError,
    UnknownNameError,
    UnsupportedError,
)
from planner.core.errors import problems_of as problems_of_error
from planner.core.frozen import frozen
from planner.domain.job import TILED, Job
from planner.domain.model import Model
from planner.domain.target_length import with_target_length
from planner.parallel.lora import find_lora
from planner.request.assumed import (
    weights_assumption,
)
from planner.request.cluster import resolve_cluster
from planner.request.field_problems import problems_of
from planner.request.files import check_files
from planner.request.fp8 import usual_fp8_recipe
from planner.request.framework import (
    compiled,
    exchanging,
    framework_of_release,
    unwritten,
)
from planner.request.machine import (
    MachineUse,
    cluster_of_machine,
    machine_of,
    on_machine,
    own_gpu_of,
)
from planner.request.model import ModelRequest, load_model
from planner.request.pipeline_layout import dealt, refuse_layout
from planner.request.recipe import check_recipe, resolve_recipe, with_usual_loss
from planner.request.remarks import Assumption
from planner.request.sections import (
    ClusterRequest,
    FilesRequest,
    InterNodeLink,
    IntraNodeLink,
    LoraRequest,
    RecipeRequest,
    StrategyRequest,
)
from planner.request.strategy import divided_tokens
from planner.request.training_job import training_job
from planner.request.wire import Asked, WireModel, fields_of


class Request(WireModel):
    """One question to the planner."""

    within = ""

    id: str | int | None = None
    model: ModelRequest = Field(examples=["gpt2"])
    cluster: ClusterRequest = Field(default_factory=ClusterRequest)
    recipe: RecipeRequest = Field(default_factory=RecipeRequest)
    strategy: StrategyRequest | None = None
    objective: Literal["time", "memory", "gpus", "cost"] = "time"
    max_gpus: int | None = Field(default=None, ge=1, le=2**20)
    deadline_hours: float | None = Field(default=None, gt=0, le=10**6)
    why: StrategyRequest | None = None
    machine: dict[str, Any] | None = None
    files: FilesRequest = Field(default_factory=FilesRequest)


HOW_MANY = ("objective", "max_gpus", "deadline_hours")
"""Fields of a request that leave the number of GPUs open."""

_SECTIONS: Mapping[str, type[BaseModel]] = {
    "": Request,
    "cluster": ClusterRequest,
    "recipe": RecipeRequest,
    "lora": LoraRequest,
    "strategy": StrategyRequest,
    "why": StrategyRequest,
    "files": FilesRequest,
    "intra_node": IntraNodeLink,
    "inter_node": InterNodeLink,
}


@cache
def fields() -> Mapping[str, Asked]:
    """Return the fields of a request by their paths."""
    return {each.path: each for each in fields_of(Request)}


_NAMES = frozenset(
    {
        "cluster.gpu",
        "cluster.inter_node",
        "cluster.instance",
        "cluster.intra_node",
        "recipe.framework",
    }
)
"""Fields that name a record, and may be left out."""


@frozen
class Resolved:
    """A request with every name looked up and every gap filled."""

    job: Job
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...] = ()
    """What the user should know about the model's source and the cluster."""
    machine: MachineUse | None = None
    """What of it is measured on the user's own machine; None without one."""


def parse_request(payload: object) -> Request:
    """Return the request that a JSON value holds.

    Raises:
        InvalidRequestError: with every problem at once, each with its field and a hint.
    """
    try:
        return Request.model_validate(payload)
    except ValidationError as error:
        raise InvalidRequestError(problems_of(error, _SECTIONS)) from None


def resolve(
    request: Request, *, allow_paths: bool, weights_dtype: str = "fp32", of_a_run: bool = False
) -> Resolved:
    """Return the Job that a request describes, with what had to be assumed; every unknown name is told at once.

    Args:
        request: a parsed request.
        allow_paths: whether `model` may name a file of this machine.
        weights_dtype: of mixed precision's parameters where the recipe says nothing: "fp32", as the files that
            are written here train, or "config" for published runs.
        of_a_run: what is left open is as in runs of others, not as in those files: the release that a GPU and
            what is said mean, and the loss.

    Raises:
        PlannerError: a name is unknown, what is asked cannot be estimated, or the batch does not split.
    """
    settings: _Settings = {
        "allow_paths": allow_paths,
        "weights_dtype": weights_dtype,
        "of_a_run": of_a_run,
    }
    try:
        return _resolve(request, **settings)
    except (InvalidInputError, UnsupportedError) as error:
        raise _with_other_names(error, request, settings) from None


class _Settings(TypedDict):
    allow_paths: bool
    weights_dtype: str
    of_a_run: bool


def _with_other_names(error: PlannerError, request: Request, settings: _Settings) -> PlannerError:
    """Return an error, with the names of the request that would be unknown once its own is mended."""
    wrong = [error]
    asked = _without(request, error.field)
    while asked is not None:
        try:
            _resolve(asked, **settings)
        except (UnknownNameError, UnsupportedError) as other:
            asked = _without(asked, other.field)
            wrong += [other] if asked else []
        except PlannerError:
            break
        else:
            break
    if len(wrong) == 1:
        return error
    return InvalidRequestError(tuple(each for one in wrong for each in problems_of_error(one)))


def _without(request: Request, field: str) -> Request | None:
    """Return a request without a name that it gives; None where it gives none there."""
    section, _, name = field.partition(".")
    if field not in _NAMES or name not in getattr(request, section).model_fields_set:
        return None
    given = getattr(request, section).model_dump(exclude_unset=True, exclude={name})
    return request.model_copy(update={section: type(getattr(request, section))(**given)})


def _resolve(
    request: Request, *, allow_paths: bool, weights_dtype: str, of_a_run: bool
) -> Resolved:
    check_files(request.files)
    wanted = request.recipe
    model, notes = load_model(request.model, allow_paths=allow_paths, task=wanted.task)
    meant = training_job(wanted, request.strategy, model)
    if meant.task:
        model, notes = load_model(request.model, allow_paths=allow_paths, task=meant.task)
    model, wanted = meant.of(model), wanted.model_copy(update={"job": meant.name})
    machine = machine_of(request.machine)
    wanted_cluster = cluster_of_machine(request.cluster, machine)
    resolved_cluster = resolve_cluster(wanted_cluster, own_gpu_of(machine), request.max_gpus)
    cluster = resolved_cluster.cluster
    assumptions = [*resolved_cluster.assumptions, *meant.assumptions]
    _check_layers(request.strategy, model)
    framework = exchanging(
        framework_of_release(
            wanted.framework,
            wanted.framework_version,
            assumptions,
            cluster.gpu,
            _said_of_run(request) if of_a_run else None,
        ),
        reduce_dtype=wanted.gradient_reduce_dtype,
        data_overlap=wanted.data_parallel_overlap,
    )
    pipeline_layout = dealt(request.strategy, framework, model)
    refuse_layout(request.why)
    framework = compiled(framework) if wanted.compile else framework
    placed = on_machine(machine, cluster, framework)
    cluster, framework = placed.cluster, placed.framework
    assumptions = [each for each in assumptions if each.field not in placed.settled]
    assumptions += placed.assumptions
    recipe, gaps = resolve_recipe(wanted, request.strategy, model, cluster, framework)
    assumptions += gaps
    if of_a_run:
        assumptions += divided_tokens(request.strategy, framework, model)
    if of_a_run and "loss" not in wanted.model_fields_set and recipe.job not in TILED:
        recipe, taken = with_usual_loss(recipe, request.strategy, model, framework)
        assumptions += taken
    check_recipe(recipe, model, framework, cluster.gpu)
    assumptions += usual_fp8_recipe(recipe.fp8_recipe, recipe.precision, framework)
    adapters = wanted.lora.wish() if wanted.lora else None
    lora, assumed = find_lora(wanted.method, adapters, recipe.precision, model, framework.experts)
    assumptions += [Assumption(text=text, field=field) for text, field in assumed]
    weights_dtype = wanted.weights_dtype or weights_dtype
    recipe = replace(recipe, weights_dtype=weights_dtype, lora=lora)
    if recipe.target_length is not None:
        model = with_target_length(model, recipe.sequence_length, recipe.target_length)
    job = Job(
        model=model,
        cluster=cluster,
        recipe=recipe,
        framework=framework,
        pipeline_layout=pipeline_layout,
    )
    if wanted.weights_dtype is None and lora is None:
        assumptions += weights_assumption(job)
    return Resolved(
        job=job,
        assumptions=tuple(assumptions),
        notes=(
            *notes,
            *resolved_cluster.notes,
            *placed.notes,
            *unwritten(wanted.model_dump(exclude_defaults=True)),
        ),
        machine=placed.use,
    )


def _said_of_run(request: Request) -> dict[str, object]:
    layout = request.strategy.model_dump() if request.strategy else {}
    recipe = request.recipe
    return {**layout, "attention": recipe.attention, "expert_dispatch": recipe.expert_dispatch}


def _check_layers(wanted: StrategyRequest | None, model: Model) -> None:
    """Refuse more layers of a stage than the model has in all."""
    for name in ("recompute_layers", "activation_offload_layers"):
        layers = getattr(wanted, name, None) or 0
        if layers > model.num_blocks:
            raise InvalidInputError(
                f"{name} is {layers:,}, of a model of {model.num_blocks} layers",
                hint=f"at most {model.num_blocks}, or those of a pipeline stage",
                field=f"strategy.{name}",
            )
