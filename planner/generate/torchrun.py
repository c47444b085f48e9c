"""PyTorch alone, started by torchrun: every strategy that PyTorch has. Which parts its script has, and the words in them."""

from collections.abc import Mapping
from typing import Any

from planner.core.frozen import frozen
from planner.generate.context import (
    COMPUTE_DTYPES,
    attention_name,
)
from planner.generate.run_spec import RunSpec
from planner.generate.target import SHARED, Target
from planner.parallel.pipeline_schedules import SCHEDULES, Schedule
from planner.targets.families import (
    Family,
    family,
    has_fused_matrices,
    is_tied,
    logits_field,
    window,
)
from planner.targets.torchrun import schedule_classes

_OF_ONE_STAGE = ("ScheduleGPipe", "Schedule1F1B")
"""Classes of torch.distributed.pipelining that take one stage, not a list."""


_CONSTANTS = {
    "pipeline": "PIPELINE_PARALLEL_SIZE",
    "shard": "SHARD_SIZE",
    "context": "CONTEXT_PARALLEL_SIZE",
    "tensor": "TENSOR_PARALLEL_SIZE",
}
"""What the script calls the size of an axis that does not grow with the processes."""


_LONGEST_TUPLE = 88
"""Characters, beside its indent and the name it is given, in a line of a formatted script."""


@frozen
class Axes:
    """Sizes by name, outermost first, in the order in which the planner numbers ranks."""

    sizes: Mapping[str, int]
    data: tuple[str, ...]
    """Those along which the samples differ; the first grows with the number of processes."""

    @property
    def flattened(self) -> Mapping[str, tuple[str, ...]]:
        """Return those that have a name together: along `data` the samples differ, along `batch` the tokens."""
        data = {"data": self.data} if len(self.data) > 1 else {}
        return {**data, **({"batch": (*self.data, "context")} if "context" in self.sizes else {})}

    @property
    def batch(self) -> str:
        """Return along which the parameters are the same, and the tokens are not."""
        return "batch" if "context" in self.sizes else "data"

    @property
    def growing(self) -> str:
        """Return the axis that grows with the number of processes."""
        return self.data[0]

    @property
    def names_in_code(self) -> str:
        """Return the tuple of names, as Python."""
        return _tuple([f'"{name}"' for name in self.sizes])

    @property
    def sizes_in_code(self) -> str:
        """Return the tuple of sizes, as Python: the growing one is a variable of its name."""
        return _tuple([_size(name) for name in self.sizes])


def axes(spec: RunSpec) -> Axes:
    """Return the axes of a plan that divides its model; those of size 1 are left out."""
    replicas, shards = spec.data_parallel_replicate_size, spec.data_parallel_shard_size
    if replicas > 1 and spec.zero_stage > 0:
        data = {"replicate": replicas, "shard": shards}
    else:
        data = {"data": replicas * shards}
    around = {
        "pipeline": spec.pipeline_parallel_size,
        **data,
        "context": spec.context_parallel_size,
        "tensor": spec.tensor_parallel_size,
    }
    sizes = {name: size for name, size in around.items() if size > 1 or name in data}
    return Axes(sizes=sizes, data=tuple(data))


def _size(name: str) -> str:
    return f"settings.{_CONSTANTS[name]}" if name in _CONSTANTS else name


def _tuple(parts: list[str]) -> str:
    line = f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    inner = "".join(f"        {part},\n" for part in parts)
    return line if len(line) <= _LONGEST_TUPLE else f"(\n{inner}    )"


def schedule(spec: RunSpec) -> Schedule:
    """Return what the spec's pipeline schedule is."""
    return SCHEDULES[spec.pipeline_schedule]


def script_context(spec: RunSpec) -> dict[str, Any]:
    """Return the template variables of the script."""
    is_local = spec.synchronize_every > 1
    is_hybrid = spec.data_parallel_replicate_size > 1 and spec.zero_stage > 0
    of_model = [
        _CONSTANTS[name]
        for name, size in {
            "pipeline": spec.pipeline_parallel_size,
            "context": spec.context_parallel_size,
            "tensor": spec.tensor_parallel_size,
        }.items()
        if size > 1
    ]
    ranks = "MODEL_RANKS" if len(of_model) > 1 else "".join(of_model)
    of_group = [ranks] * bool(ranks) + [_CONSTANTS["shard"]] * is_hybrid
    context: dict[str, Any] = {
        "of_model": of_model,
        "ranks_of_model": f"settings.{ranks}",
        "ranks_of_group": " * ".join(f"settings.{name}" for name in of_group),
        "has_shard_axis": is_hybrid,
        "shards_replicas": is_hybrid and spec.shards_gradients,
        "offloads": spec.offloads_optimizer,
        "training_part": "torchrun/data_parallel/training",
        "model_parts": _data_parallel_parts(spec),
    }
    if is_local:
        context["is_replicated"] = False
    return context | (_model_parallel_context(spec) if spec.divides_model else {})


def _data_parallel_parts(spec: RunSpec) -> list[str]:
    is_alone = spec.world_size == 1 and spec.zero_stage == 0
    if spec.shards_gradients:
        return ["torchrun/data_parallel/shard"]
    is_replicated = not is_alone and spec.synchronize_every == 1
    return ["torchrun/data_parallel/replicate"] if is_replicated else []


def _model_parallel_context(spec: RunSpec) -> dict[str, Any]:
    grid, known, is_sharded = axes(spec), family(spec.model_config), spec.shards_gradients
    schedule_class = schedule_classes().get(str(spec.pipeline_schedule), "")
    is_pipelined, is_divided = spec.pipeline_parallel_size > 1, spec.tensor_parallel_size > 1
    is_gpt2 = known is not None and known.name == "gpt2"
    fused = known.fused if known else {}
    averages = spec.zero_stage > 0 or spec.data_parallel_size * spec.context_parallel_size > 1
    has_windows = 0 < window(spec.model_config) < spec.sequence_length
    return {
        "family": known,
        "trained": "adapters(model).values()" if spec.adapters else "model.parameters()",
        "grid": grid,
        # Where the sequence is divided, PyTorch's own attention computes the pieces.
        **({"flash": None} if "context" in grid.sizes else {}),
        "attention": "sdpa" if "context" in grid.sizes else attention_name(spec),
        "owners": "shard" if "shard" in grid.data else grid.batch,
        "averages_by_hand": averages and not is_sharded,
        "settles": is_divided and not is_sharded,
        "autocasts": spec.precision in COMPUTE_DTYPES and not is_sharded,
        "unfuses": is_divided and has_fused_matrices(spec.model_config),
        "divides_experts": is_divided and known is not None and known.has_experts,
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
        "training_part": "torchrun/model_parallel/training",
        "model_parts": _parts(
            {
                "mesh": True,
                "gpt2": is_gpt2 and is_divided,
                "fused": bool(fused) and is_divided,
                "context": spec.context_parallel_size > 1,
                "experts": is_divided and known is not None and known.has_experts,
                "tensor": is_divided,
                "stage": True,
                "shard": bool(is_sharded),
                "assemble": True,
                "pipeline": is_pipelined,
            }
        ),
    }


def _reads_config(spec: RunSpec, known: Family | None) -> bool:
    of_embeddings = known is not None and (known.embedding_dropout or known.embedding_factor)
    return bool(of_embeddings or logits_field(spec.model_config))


def _hidden_dtype(spec: RunSpec) -> str:
    """Return the dtype of hidden states between blocks; autocast leaves those in the weights'."""
    weights = "bfloat16" if spec.precision == "bf16" else "float32"
    return COMPUTE_DTYPES.get(spec.precision, weights) if spec.shards_gradients else weights


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


def _parts(parts: Mapping[str, bool]) -> list[str]:
    return [f"torchrun/model_parallel/{name}" for name, is_used in parts.items() if is_used]


TARGET = Target(
    name="torchrun",
    summary="PyTorch alone; the loop is in `train.py`, the plan's numbers are in `settings.py` beside it.",
    templates={
        "train.py": "torchrun/train.py",
        "settings.py": "plain/settings.py",
        "data.py": "plain/data.py",
        "model.py": "plain/model.py",
        "checkpoints.py": "plain/checkpoints.py",
        **SHARED,
        "launch.sh": "torchrun/launch.sh",
        "config.json": "common/config.json",
        "requirements.txt": "torchrun/requirements.txt",
    },
    context=script_context,
)
