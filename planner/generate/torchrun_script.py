"""Which parts the torchrun script has, and the words in them."""

from dataclasses import replace
from typing import Any

from planner.domain.strategy import PipelineSchedule
from planner.generate.axes import axes
from planner.generate.context import (
    COMPUTE_DTYPES,
    attention_name,
    compute_dtype,
    weights_divided_by,
)
from planner.generate.run_spec import RunSpec
from planner.parallel.pipeline_schedules import SCHEDULES, Schedule
from planner.targets.families import Family, family, is_tied, logits_field, window
from planner.targets.torchrun import schedule_classes

_OF_ONE_STAGE = ("ScheduleGPipe", "Schedule1F1B")
"""Classes of torch.distributed.pipelining that take one stage, not a list."""


def schedule(spec: RunSpec) -> Schedule:
    """Return what the spec's pipeline schedule is."""
    return SCHEDULES[PipelineSchedule(spec.pipeline_schedule)]


def script_context(spec: RunSpec) -> dict[str, Any]:
    """Return the template variables of the script."""
    is_local = spec.synchronize_every > 1
    is_hybrid = spec.data_parallel_replicate_size > 1 and spec.data_parallel_shard_size > 1
    context: dict[str, Any] = {
        "has_shard_axis": is_hybrid,
        "shards_replicas": is_hybrid and spec.shards_parameters,
        "offloads": spec.offload != "none",
        "divided_by": weights_divided_by(replace(spec, framework="torch")),
        "fsdp_names": _fsdp_names(spec),
        "parts_of_model": _data_parallel_parts(spec),
        "parts_of_step": (
            "torchrun/data_parallel/step",
            "common/evaluate",
            "torchrun/data_parallel/main",
        ),
        "eval_autocasts": True,
    }
    if is_local:
        context["is_replicated"] = False
    return context | (_model_parallel_context(spec) if spec.is_model_parallel else {})


def _fsdp_names(spec: RunSpec) -> list[str]:
    names = {
        "CPUOffloadPolicy": spec.offload != "none",
        "MixedPrecisionPolicy": compute_dtype(spec) is not None,
        "fully_shard": True,
    }
    return [name for name, is_used in names.items() if is_used]


def _data_parallel_parts(spec: RunSpec) -> list[str]:
    if spec.shards_parameters:
        return ["common/blocks", "torchrun/data_parallel/shard", "torchrun/data_parallel/training"]
    blocks = ["common/blocks"] if spec.compile else []
    if spec.synchronize_every > 1:
        return [*blocks, "torchrun/data_parallel/local_sgd", "torchrun/data_parallel/training"]
    is_alone = spec.world_size == 1 and spec.zero_stage == 0
    return [*blocks, *(["torchrun/data_parallel/training"] if is_alone else _REPLICATED)]


_REPLICATED = ["torchrun/data_parallel/replicate", "torchrun/data_parallel/training"]


def _model_parallel_context(spec: RunSpec) -> dict[str, Any]:
    grid, known, is_sharded = axes(spec), family(spec.model_config), spec.shards_parameters
    schedule_class = schedule_classes().get(spec.pipeline_schedule, "")
    is_pipelined, is_divided = spec.pipeline_parallel_size > 1, spec.tensor_parallel_size > 1
    is_gpt2 = known is not None and known.name == "gpt2"
    fused = known.fused if known else {}
    has_windows = 0 < window(spec.model_config) < spec.sequence_length
    takes_mesh = is_divided or "context" in grid.sizes or (grid.batch and not is_sharded)
    return {
        "family": known,
        "grid": grid,
        # Where the sequence is divided, PyTorch's own attention computes the pieces.
        "attention": "sdpa" if "context" in grid.sizes else attention_name(spec),
        "owner_mesh": 'grid.mesh["shard"]' if "shard" in grid.data else "grid.batch",
        "averages_by_hand": bool(grid.batch) and not is_sharded,
        "autocasts": spec.precision in COMPUTE_DTYPES and not is_sharded,
        "unfuses": is_divided and (is_gpt2 or bool(fused)),
        "copies_config": is_divided and "self_attn.qkv_proj" in fused,
        # A flash kernel is told of the window by its layer.
        "masks_windows": has_windows and spec.attention != "flash",
        "logits_field": logits_field(spec.model_config),
        "reads_config": _reads_config(spec, known),
        "is_tied": is_tied(spec.model_config),
        "has_copies": is_tied(spec.model_config) and is_pipelined,
        "hidden_dtype": _hidden_dtype(spec),
        "schedule_class": schedule_class,
        "is_single_schedule": schedule_class in _OF_ONE_STAGE,
        "is_v_shaped": schedule(spec).is_v_shaped,
        "layers_per_chunk": layers_per_chunk(spec) if is_pipelined else (),
        "mesh_names": [*(["DeviceMesh"] if takes_mesh else []), "init_device_mesh"],
        "tensor_names": _tensor_names(spec, is_gpt2=is_gpt2),
        "parts_of_model": _model_parallel_parts(spec, is_gpt2=is_gpt2, is_fused=bool(fused)),
        "parts_of_step": tuple(
            f"torchrun/model_parallel/{part}" for part in ("step", "evaluate", "main")
        ),
    }


def _reads_config(spec: RunSpec, known: Family | None) -> bool:
    """Return whether a stage needs figures of config.json as it runs."""
    of_embeddings = known is not None and (known.embedding_dropout or known.embedding_factor)
    return bool(of_embeddings or logits_field(spec.model_config))


def _hidden_dtype(spec: RunSpec) -> str:
    """Return the dtype of hidden states between blocks; autocast leaves those in the weights'."""
    weights = "bfloat16" if spec.precision == "bf16" else "float32"
    return COMPUTE_DTYPES.get(spec.precision, weights) if spec.shards_parameters else weights


def layers_per_chunk(spec: RunSpec) -> tuple[int, ...]:
    """Return the layers of each chunk in the order of the model; a stage deals its own evenly."""
    stages, virtual = spec.pipeline_parallel_size, spec.virtual_pipeline_size
    is_v_shaped = schedule(spec).is_v_shaped
    chunks = [0] * (stages * virtual)
    for stage, count in enumerate(spec.layers_per_stage):
        base, rest = divmod(count, virtual)
        for chunk in range(virtual):
            # In a V every second chunk leads back, from the last stage to the first.
            is_backward = is_v_shaped and chunk % 2
            place = (chunk + 1) * stages - 1 - stage if is_backward else chunk * stages + stage
            chunks[place] = base + (chunk < rest)
    return tuple(chunks)


def _tensor_names(spec: RunSpec, *, is_gpt2: bool) -> list[str]:
    if spec.tensor_parallel_size == 1:
        return []
    names = {
        "ColwiseParallel": True,
        "ParallelStyle": True,
        "PrepareModuleInput": spec.sequence_parallel,
        "PrepareModuleOutput": spec.sequence_parallel and is_gpt2,
        "RowwiseParallel": True,
        "SequenceParallel": spec.sequence_parallel,
        "loss_parallel": True,
        "parallelize_module": True,
    }
    return [name for name, is_used in names.items() if is_used]


def _model_parallel_parts(spec: RunSpec, *, is_gpt2: bool, is_fused: bool) -> list[str]:
    is_divided = spec.tensor_parallel_size > 1
    parts = {
        "mesh": True,
        "gpt2": is_gpt2 and is_divided,
        "fused": is_fused and is_divided,
        "context": spec.context_parallel_size > 1,
        "stage": True,
        "tensor": is_divided,
        "shard": spec.shards_parameters,
        "assemble": True,
        "pipeline": spec.pipeline_parallel_size > 1,
        "gradients": True,
        "training": True,
    }
    return [f"torchrun/model_parallel/{name}" for name, is_used in parts.items() if is_used]
