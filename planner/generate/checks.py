"""What does not multiply out."""

from planner.core.errors import InvalidInputError
from planner.generate.run_spec import RunSpec


def check(spec: RunSpec) -> None:
    """Refuse a spec that contradicts itself.

    Raises:
        InvalidInputError: names the field and what does not add up.
    """
    _check_sizes(spec)
    _check_batch(spec)


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
        ranks = "GPUs" if not spec.divides_model else "data-parallel ranks"
        raise InvalidInputError(
            f"micro batch {spec.micro_batch_size} x accumulation"
            f" {spec.gradient_accumulation_steps} x {spec.data_parallel_size} {ranks}"
            f" = {product}, not the global batch {spec.global_batch_size}",
            hint="choose a global batch size that the micro batch and the GPUs divide",
            field="global_batch_size",
        )
