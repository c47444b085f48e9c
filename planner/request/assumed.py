"""What is taken where a request says nothing: the length of a sequence, a recipe's choices, the weights' dtype."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from planner.domain.cluster import Gpu
from planner.domain.framework import Framework
from planner.domain.job import OF_PAIRS, Job
from planner.domain.model import Model
from planner.request.remarks import Assumption
from planner.targets.common import is_without_attention

ASSUMED_SEQUENCE_LENGTH = 4096
"""At most; a model with fewer positions gets as many as it has."""

_PAIRS_LENGTH = 1024
"""Of a prompt with one answer; source: TRL 1.16, max_length of DPOConfig and RewardConfig."""
_CHOICES = ("precision", "optimizer", "attention")
"""What custom decides of a recipe."""


def assumed_sequence_length(model: Model, pieces: int, job: str | None = None) -> int:
    """Return the tokens of a sequence: as many as the model has positions, of text up to 4,096, of pairs up to 1,024.

    Args:
        model: of what is trained.
        pieces: what the request divides a sequence into; the length is a multiple of it.
        job: as a request has it.
    """
    if model.reads_images:
        return model.max_position_embeddings
    most = _PAIRS_LENGTH if job in OF_PAIRS else ASSUMED_SEQUENCE_LENGTH
    longest = min(model.max_position_embeddings, most)
    return max(pieces, longest // pieces * pieces) if model.is_decoder else longest


def best_precision(gpu: Gpu) -> str:
    """Return the mixed precision that a GPU multiplies fastest in."""
    if "bf16" in gpu.peak_flops:
        return "bf16-mixed"
    return "fp16-mixed" if "fp16" in gpu.peak_flops else "fp32"


def usual_attention(model: Model, framework: Framework) -> Literal["sdpa", "eager"]:
    """Return PyTorch's fused attention, or the eager one of models for which transformers has no other."""
    return "eager" if is_without_attention(model, framework, "sdpa") else "sdpa"


def usual_loss(framework: Framework, model: Model, tokens: int) -> str:
    """Return how much of the logits exists at once in a run of which nobody says: see `Framework.usual_loss`.

    Args:
        framework: at the release that the run is of.
        model: which may have no such loss.
        tokens: that a rank has of each sequence.
    """
    if not model.has_token_loss:
        return "standard"
    is_long = 0 < framework.fuses_loss_from_tokens <= tokens
    return "fused" if is_long else framework.usual_loss


def loss_assumption(loss: str) -> list[Assumption]:
    """Return what was taken for a loss of which nobody says, where it is not the standard one."""
    if loss == "standard":
        return []
    text = f"{loss} loss, as is usual for such runs"
    return [Assumption(text=text, field="recipe.loss")]


def usual_choices(taken: Mapping[str, str], said: Collection[str]) -> list[Assumption]:
    """Return what was left to custom, as one assumption where it is every choice; none where all was said.

    Args:
        taken: a recipe's choices by field, such as its precision; of attention only where there is any.
        said: the fields that the request names.
    """
    left = [name for name in taken if name not in said]
    words = [f"{taken[name]} {name}" for name in left]
    if len(left) == len(_CHOICES):
        return [Assumption(text=", ".join(taken[name] for name in left), field="recipe")]
    return [
        Assumption(text=text, field=f"recipe.{name}")
        for text, name in zip(words, left, strict=True)
    ]


def weights_assumption(job: Job) -> list[Assumption]:
    """Return that fp32 weights were taken, where the config names 16 bit."""
    in_config = replace(job, recipe=replace(job.recipe, weights_dtype="config"))
    if job.is_in_config_dtype or not in_config.is_in_config_dtype:
        return []
    text = f"fp32 weights, though the config says {job.model.weights_dtype}"
    return [Assumption(text=text, field="recipe.weights_dtype")]
