"""What no target can write, and what does not multiply out."""

from collections.abc import Sequence

from planner.core.errors import InvalidInputError
from planner.domain.strategy import Offload, PipelineSchedule, Recompute
from planner.generate.bundle import Bundle
from planner.generate.context import ATTENTION, AUTO_CLASSES, ZERO


def check(bundle: Bundle) -> None:
    """Refuse a bundle that contradicts itself, or has a value without a meaning.

    Raises:
        InvalidInputError: names the field and what it could be.
    """
    _check_choices(bundle)
    _check_sizes(bundle)
    _check_batch(bundle)


def _check_choices(bundle: Bundle) -> None:
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
        value = getattr(bundle, field)
        if value not in known:
            raise InvalidInputError(
                f"no launch files for {field} {value!r}",
                hint=f"the targets can write: {', '.join(map(str, known))}",
                field=field,
            )


def _check_sizes(bundle: Bundle) -> None:
    sizes = (
        bundle.data_parallel_replicate_size,
        bundle.data_parallel_shard_size,
        bundle.tensor_parallel_size,
        bundle.pipeline_parallel_size,
        bundle.context_parallel_size,
    )
    product = bundle.data_parallel_size * sizes[2] * sizes[3] * sizes[4]
    if product != bundle.world_size:
        raise InvalidInputError(
            f"replicas x shards x tensor x pipeline x context = {' x '.join(map(str, sizes))}"
            f" = {product}, not the {bundle.world_size} GPUs",
            hint="choose sizes whose product is the number of GPUs",
            field="gpus_per_node",
        )
    if bundle.pipeline_parallel_size > 1 and (
        len(bundle.layers_per_stage) != bundle.pipeline_parallel_size
    ):
        raise InvalidInputError(
            f"{len(bundle.layers_per_stage)} stages have layers, not the"
            f" {bundle.pipeline_parallel_size} of the pipeline",
            hint="say how many layers each stage runs",
            field="layers_per_stage",
        )


def _check_batch(bundle: Bundle) -> None:
    product = (
        bundle.micro_batch_size * bundle.gradient_accumulation_steps * bundle.data_parallel_size
    )
    if product != bundle.global_batch_size:
        ranks = "GPUs" if not bundle.splits_the_model else "data-parallel ranks"
        raise InvalidInputError(
            f"micro batch {bundle.micro_batch_size} x accumulation"
            f" {bundle.gradient_accumulation_steps} x {bundle.data_parallel_size} {ranks}"
            f" = {product}, not the global batch {bundle.global_batch_size}",
            hint="choose a global batch size that the micro batch and the GPUs divide",
            field="global_batch_size",
        )
