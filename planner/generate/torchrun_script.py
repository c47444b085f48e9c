"""Which parts the torchrun script has, and the words in them."""

from dataclasses import dataclass
from typing import Any

from planner.generate.bundle import Bundle
from planner.generate.context import ATTENTION, COMPUTE_DTYPES
from planner.generate.families import family, is_tied
from planner.schedule_orders import SCHEDULES

_SCHEDULE_CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "zb-h1": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
}
_OF_ONE_STAGE = ("gpipe", "1f1b")
"""Schedules whose class takes one stage, not a list."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """The axes of the device mesh, outermost first, as the planner numbers ranks."""

    sizes: dict[str, int]
    data: tuple[str, ...]
    """Those along which the data differs."""

    @property
    def flexible(self) -> str:
        """Return the axis that grows with the number of processes, "" without one."""
        return self.data[0] if self.data else ""

    @property
    def fixed_ranks(self) -> int:
        """Return the product of the other sizes."""
        product = 1
        for name, size in self.sizes.items():
            product *= 1 if name == self.flexible else size
        return product


def _axes(bundle: Bundle) -> _Axes:
    replicas, shards = bundle.data_parallel_replicate_size, bundle.data_parallel_shard_size
    if replicas > 1 and shards > 1:
        data = {"replicate": replicas, "shard": shards}
    elif bundle.data_parallel_size > 1 or bundle.zero_stage > 0:
        data = {"data": bundle.data_parallel_size}
    else:
        data = {}
    outer = {"pipeline": bundle.pipeline_parallel_size}
    inner = {"context": bundle.context_parallel_size, "tensor": bundle.tensor_parallel_size}
    sizes = {
        name: size for name, size in (outer | data | inner).items() if size > 1 or name in data
    }
    return _Axes(sizes=sizes, data=tuple(data))


_SIZE_NAMES = {
    "pipeline": "PIPELINE_PARALLEL_SIZE",
    "shard": "SHARD_SIZE",
    "context": "CONTEXT_PARALLEL_SIZE",
    "tensor": "TENSOR_PARALLEL_SIZE",
}


def _split_context(bundle: Bundle) -> dict[str, Any]:
    axes, known = _axes(bundle), family(bundle)
    batch_axes = [name for name in axes.sizes if name in (*axes.data, "context")]
    is_sharded, is_tied_model = bundle.shards_parameters, is_tied(bundle)
    is_pipelined, is_divided = bundle.pipeline_parallel_size > 1, bundle.tensor_parallel_size > 1
    half = COMPUTE_DTYPES.get(bundle.precision) if is_sharded else None
    weights = "bfloat16" if bundle.precision == "bf16" else "float32"
    return {
        # Where the sequence is divided, PyTorch's own attention computes the pieces.
        "attention": "sdpa" if "context" in axes.sizes else ATTENTION[bundle.attention],
        "family": known.name if known else "",
        "trunk": known.trunk if known else "",
        "layers": known.layers if known else "",
        "embedding": known.embedding if known else "",
        "norm": known.norm if known else "",
        "axes": list(axes.sizes),
        "data_axes": axes.data,
        "has_data": bool(axes.data),
        "batch_axes": batch_axes,
        "flexible_axis": axes.flexible,
        "fixed_ranks": axes.fixed_ranks,
        "axis_sizes": _tuple(_SIZE_NAMES.get(name, name) for name in axes.sizes),
        "axis_names": _tuple(f'"{name}"' for name in axes.sizes),
        "owner_mesh": 'grid.mesh["shard"]' if "shard" in axes.data else "grid.batch",
        "averages_by_hand": bool(batch_axes) and not is_sharded,
        "autocasts": bundle.precision in COMPUTE_DTYPES and not is_sharded,
        "unfuses": bool(known) and known.name == "gpt2" and is_divided if known else False,
        "is_tied": is_tied_model,
        "has_copies": is_tied_model and is_pipelined,
        "hidden_dtype": half or weights,
        "schedule_class": _SCHEDULE_CLASSES.get(bundle.pipeline_schedule, ""),
        "is_single_schedule": bundle.pipeline_schedule in _OF_ONE_STAGE,
        "layers_per_chunk": layers_per_chunk(bundle) if is_pipelined else (),
        "mesh_names": ["DeviceMesh", "init_device_mesh"]
        if is_divided or "context" in axes.sizes or (batch_axes and not is_sharded)
        else ["init_device_mesh"],
        "tensor_names": _tensor_names(bundle),
        "parts_of_model": _split_parts(bundle, unfuses=bool(known and known.name == "gpt2")),
        "parts_of_step": ("torchrun/split/step", "torchrun/split/main"),
    }


def layers_per_chunk(bundle: Bundle) -> tuple[int, ...]:
    """Return the layers of each chunk in the order of the model; a stage deals its own evenly."""
    stages, virtual = bundle.pipeline_parallel_size, bundle.virtual_pipeline_size
    is_v_shaped = SCHEDULES[bundle.pipeline_schedule].is_v_shaped
    chunks = [0] * (stages * virtual)
    for stage, count in enumerate(bundle.layers_per_stage):
        base, rest = divmod(count, virtual)
        for chunk in range(virtual):
            is_backward = is_v_shaped and chunk % 2
            place = (chunk + 1) * stages - 1 - stage if is_backward else chunk * stages + stage
            chunks[place] = base + (chunk < rest)
    return tuple(chunks)


def _tuple(names: Any) -> str:
    listed = list(names)
    return f"({listed[0]},)" if len(listed) == 1 else f"({', '.join(listed)})"


def _tensor_names(bundle: Bundle) -> list[str]:
    if bundle.tensor_parallel_size == 1:
        return []
    known = family(bundle)
    is_gpt2 = known is not None and known.name == "gpt2"
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


def _split_parts(bundle: Bundle, *, unfuses: bool) -> list[str]:
    is_divided = bundle.tensor_parallel_size > 1
    parts = {
        "mesh": True,
        "gpt2": unfuses and is_divided,
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
