"""Which files train on pairs of answers, and on the model's own."""

from planner.domain.breach import Breach
from planner.domain.job import POST_TRAINING, TILED, Job
from planner.targets.base import refusal

_WRITTEN = ("dpo", "reward", "grpo")


def files(job: Job, target: str) -> Breach:
    """Return why a target has no files for a job of TRL's own trainers."""
    recipe = job.recipe
    is_other = target != "trainer"
    return refusal(
        recipe.job in POST_TRAINING and (is_other or recipe.job not in _WRITTEN),
        "{job} is in the files of trainer alone" if recipe.job in _WRITTEN else "{why}",
        "recipe.job",
        job=recipe.job,
        why=f"TRL's {recipe.job} is experimental, and has no files: {', '.join(_WRITTEN)} have",
    )


def judge(job: Job) -> tuple[Breach, ...]:
    """Return why TRL's trainers of answers do not run a recipe."""
    recipe = job.recipe
    return (
        refusal(
            recipe.job in TILED and recipe.loss == "standard",
            "TRL's {job} holds logits in tiles, not all of them",
            "recipe.loss",
            hint="--loss chunked",
            job=str(recipe.job).upper(),
        ),
        refusal(
            recipe.rollout is not None
            and recipe.rollout.vllm_mode != "none"
            and job.cluster.gpu.vendor != "nvidia",
            "vLLM as pip installs it is for NVIDIA's GPUs",
            "recipe.vllm_mode",
            hint="--vllm-mode none",
        ),
        refusal(
            recipe.rollout is not None and not job.model.is_pretrained,
            "GRPO starts from a model that writes, and this one has no weights",
            "model",
        ),
        refusal(
            recipe.compile,
            "TRL's trainers of answers are not compiled",
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
