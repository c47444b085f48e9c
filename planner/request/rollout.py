"""GRPO's side of a recipe: prompts, completions and the engine, as a request says them or as is usual."""

import sys

from planner.catalog.batches import UsualBatch
from planner.catalog.rollout import rollout
from planner.core.errors import InvalidInputError
from planner.domain.model import Model
from planner.domain.rollout import Rollout
from planner.request.remarks import Assumption
from planner.request.sections import RecipeRequest

_OF_VLLM = ("vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "generation_gpus")
_OF_GRPO = (
    "num_generations",
    "max_completion_length",
    "mean_completion_length",
    "beta",
    "vllm_mode",
    *_OF_VLLM,
)


def with_usual_length(wanted: RecipeRequest, model: Model) -> RecipeRequest:
    """Return a recipe of GRPO with the length of a prompt and its completion, where nobody says one.

    Raises:
        InvalidInputError: the model has no position after the longest completion, or before it.
    """
    if wanted.job != "grpo":
        return wanted
    positions, longest = _positions(model), wanted.max_completion_length
    if longest and longest >= positions:
        raise _refused(
            "max_completion_length",
            f"{model.name[:60]} has {positions:,} learned positions, and completions of {longest:,} tokens leave none for a prompt",
            f"--max-completion-length {_of_length(positions)}",
        )
    if wanted.sequence_length is not None:
        return wanted
    usual = rollout().usual
    length = min(positions, usual.prompt_tokens + (longest or usual.completion_tokens))
    return wanted.model_copy(update={"sequence_length": length})


def _positions(model: Model) -> int:
    return model.max_position_embeddings if model.has_learned_positions else sys.maxsize


def _of_length(tokens: int) -> int:
    """Return the tokens of a completion in sequences of a length that says nothing of prompts."""
    return max(1, tokens * 2 // 3)


def usual_completions(sequence_length: int) -> UsualBatch:
    """Return how many completions a step of GRPO usually has."""
    size = rollout().usual.completions
    return UsualBatch(smallest=size, largest=size, sequence_length=sequence_length, training="GRPO")


def find_rollout(
    wanted: RecipeRequest, asked: RecipeRequest, model: Model, sequence_length: int, batch: int
) -> tuple[Rollout | None, list[Assumption]]:
    """Return what is generated in a step, and what was assumed for it; None of a job that generates nothing.

    Args:
        wanted: the recipe, its sequences as long as they will be.
        asked: the same as the request says it.
        model: that generates.
        sequence_length: tokens of a prompt with its completion.
        batch: completions of an optimizer step.

    Raises:
        InvalidInputError: numbers that exclude each other, or fields of GRPO in another job.
    """
    if wanted.job != "grpo":
        _refuse_others(wanted)
        return None, []
    usual, assumptions = rollout().usual, []
    longest = wanted.max_completion_length
    if longest is None:
        longest = min(usual.completion_tokens, _of_length(sequence_length))
    if longest >= sequence_length:
        whole, shorter = (
            min(_positions(model), longest + usual.prompt_tokens),
            _of_length(sequence_length),
        )
        other = f", or --max-completion-length {shorter}" if shorter < sequence_length else ""
        raise _refused(
            "max_completion_length",
            f"completions of {longest:,} tokens leave no room for a prompt in sequences of {sequence_length:,}",
            f"--seq-len {whole}{other}",
        )
    if wanted.mean_completion_length and wanted.mean_completion_length > longest:
        raise _refused(
            "mean_completion_length",
            f"a mean of {wanted.mean_completion_length:,} tokens is above the longest, {longest:,}",
            f"at most {longest:,}",
        )
    if asked.sequence_length is None or wanted.max_completion_length is None:
        text = f"prompts of {sequence_length - longest:,} and completions of {longest:,} tokens"
        assumptions.append(Assumption(text=text, field="recipe.max_completion_length"))
    if wanted.mean_completion_length is None:
        text = "every completion of the longest length"
        assumptions.append(Assumption(text=text, field="recipe.mean_completion_length"))
    generations = wanted.num_generations or usual.generations
    if wanted.num_generations is None:
        text = f"{generations} completions of each prompt"
        assumptions.append(Assumption(text=text, field="recipe.num_generations"))
    _check(wanted, generations, batch)
    found = Rollout(
        num_generations=generations,
        prompt_tokens=sequence_length - longest,
        max_completion_length=longest,
        mean_completion_length=wanted.mean_completion_length,
        beta=wanted.beta or 0.0,
        vllm_mode=wanted.vllm_mode,
        vllm_gpu_memory_utilization=wanted.vllm_gpu_memory_utilization,
        vllm_tensor_parallel_size=wanted.vllm_tensor_parallel_size,
        generation_gpus=wanted.generation_gpus,
    )
    return found, assumptions


def _check(wanted: RecipeRequest, generations: int, batch: int) -> None:
    if batch % generations:
        nearest = [size for size in range(2, batch + 1) if batch % size == 0]
        best = [min(nearest, key=lambda size: abs(size - generations))] if nearest else []
        whole = batch // generations * generations or generations
        ways = [f"--num-generations {size}" for size in best] + [f"--global-batch-size {whole}"]
        raise _refused(
            "num_generations",
            f"{generations} completions of each prompt do not divide a step of {batch:,}",
            ", or ".join(ways),
        )
    if wanted.vllm_mode == "none":
        said = [name for name in _OF_VLLM if getattr(wanted, name) is not None]
        if said:
            raise _refused(said[0], f"without vLLM there is no {said[0]}", "leave it out")
    if wanted.vllm_mode == "colocate" and wanted.generation_gpus is not None:
        raise _refused(
            "generation_gpus",
            "in colocate mode the GPUs that train also generate",
            "leave it out, or --vllm-mode server",
        )


def _refuse_others(wanted: RecipeRequest) -> None:
    said = [name for name in _OF_GRPO if getattr(wanted, name) is not None]
    if said:
        raise _refused(said[0], f"{said[0]} is of GRPO alone", "--job grpo, or leave it out")


def _refused(name: str, message: str, hint: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field=f"recipe.{name}")
