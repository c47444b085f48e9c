"""Which parts the torchrun script has, and the words in them."""

from collections.abc import Mapping
from typing import Any

from planner.catalog import records
from planner.domain.strategy import PipelineSchedule
from planner.generate.axes import axes
from planner.generate.bundle import Bundle
from planner.generate.context import ATTENTION, COMPUTE_DTYPES
from planner.generate.families import family, is_tied
from planner.parallel.pipeline_schedules import SCHEDULES, Schedule

_OF_ONE_STAGE = ("ScheduleGPipe", "Schedule1F1B")
"""Classes of torch.distributed.pipelining that take one stage, not a list."""


def schedule(bundle: Bundle) -> Schedule:
    """Return what the bundle's pipeline schedule is."""
    return SCHEDULES[PipelineSchedule(bundle.pipeline_schedule)]


def schedule_classes() -> Mapping[str, str]:
    """Return the classes of torch.distributed.pipelining by the planner's name of their schedule."""
    return records.framework("torch").capabilities.pipeline_schedules


def script_context(bundle: Bundle) -> dict[str, Any]:
    """Return the template variables of the script."""
    is_local = bundle.synchronize_every > 1
    is_hybrid = bundle.data_parallel_replicate_size > 1 and bundle.data_parallel_shard_size > 1
    context: dict[str, Any] = {
        "has_shard_axis": is_hybrid,
        "shards_replicas": is_hybrid and bundle.shards_parameters,
        "offloads": bundle.offload != "none",
        "fsdp_names": _fsdp_names(bundle),
        "parts_of_model": _whole_model_parts(bundle),
        "parts_of_step": ("torchrun/whole/step", "torchrun/whole/main"),
    }
    if is_local:
        context["is_replicated"] = False
    return context | (_split_context(bundle) if bundle.splits_the_model else {})


def _fsdp_names(bundle: Bundle) -> list[str]:
    names = {
        "CPUOffloadPolicy": bundle.offload != "none",
        "MixedPrecisionPolicy": bundle.precision in COMPUTE_DTYPES,
        "fully_shard": True,
    }
    return [name for name, is_used in names.items() if is_used]


def _whole_model_parts(bundle: Bundle) -> list[str]:
    if bundle.shards_parameters:
        return ["common/blocks", "torchrun/whole/shard", "torchrun/whole/training"]
    if bundle.synchronize_every > 1:
        return ["torchrun/whole/local_sgd", "torchrun/whole/training"]
    is_alone = bundle.world_size == 1 and bundle.zero_stage == 0
    return ["torchrun/whole/training"] if is_alone else _REPLICATED


_REPLICATED = ["torchrun/whole/replicate", "torchrun/whole/training"]


def _split_context(bundle: Bundle) -> dict[str, Any]:
    grid, known, is_sharded = axes(bundle), family(bundle), bundle.shards_parameters
    schedule_class = schedule_classes().get(bundle.pipeline_schedule, "")
    is_pipelined, is_divided = bundle.pipeline_parallel_size > 1, bundle.tensor_parallel_size > 1
    is_gpt2 = known is not None and known.name == "gpt2"
    takes_mesh = is_divided or "context" in grid.sizes or (grid.batch and not is_sharded)
    return {
        "family": known,
        "grid": grid,
        # Where the sequence is divided, PyTorch's own attention computes the pieces.
        "attention": "sdpa" if "context" in grid.sizes else ATTENTION[bundle.attention],
        "owner_mesh": 'grid.mesh["shard"]' if "shard" in grid.data else "grid.batch",
        "averages_by_hand": bool(grid.batch) and not is_sharded,
        "autocasts": bundle.precision in COMPUTE_DTYPES and not is_sharded,
        "unfuses": is_gpt2 and is_divided,
        "is_tied": is_tied(bundle),
        "has_copies": is_tied(bundle) and is_pipelined,
        "hidden_dtype": _hidden_dtype(bundle),
        "schedule_class": schedule_class,
        "is_single_schedule": schedule_class in _OF_ONE_STAGE,
        "is_v_shaped": schedule(bundle).is_v_shaped,
        "layers_per_chunk": layers_per_chunk(bundle) if is_pipelined else (),
        "mesh_names": [*(["DeviceMesh"] if takes_mesh else []), "init_device_mesh"],
        "tensor_names": _tensor_names(bundle, is_gpt2=is_gpt2),
        "parts_of_model": _split_parts(bundle, is_gpt2=is_gpt2),
        "parts_of_step": ("torchrun/split/step", "torchrun/split/main"),
    }


def _hidden_dtype(bundle: Bundle) -> str:
    """Return the dtype of hidden states between blocks; autocast leaves those in the weights'."""
    weights = "bfloat16" if bundle.precision == "bf16" else "float32"
    return COMPUTE_DTYPES.get(bundle.precision, weights) if bundle.shards_parameters else weights


def layers_per_chunk(bundle: Bundle) -> tuple[int, ...]:
    """Return the layers of each chunk in the order of the model; a stage deals its own evenly."""
    stages, virtual = bundle.pipeline_parallel_size, bundle.virtual_pipeline_size
    is_v_shaped = schedule(bundle).is_v_shaped
    chunks = [0] * (stages * virtual)
    for stage, count in enumerate(bundle.layers_per_stage):
        base, rest = divmod(count, virtual)
        for chunk in range(virtual):
            is_backward = is_v_shaped and chunk % 2
            place = (chunk + 1) * stages - 1 - stage if is_backward else chunk * stages + stage
            chunks[place] = base + (chunk < rest)
    return tuple(chunks)


def _tensor_names(bundle: Bundle, *, is_gpt2: bool) -> list[str]:
    if bundle.tensor_parallel_size == 1:
        return []
    names = {
        "ColwiseParallel": True,
        "ParallelStyle": True,
        "PrepareModuleInput": bundle.sequence_parallel,
        "PrepareModuleOutput": bundle.sequence_parallel and is_gpt2,
        "RowwiseParallel": True,
        "SequenceParallel": bundle.sequence_parallel or not is_gpt2,
        "loss_parallel": True,
        "parallelize_module": True,
    }
    return [name for name, is_used in names.items() if is_used]


def _split_parts(bundle: Bundle, *, is_gpt2: bool) -> list[str]:
    is_divided = bundle.tensor_parallel_size > 1
    parts = {
        "mesh": True,
        "gpt2": is_gpt2 and is_divided,
        "context": bundle.context_parallel_size > 1,
        "stage": True,
        "tensor": is_divided,
        "shard": bundle.shards_parameters,
        "assemble": True,
        "pipeline": bundle.pipeline_parallel_size > 1,
        "gradients": True,
        "training": True,
    }
    return [f"torchrun/split/{name}" for name, is_used in parts.items() if is_used]
