"""What a job on preferences needs of its model and its method, and where its reference log-probabilities are from."""

from planner.core.errors import InvalidInputError, UnsupportedError
from planner.domain.job import ReferenceModel
from planner.domain.model import Model
from planner.models.architectures.heads import has_head
from planner.request.sections import RecipeRequest

_SCORES = "sequence-classification"
TRAINED_BY_TRL = ("torch", "accelerate", "deepspeed")


def post_training_task(wanted: RecipeRequest, model: Model) -> str:
    """Return the task whose head the model has in such a job; "" for its own.

    Raises:
        PlannerError: the framework does not train so, or the model has none of the weights or heads that it needs.
    """
    job = str(wanted.job)
    if wanted.framework not in TRAINED_BY_TRL:
        raise UnsupportedError(
            f"{job} is estimated as TRL trains it, on torch or DeepSpeed, not {wanted.framework[:40]}",
            hint="--framework torch, or deepspeed",
            field="recipe.framework",
        )
    if model.task not in {"causal-lm", "none", _SCORES}:
        raise InvalidInputError(
            f"{job} trains decoders that write text, and {model.name[:60]} is trained for {model.task}",
            hint="--job finetune, or a decoder's id",
            field="recipe.job",
        )
    needed = _SCORES if job == "reward" else "causal-lm"
    if wanted.task is not None and wanted.task != needed:
        raise InvalidInputError(
            f"{job} trains a model for {needed}, not for {wanted.task}",
            hint="leave task out",
            field="recipe.task",
        )
    if job == "reward" and not has_head(model.model_type, _SCORES):
        raise InvalidInputError(
            f"transformers has no head that scores sequences for {model.model_type}",
            hint="--job dpo, or a model that has one, such as Qwen/Qwen2.5-7B",
            field="recipe.job",
        )
    return _SCORES if job == "reward" else ""


def reference_model(wanted: RecipeRequest) -> ReferenceModel | None:
    """Return where a job's reference log-probabilities come from; None where it has no use for any.

    Source: TRL 1.16, trainer/dpo_trainer.py: a second copy of the weights where nobody says, and the policy with its
    adapters off where it has some; GRPOConfig, whose beta is 0.

    Raises:
        InvalidInputError: the job or its method rules out what is said.
    """
    said, has_adapters = wanted.reference_model, wanted.method != "full"
    if wanted.job == "dpo":
        if said == "none":
            raise _refused("DPO compares with a reference", "--job simpo or orpo have none")
        if said == "shared" and not has_adapters:
            raise _refused(
                "without adapters all weights are trained, so the policy cannot be its own reference",
                "--reference-model loaded or precomputed, or --method lora",
            )
        return said or ("shared" if has_adapters else "loaded")
    own: ReferenceModel = "shared" if has_adapters else "loaded"
    if wanted.job == "grpo" and wanted.beta:
        if said not in {None, own}:
            raise _refused(
                f"beside a beta of {wanted.beta:g} TRL's GRPO has a {own} reference, not {said}",
                f"--reference-model {own}{'' if said != 'none' else ', or --beta 0'}",
            )
        return own
    if said in {None, "none"}:
        return None
    other = ", or --beta 0.04" if wanted.job == "grpo" and said == own else ""
    raise _refused(
        f"{wanted.job or 'a job on texts'} has no reference model{' where beta is 0' if wanted.job == 'grpo' else ''}",
        f"leave reference_model out{other}",
    )


def _refused(message: str, hint: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field="recipe.reference_model")
