"""Specs of runs by their layout, for the tests that write files without a plan."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from made_clusters import cluster

from planner import generate
from planner.catalog import records
from planner.core.errors import PlannerError
from planner.domain.job import Job, Lora, Recipe
from planner.domain.model import Model, Part
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import CHOICES, FIELDS, Layout
from planner.generate import RunSpec
from planner.generate.run_spec import Adapters
from planner.models.architectures import read_model
from planner.request.sections import FilesRequest
from planner.targets import refusals


def with_layout(spec: RunSpec, **changes: Any) -> RunSpec:
    """Return the spec with fields replaced; what is not said of the data-parallel ranks follows.

    Replicas without ZeRO and shards with it, over the GPUs that split no model.
    """
    changed = replace(spec, **_as_held(changes))
    split = (
        changed.tensor_parallel_size
        * changed.pipeline_parallel_size
        * changed.context_parallel_size
    )
    size = changed.world_size // split
    if "data_parallel_replicate_size" in changes or "data_parallel_shard_size" in changes:
        return changed
    is_sharded = changed.zero_stage > 0
    return replace(
        changed,
        data_parallel_replicate_size=1 if is_sharded else size,
        data_parallel_shard_size=size if is_sharded else 1,
    )


def _as_held(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with names of choices and modules as a layout holds them."""
    held: dict[str, Any] = {
        name: kind(changes[name]) for name, kind in CHOICES.items() if name in changes
    }
    if "recompute_modules" in changes:
        held["recompute_modules"] = number_of(changes["recompute_modules"])
    return {**changes, **held}


def divided(spec: RunSpec, **layout: Any) -> RunSpec:
    """Return the plan that splits its model of 4 layers, on the GPUs of one node that this takes.

    16 sequences a step in micro-batches of 2; the pipeline's stages have equal layers.
    """
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
    split = math.prod(layout.get(size, 1) for size in sizes)
    stages = layout.get("pipeline_parallel_size", 1)
    data = layout.pop("data_parallel_size", 1)
    return with_layout(
        spec,
        gpus_per_node=split * data,
        micro_batch_size=2,
        gradient_accumulation_steps=8 // data,
        global_batch_size=16,
        **{"layers_per_stage": (4 // stages,) * stages} | layout,
    )


EVERY = FilesRequest(targets="all", launchers="all")
"""All that can be written of a plan."""


def with_launchers(spec: RunSpec, targets: Sequence[str]) -> dict[str, str]:
    """Return the files of targets, and every launcher that can start them."""
    return generate.generate(spec, targets, launchers="all")


def written(spec: RunSpec, targets: Sequence[str]) -> dict[str, str]:
    """Return the files of those targets that can write the spec."""
    return generate.generate(spec, targets, refused(spec, targets))


def script_of(files: Mapping[str, str], target: str) -> str:
    """Return a target's train.py and the modules beside it, one after the other."""
    names = [
        name for name in sorted(files) if name.startswith(f"{target}/") and name.endswith(".py")
    ]
    return "\n".join(files[name] for name in names)


def refused(spec: RunSpec, targets: Sequence[str]) -> dict[str, str]:
    """Return which targets cannot write the spec, each with the reason."""
    breaches = refusals(job_of(spec), layout_of(spec), targets)
    return {target: breach.reason for target, breach in breaches.items()}


def refusal(spec: RunSpec, target: str) -> str:
    """Return why a target cannot write the spec; "" where it can."""
    return refused(spec, [target]).get(target, "")


def layout_of(spec: RunSpec) -> Layout:
    return Layout(**{name: getattr(spec, name) for name in FIELDS})


def job_of(spec: RunSpec) -> Job:
    """Return a job of which the spec could come: a model of as many layers, on made GPUs."""
    return Job(
        model=Model(
            name=spec.model,
            model_type=str(spec.model_config.get("model_type")),
            task=spec.task,
            parts=(replace(_block_of(spec), count=sum(spec.layers_per_stage) or 4),),
            vocab_size=96,
            hidden_size=32,
            max_position_embeddings=spec.sequence_length,
            config={**spec.model_config, "dtype": spec.config_dtype},
        ),
        cluster=cluster(spec.nodes, gpus_per_node=spec.gpus_per_node),
        recipe=Recipe(
            sequence_length=spec.sequence_length,
            global_batch_size=spec.global_batch_size,
            precision=spec.precision,
            optimizer=spec.optimizer,
            optimizer_in_backward=spec.optimizer_in_backward,
            attention=spec.attention,
            loss=spec.loss,
            compile=spec.compile,
            weights_dtype="config" if spec.config_dtype else "fp32",
            lora=lora_of(spec.adapters),
        ),
        framework=records.framework(spec.framework),
    )


def _block_of(spec: RunSpec) -> Part:
    """Return the last kind of layer of the spec's model; one of nothing where its type is not known."""
    try:
        return read_model(spec.model, spec.model_config).blocks[-1]
    except PlannerError:
        return Part(name="block", is_block=True)


def lora_of(adapters: Adapters | None) -> Lora | None:
    """Return the adapters of a job, on linears that go by PEFT's names."""
    if adapters is None:
        return None
    return Lora(
        rank=adapters.rank,
        alpha=adapters.alpha,
        dropout=adapters.dropout,
        targets=adapters.modules,
        base_bits=adapters.base_bits,
        has_double_quantization=adapters.has_double_quantization,
        adapter_bytes=4 if adapters.is_fp32 else 2,
    )
