"""The recipe that a request means: what it says, and what is usual where it says nothing."""

from dataclasses import fields, replace

from planner.catalog import records
from planner.catalog.batches import usual_batch
from planner.core.errors import InvalidInputError
from planner.domain.cluster import Cluster, Gpu
from planner.domain.framework import Framework
from planner.domain.job import OF_PAIRS, POST_TRAINING, TILED, Recipe
from planner.domain.kept import GATED
from planner.domain.model import Model
from planner.request.assumed import (
    assumed_sequence_length,
    best_precision,
    loss_assumption,
    usual_attention,
    usual_choices,
    usual_loss,
)
from planner.request.fp8 import check_fp8_recipe
from planner.request.framework import check_choices, check_experts
from planner.request.global_batch import global_batch
from planner.request.post_training import reference_model
from planner.request.remarks import Assumption
from planner.request.rollout import (
    find_rollout,
    usual_completions,
    with_usual_length,
)
from planner.request.sections import RecipeRequest, StrategyRequest

_STEPS_IN_BACKWARD = ("torch", "accelerate")
"""Frameworks whose gradients are the parameters' own, for Tensor.register_post_accumulate_grad_hook to free."""
_CARRIED = {each.name for each in fields(Recipe)} & RecipeRequest.model_fields.keys() - {
    "lora",
    "weights_dtype",
}
"""What a recipe holds as a request says it; adapters and the weights' dtype also depend on the method."""


def resolve_recipe(
    wanted: RecipeRequest,
    strategy: StrategyRequest | None,
    model: Model,
    cluster: Cluster,
    framework: Framework,
) -> tuple[Recipe, list[Assumption]]:
    """Return the recipe with every gap filled, and what was assumed for it; adapters and dtype of weights aside.

    Raises:
        PlannerError: what is asked contradicts itself or the model, or the batch does not split.
    """
    asked, wanted = wanted, with_usual_length(wanted, model)
    sequence_length, assumptions = _sequence_length(wanted, strategy, model)
    sample_tokens = sequence_length * (2 if wanted.job in OF_PAIRS else 1)
    _check_target(wanted.target_length, model)
    padding_share, padding = _padding_share(wanted)
    training_tokens = _training_tokens(wanted, sample_tokens * (1 - padding_share))
    usual = usual_batch(
        model,
        sequence_length=sample_tokens,
        job=wanted.job,
        has_adapters=wanted.method != "full",
        training_tokens=training_tokens,
    )
    usual = usual_completions(sequence_length) if wanted.job == "grpo" else usual
    batch, assumed = global_batch(wanted, strategy, model, usual, cluster)
    generated, of_rollout = find_rollout(wanted, asked, model, sequence_length, batch)
    assumptions += [*assumed, *of_rollout]
    precision = wanted.precision or best_precision(cluster.gpu)
    optimizer = wanted.optimizer or framework.usual_optimizer
    attention = wanted.attention or usual_attention(model, framework)
    taken = {"precision": precision, "optimizer": optimizer}
    if any(part.attention for part in model.parts):
        taken["attention"] = attention
    assumptions += padding
    said = {name for name in wanted.model_fields_set if getattr(wanted, name) is not None}
    assumptions += usual_choices(taken, said)
    resolved = {
        "sequence_length": sequence_length,
        "global_batch_size": batch,
        "precision": precision,
        "optimizer": optimizer,
        "attention": attention,
        "expert_overlap": wanted.expert_parallel_overlap,
        "reference_model": reference_model(wanted),
        "loss": _loss(wanted),
        "rollout": generated,
        "padding_share": padding_share,
        "training_tokens": training_tokens,
    }
    recipe = Recipe(**{name: getattr(wanted, name) for name in _CARRIED} | resolved)
    return recipe, assumptions


def _loss(wanted: RecipeRequest) -> str:
    """Return the loss: as said, or that of TRL's DPO and GRPO, which never hold all logits."""
    is_open = "loss" not in wanted.model_fields_set
    return "chunked" if is_open and wanted.job in TILED else wanted.loss


def with_usual_loss(
    recipe: Recipe, strategy: StrategyRequest | None, model: Model, framework: Framework
) -> tuple[Recipe, list[Assumption]]:
    """Return the recipe of a run of others with the loss that such runs have, and what was assumed for it."""
    pieces = strategy.context_parallel_size if strategy else 1
    loss = usual_loss(framework, model, recipe.sequence_length // pieces)
    return replace(recipe, loss=loss), loss_assumption(loss)


def check_recipe(recipe: Recipe, model: Model, framework: Framework, gpu: Gpu) -> None:
    """Refuse what the framework, the model or the card cannot do.

    Raises:
        PlannerError: says what, and what can.
    """
    check_choices(framework, recipe.job, recipe.precision, recipe.optimizer)
    check_fp8_recipe(recipe.fp8_recipe, recipe.precision, framework, gpu)
    check_experts(model, dispatch=recipe.expert_dispatch, is_overlapped=recipe.expert_overlap)
    _check_loss(recipe.loss, model, framework)
    _check_loss_of_pairs(recipe)
    _check_step_in_backward(recipe, framework)
    _check_activation_input(recipe, model, framework)


def _check_activation_input(recipe: Recipe, model: Model, framework: Framework) -> None:
    """Refuse activations in fp8 of a framework that has none, or of a model without a gate.

    Source: Megatron-LM core/transformer/transformer_config.py, activation_func_fp8_input_store: of SwiGLU alone.
    """
    if not recipe.fp8_activation_input:
        return
    is_gated = any(kept.name == GATED for part in model.blocks for kept in part.kept)
    if framework.name != "megatron" or not is_gated:
        raise InvalidInputError(
            f"only megatron keeps a gated activation's input in fp8, not {framework.name} of {model.name}",
            hint="leave fp8_activation_input out",
            field="recipe.fp8_activation_input",
        )


def _check_loss(loss: str, model: Model, framework: Framework) -> None:
    """Refuse a loss that the framework has not, or that the model has no use for.

    Raises:
        InvalidInputError: names the losses and the frameworks that there are.
    """
    if loss == "standard":
        return
    if not model.has_token_loss:
        raise InvalidInputError(
            f"a {loss} loss needs a language-model head, and {model.name} is trained for {model.task}",
            hint="--loss standard",
            field="recipe.loss",
        )
    if loss not in framework.capabilities.losses:
        records_of_all = map(records.framework, records.framework_names())
        able = [each.name for each in records_of_all if loss in each.capabilities.losses]
        raise InvalidInputError(
            f"loss {loss!r} is not estimated for {framework.name}",
            hint=f"{framework.name} has {', '.join(framework.capabilities.losses)}; {loss} is that of"
            f" {', '.join(able)}",
            field="recipe.loss",
        )


def _check_loss_of_pairs(recipe: Recipe) -> None:
    """Refuse a loss that no trainer of pairs has.

    Source: TRL 1.16: DPOTrainer scores answers in tiles, where its releases before held all logits; experimental
    CPOTrainer (SimPO too) and ORPOTrainer hold them.
    """
    known = ("chunked", "standard") if recipe.job in TILED else ("standard",)
    if recipe.compares_log_probabilities and recipe.loss not in known:
        raise InvalidInputError(
            f"{recipe.job} is not trained with a {recipe.loss} loss",
            hint=f"--loss {' or '.join(known)}",
            field="recipe.loss",
        )


def _check_step_in_backward(recipe: Recipe, framework: Framework) -> None:
    """Refuse to step inside backward where gradients stay whole all the same, or need a look at all of them.

    Raises:
        InvalidInputError: the framework has gradient buffers of its own, or a loss scale is checked first.
    """
    if not recipe.optimizer_in_backward:
        return
    if framework.name not in _STEPS_IN_BACKWARD:
        raise InvalidInputError(
            f"optimizer_in_backward is not estimated for {framework.name}, whose gradients have buffers of"
            " their own or are stepped together",
            hint=f"it is for {', '.join(_STEPS_IN_BACKWARD)}",
            field="recipe.optimizer_in_backward",
        )
    if recipe.precision == "fp16-mixed":
        raise InvalidInputError(
            "fp16-mixed checks all gradients before it steps any, so the optimizer cannot step in backward",
            hint="--precision bf16-mixed, or no --optimizer-in-backward",
            field="recipe.optimizer_in_backward",
        )


def _sequence_length(
    wanted: RecipeRequest, strategy: StrategyRequest | None, model: Model
) -> tuple[int, list[Assumption]]:
    length = wanted.sequence_length
    pieces = strategy.context_parallel_size if strategy else 1
    assumed = assumed_sequence_length(model, pieces, wanted.job)
    if model.reads_images:
        _check_images(length, assumed, model)
        return assumed, []
    if length is None:
        length = assumed
        text = f"{length:,} tokens per sequence"
        return length, [Assumption(text=text, field="recipe.sequence_length")]
    if length > model.max_position_embeddings and model.has_learned_positions:
        raise InvalidInputError(
            f"{model.name} has {model.max_position_embeddings:,} learned positions,"
            f" so sequences of {length:,} tokens cannot run",
            hint=f"at most {model.max_position_embeddings:,}",
            field="recipe.sequence_length",
        )
    return length, []


def _check_images(length: int | None, own: int, model: Model) -> None:
    """Refuse another length for images, which are as large as the model's config says."""
    if length not in {None, own}:
        raise InvalidInputError(
            f"{model.name} reads images, and they have no sequence length",
            hint=f"leave it out: its config makes {own:,} positions of each image",
            field="recipe.sequence_length",
        )


def _check_target(length: int | None, model: Model) -> None:
    """Refuse a target of a model that has none, or that is longer than its positions."""
    if length is None:
        return
    if not any(part.is_target for part in model.parts):
        raise InvalidInputError(
            f"{model.name} has no encoder, and so no target of its own length",
            hint="leave target_length out; it is for encoder-decoders of text such as T5 and BART",
            field="recipe.target_length",
        )
    if length > model.max_position_embeddings and model.has_learned_positions:
        raise InvalidInputError(
            f"{model.name} has {model.max_position_embeddings:,} learned positions,"
            f" so targets of {length:,} tokens cannot run",
            hint=f"at most {model.max_position_embeddings:,}",
            field="recipe.target_length",
        )


def _padding_share(wanted: RecipeRequest) -> tuple[float, list[Assumption]]:
    share, is_said = wanted.padding_share or 0.0, "packed" in wanted.model_fields_set
    if is_said and wanted.packed and wanted.job in POST_TRAINING:
        raise InvalidInputError(
            f"{wanted.job} pads answers to the longest of a batch, and packs none",
            hint="--padded; --padding-share says how much of the tokens is padding",
            field="recipe.packed",
        )
    if share and is_said and wanted.packed:
        raise InvalidInputError(
            f"packed sequences have no padding, but the padding share is {share:g}",
            hint="--padded, or no --padding-share",
            field="recipe.padding_share",
        )
    if wanted.packed or wanted.padding_share is not None:
        return share, []
    text = "no padding in the sequences"
    return share, [Assumption(text=text, field="recipe.padding_share")]


def _training_tokens(wanted: RecipeRequest, tokens_per_sample: float) -> int:
    if wanted.training_tokens and wanted.training_samples:
        raise InvalidInputError(
            "the run's length is given in tokens and in samples",
            hint="give one of them",
            field="recipe.training_samples",
        )
    return wanted.training_tokens or int((wanted.training_samples or 0) * tokens_per_sample)
