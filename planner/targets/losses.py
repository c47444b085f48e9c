"""Which of a recipe's losses a target's files have."""

from types import MappingProxyType

from planner.catalog.configs import model_support
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.targets.base import refusal

_WORDS = MappingProxyType(
    {
        "chunked": "a divided model's script holds the logits of a whole micro-batch, not of chunks",
        "fused": "a fused loss is Liger's, which knows the whole models of transformers",
    }
)


def standard_alone(job: Job, words: str = "") -> Breach:
    """Return why files that hold all logits at once refuse another loss."""
    loss = job.recipe.loss
    return refusal(
        loss != "standard",
        "{why}",
        "recipe.loss",
        hint="--loss standard",
        why=words or _WORDS.get(loss, loss),
    )


def lighter(job: Job) -> tuple[Breach, ...]:
    """Return why a script of transformers' models does not compute the loss without holding all logits."""
    loss, kind, task = job.recipe.loss, job.model.model_type[:40], job.model.task
    caps = bool(job.model.config.get("final_logit_softcapping"))
    is_causal, known = task == "causal-lm", model_support()
    return (
        refusal(
            loss == "chunked" and (kind not in known.chunked_loss or caps or not is_causal),
            "no loss in chunks of tokens is written for models of type {kind} trained for {task}",
            "recipe.loss",
            hint="--loss standard",
            kind=kind,
            task=task,
        ),
        refusal(
            loss == "fused" and (kind not in known.fused_loss or not is_causal),
            "Liger has no fused loss for models of type {kind} trained for {task}",
            "recipe.loss",
            hint="--loss standard",
            kind=kind,
            task=task,
        ),
    )
