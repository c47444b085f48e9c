"""What a log says of its framework, its sharding, its method and its model's sizes, beside a layout of another."""

from collections.abc import Mapping
from typing import Any

from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.reading import Reading
from planner.catalog.framework_names import framework_called
from planner.core.errors import InvalidInputError, PlannerError
from planner.domain.job import Job
from planner.domain.model import Model
from planner.domain.strategy import ZERO_2
from planner.parallel.adapters import trainable
from planner.request.family import family_fields
from planner.request.model import load_model
from planner.request.schema import parse_request, resolve

_RUN_UNDER = {"deepspeed": ("accelerate",), "megatron": ("deepspeed",)}
"""Other frameworks whose plans may be run by one: Accelerate starts DeepSpeed, Megatron-DeepSpeed is both."""
_APART = 0.1
"""By which trained parameters may differ: heads that are trained beside adapters."""
_PARAMETERS_APART = 0.02
"""Of all parameters."""
_OF_CONFIG = ("intermediate_size", "ffn_dim", "n_inner")


def contradiction(reading: Reading, said: str, given: str, hint: str = "") -> InvalidInputError:
    """Return the refusal of a layout that is not the log's."""
    return InvalidInputError(
        f"{shown(reading.file)} ({reading.kind}) says {shown(said)}, and the layout {shown(given)}",
        hint=hint or "give the layout of the run that wrote the log",
        field="--layout",
    )


def is_said(path: str, said: Mapping[str, Any], given: Any) -> bool:
    """Return whether a layout has of a field what the log says; DeepSpeed has no bf16 without a copy in fp32."""
    if path == "recipe.framework":
        called = framework_called(str(given))
        name = called.framework if called else given
        return name == said[path] or name in _RUN_UNDER.get(said[path], ())
    if path == "recipe.precision" and said.get("recipe.framework") == "deepspeed":
        return bool(str(given).removesuffix("-mixed") == str(said[path]).removesuffix("-mixed"))
    return bool(given == said[path])


def check_stage(strategy: Mapping[str, Any], reading: Reading) -> None:
    """Refuse a ZeRO stage of the log that the layout, or its family of strategies, does not have."""
    if reading.log is None:
        return
    said = reading.log.said.get("strategy.zero_stage")
    supposed = reading.log.supposed.get("strategy.zero_stage", 0)
    family = str(strategy.get("family") or "")
    given = strategy.get("zero_stage")
    if family.startswith(("zero", "ddp", "fsdp")):
        pinned = family_fields(family).get("zero_stage")
        if said is not None and pinned not in {None, said}:
            raise contradiction(reading, f"zero_stage {said}", family)
        given = pinned if given is None else given
    if supposed >= ZERO_2 and isinstance(given, int) and given < ZERO_2:
        shards = reading.log.said.get("strategy.data_parallel_shard_size")
        raise contradiction(
            reading, f"FSDP (data_parallel_shard_size {shards})", family or f"zero_stage {given}"
        )


def check_method(request: Mapping[str, Any], reading: Reading, ranks: int) -> None:
    """Refuse a layout that trains another part of the model than the log says.

    Leaves out: models that are not decoders alone. FSDP's first version counts what one rank holds.
    """
    said = reading.log.model_sizes.get("trained") if reading.log else None
    job = None if said is None else _job(request)
    if said is None or job is None or not job.model.is_decoder:
        return
    trained, _ = trainable(job)
    if any(abs(said * held / trained - 1) <= _APART for held in (1, ranks)):
        return
    method = (request.get("recipe") or {}).get("method") or "full"
    all_of_it = job.model.parameters
    is_full = any(abs(said * held / all_of_it - 1) <= _APART for held in (1, ranks))
    of = "full fine-tuning" if is_full else "adapters (lora or qlora) or frozen layers"
    raise contradiction(
        reading,
        f"{said:,} trainable parameters: {of}",
        f"{method} with {trained:,}",
        hint="--method full, or lora or qlora with its --lora-rank and --lora-targets, as the run was",
    )


def _job(request: Mapping[str, Any]) -> Job | None:
    try:
        return resolve(parse_request(request), allow_paths=True, of_a_run=True).job
    except PlannerError:
        return None


def other_model(said: Mapping[str, int], wanted: Any) -> tuple[str, str] | None:
    """Return what a log says of a size, and what the layout's model has, where these differ.

    Leaves out: vocabularies, which are padded, and which count in the parameters up to twice or not at all;
    models that are not decoders alone.

    Args:
        said: num_layers, hidden_size, ffn_hidden_size, parameters; as many as the log says.
        wanted: the layout's model, as a request has it.
    """
    try:
        model, _ = load_model(wanted, allow_paths=True)
    except PlannerError:
        return None
    if not model.is_decoder:
        return None
    for name, size in _sizes(model).items():
        if said.get(name, size) != size:
            return f"{name} {said[name]}", f"{model.name} with {size}"
    parameters, table = said.get("parameters"), model.vocab_size * model.hidden_size
    least, most = model.parameters - 2 * table, model.parameters + table
    if parameters is None or least * (1 - _PARAMETERS_APART) <= parameters <= most * (
        1 + _PARAMETERS_APART
    ):
        return None
    return f"{parameters:,} parameters", f"{model.name} with {model.parameters:,}"


def _sizes(model: Model) -> dict[str, int]:
    """Return the sizes that Megatron's arguments name too; with experts its width is of another layer."""
    sizes = {"num_layers": model.num_blocks, "hidden_size": model.hidden_size}
    widths = (model.config.get(name) for name in _OF_CONFIG)
    width = next((each for each in widths if isinstance(each, int)), None)
    return sizes if width is None or model.has_experts else {**sizes, "ffn_hidden_size": width}
