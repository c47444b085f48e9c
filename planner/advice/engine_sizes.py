"""Which GPUs an engine of vLLM can be divided over, beside training or in a server of its own.

`trl vllm-serve` runs one engine of a dense model: data parallel ones are for mixtures of experts, and end with an error
for others. Beside training every group of GPUs has its own engine, whatever the model.

Source: TRL 1.16, scripts/vllm_serve.py, data_parallel_size.
"""

from planner.core.errors import InvalidInputError
from planner.domain.job import Job
from planner.domain.rollout import Rollout, VllmMode
from planner.search.limits.base import attention_heads


def is_one_engine(job: Job, mode: VllmMode | None) -> bool:
    """Return whether all GPUs that generate are one engine."""
    return mode == "server" and not job.model.has_experts


def whole_engines(job: Job, mode: VllmMode | None) -> list[int]:
    """Return the tensor parallel sizes that divide the model and that a node has GPUs for."""
    is_shared = mode == "server" and job.cluster.nodes == 1
    most = job.cluster.gpus_per_node - int(is_shared)
    return [size for size in range(1, most + 1) if _divides(job, size)]


def engine_sizes(job: Job, mode: VllmMode | None, gpus: int) -> list[int]:
    """Return the tensor parallel sizes of engines that use so many GPUs without a rest."""
    able = [size for size in whole_engines(job, mode) if gpus % size == 0]
    return [size for size in able if size == gpus] if is_one_engine(job, mode) else able


def most_gpus(job: Job) -> int:
    """Return the most GPUs of a node of its own that a server uses."""
    is_one = is_one_engine(job, "server")
    return max(whole_engines(job, "server")) if is_one else job.cluster.gpus_per_node


def _divides(job: Job, size: int) -> bool:
    """Return whether vLLM divides a model so: heads and inner channels, and key-value heads or copies of them."""
    splits = {layer.most_splits for part in job.model.blocks for layer in part.linears} - {1}
    return attention_heads(job) % size == 0 and all(
        each % size == 0 or size % each == 0 for each in splits
    )


def check_engine(job: Job, asked: Rollout, mode: VllmMode, gpus: int) -> None:
    """Refuse engines that the GPUs or the model do not have.

    Raises:
        InvalidInputError: names the field and the nearest value that works.
    """
    able, size = engine_sizes(job, mode, gpus), asked.vllm_tensor_parallel_size
    if able and (not size or size in able):
        return
    one = "a vLLM server has one engine of a dense model" if is_one_engine(job, mode) else ""
    if not able and (asked.generation_gpus or not size):
        raise InvalidInputError(
            f"{one or 'an engine'}, and {gpus} GPUs do not divide {_parts(job)}",
            hint=f"--generation-gpus {nearest_gpus(job, mode, gpus)}",
            field="recipe.generation_gpus",
        )
    nearest = min(able or whole_engines(job, mode), key=lambda each: abs(each - (size or 1)))
    why = f"{one}, on all of them" if one and able else f"they do not divide {_parts(job)} so"
    raise InvalidInputError(
        f"no engine of {size} GPUs where {gpus} generate: {why}",
        hint=f"--vllm-tensor-parallel-size {nearest}",
        field="recipe.vllm_tensor_parallel_size",
    )


def nearest_gpus(job: Job, mode: VllmMode, gpus: int) -> int:
    """Return how many GPUs are an engine, as near as can be; first of those beside which the batch divides."""
    cluster, batch = job.cluster, job.recipe.global_batch_size

    def distance(each: int) -> tuple[bool, int]:
        left = cluster.world_size - (cluster.gpus_per_node if cluster.nodes > 1 else each)
        return batch % left > 0, abs(each - gpus)

    return min(whole_engines(job, mode), key=distance)


def _parts(job: Job) -> str:
    return f"the {attention_heads(job)} heads of {job.model.name}"
