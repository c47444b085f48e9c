"""What no target can write, and what does not multiply out."""

from collections.abc import Sequence

from planner.core.errors import InvalidInputError
from planner.domain.strategy import Offload, PipelineSchedule, Recompute
from planner.generate.context import ATTENTION, AUTO_CLASSES, ZERO
from planner.generate.run_spec import RunSpec

_TYPES = {
    "seq2seq-lm": ("t5", "mt5", "bart"),
    "image-classification": ("vit", "deit", "dinov2", "swin"),
}
"""Where the scripts know the inputs of some models alone: from text to text, and pieces of images."""


def check(spec: RunSpec) -> None:
    """Refuse a spec that contradicts itself, or has a value without a meaning.

    Raises:
        InvalidInputError: names the field and what it could be.
    """
    _check_choices(spec)
    _check_inputs(spec)
    _check_sizes(spec)
    _check_batch(spec)


def _check_choices(spec: RunSpec) -> None:
    choices: dict[str, Sequence[object]] = {
        "task": tuple(AUTO_CLASSES),
        "zero_stage": tuple(ZERO),
        "precision": ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16"),
        "attention": tuple(ATTENTION),
        "recompute": Recompute.names(),
        "offload": Offload.names(),
        "pipeline_schedule": PipelineSchedule.names(),
        "optimizer": ("adamw",),
    }
    for field, known in choices.items():
        value = getattr(spec, field)
        if value not in known:
            raise InvalidInputError(
                f"no launch files for {field} {value!r}",
                hint=f"the targets can write: {', '.join(map(str, known))}",
                field=field,
            )


def _check_inputs(spec: RunSpec) -> None:
    kind = str(spec.model_config.get("model_type"))
    known = _TYPES.get(spec.task, (kind,))
    if kind not in known:
        raise InvalidInputError(
            f"no launch files for {spec.task} by models of type {kind[:40]}",
            hint=f"the targets can write: {', '.join(known)}",
            field="task",
        )


def _check_sizes(spec: RunSpec) -> None:
    sizes = (
        spec.data_parallel_replicate_size,
        spec.data_parallel_shard_size,
        spec.tensor_parallel_size,
        spec.pipeline_parallel_size,
        spec.context_parallel_size,
    )
    product = spec.data_parallel_size * sizes[2] * sizes[3] * sizes[4]
    if product != spec.world_size:
        raise InvalidInputError(
            f"replicas x shards x tensor x pipeline x context = {' x '.join(map(str, sizes))}"
            f" = {product}, not the {spec.world_size} GPUs",
            hint="choose sizes whose product is the number of GPUs",
            field="gpus_per_node",
        )
    if spec.pipeline_parallel_size > 1 and (
        len(spec.layers_per_stage) != spec.pipeline_parallel_size
    ):
        raise InvalidInputError(
            f"{len(spec.layers_per_stage)} stages have layers, not the"
            f" {spec.pipeline_parallel_size} of the pipeline",
            hint="say how many layers each stage runs",
            field="layers_per_stage",
        )


def _check_batch(spec: RunSpec) -> None:
    product = spec.micro_batch_size * spec.gradient_accumulation_steps * spec.data_parallel_size
    if product != spec.global_batch_size:
        ranks = "GPUs" if not spec.is_model_parallel else "data-parallel ranks"
        raise InvalidInputError(
            f"micro batch {spec.micro_batch_size} x accumulation"
            f" {spec.gradient_accumulation_steps} x {spec.data_parallel_size} {ranks}"
            f" = {product}, not the global batch {spec.global_batch_size}",
            hint="choose a global batch size that the micro batch and the GPUs divide",
            field="global_batch_size",
        )
