"""Which files train on pairs of answers."""

from planner.domain.breach import Breach
from planner.domain.job import OF_PAIRS, Job
from planner.targets.base import refusal

_WRITTEN = ("dpo", "reward")


def files(job: Job, target: str) -> Breach:
    """Return why a target has no files for a job on pairs."""
    recipe = job.recipe
    is_other = target != "trainer"
    return refusal(
        recipe.job in OF_PAIRS and (is_other or recipe.job not in _WRITTEN),
        "{job} is in the files of trainer alone" if recipe.job in _WRITTEN else "{why}",
        "recipe.job",
        job=recipe.job,
        why=f"files are written for {' and '.join(_WRITTEN)}: TRL's {recipe.job} is an experiment",
    )


def judge(job: Job) -> tuple[Breach, ...]:
    """Return why TRL's trainers of pairs do not run a recipe."""
    recipe = job.recipe
    return (
        refusal(
            recipe.job == "dpo" and recipe.loss == "standard",
            "TRL's DPO holds logits in tiles, not all of them",
            "recipe.loss",
            hint="--loss chunked",
        ),
        refusal(
            recipe.job in OF_PAIRS and recipe.compile,
            "TRL's trainers of pairs are not compiled",
            "recipe.compile",
            hint="--no-compile",
        ),
        refusal(
            recipe.reference_model == "loaded" and recipe.lora is not None,
            "beside adapters TRL compares with the policy without them",
            "recipe.reference_model",
            hint="--reference-model shared",
        ),
    )
