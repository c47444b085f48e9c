"""How many sequences per optimizer step models are trained with, by what is trained."""

import numpy as np

from planner.catalog import records
from planner.catalog.learning_rates import find_recipe, pretraining
from planner.core.frozen import frozen
from planner.domain.job import trained_for
from planner.domain.model import Model

ASSUMED_TOKENS_PER_STEP = 524_288
"""Of a pre-training run: Brown et al., arXiv:2005.14165, table 2.1: 0.5 M tokens for models up to 760M parameters."""
_PRETRAINING = "pre-training"
_TRAINING = {"pretrain": _PRETRAINING, "dpo": "DPO", "reward": "reward modelling"}
_FEWEST_TOKENS_PER_PARAMETER = 0.5
"""Of a pre-training run: 270 G of MT-NLG's 530 G, the fewest of Hoffmann et al., arXiv:2203.15556, table 1."""
_PRETRAINED_FOR = ("causal-lm", "masked-lm", "none")
"""Tasks that whole models are pre-trained for; weights are tuned to the others."""


@frozen
class UsualBatch:
    """Sequences per optimizer step, smallest and largest of published runs that train the same."""

    smallest: float
    largest: float
    sequence_length: int
    """In tokens, of what those runs are compared with."""
    training: str
    """What those runs do, in a word or two: "pre-training", "fine-tuning"."""
    is_of_adapters: bool = False

    @property
    def is_pretraining(self) -> bool:
        """Return whether whole models are trained on text alone, not tuned to a task."""
        return self.training == _PRETRAINING


def usual_batch(
    model: Model,
    *,
    sequence_length: int,
    job: str | None = None,
    has_adapters: bool,
    training_tokens: float,
) -> UsualBatch:
    """Return the batch that published runs of one kind took.

    Where nobody says whether trained weights are tuned, they are where only adapters are trained, where the
    head is for a task, and where a run has fewer tokens than anybody pre-trains a model of that size with.

    Args:
        model: of what is trained.
        sequence_length: in tokens; some published batches are counted in those.
        job: as `planner.domain.job.Recipe` has it.
        has_adapters: whether only adapters are trained.
        training_tokens: of the whole run; 0 where nobody says.

    Source: `data/recipes/learning_rates.toml`, whose rates belong to these batches; of decoders that are
    pre-trained `usual_tokens_per_step`.
    """
    is_short = 0 < training_tokens < fewest_pretraining_tokens(model)
    is_tuned = model.is_pretrained and (is_short or model.task not in _PRETRAINED_FOR)
    if has_adapters or job not in {None, "pretrain"} or (not job and is_tuned):
        return tuning_batch(model, sequence_length, has_adapters=has_adapters, job=job)
    if model.task in {"causal-lm", "none"}:
        return UsualBatch(
            smallest=ASSUMED_TOKENS_PER_STEP / sequence_length,
            largest=usual_tokens_per_step(model.parameters) / sequence_length,
            sequence_length=sequence_length,
            training=_PRETRAINING,
        )
    # A masked model's weights are pre-trained further.
    return _published(model, sequence_length, "pretrain", is_pretrained=model.is_pretrained)


def fewest_pretraining_tokens(model: Model) -> float:
    """Return the tokens below which nobody pre-trains a model of that size, from whatever weights."""
    return _FEWEST_TOKENS_PER_PARAMETER * model.active_parameters


def starts_from_random(model: Model, training_tokens: float) -> bool:
    """Return whether a run has so many tokens that it is one from random weights.

    Source: `[pretraining]` of `data/recipes/learning_rates.toml`.
    Leaves out: weights that are trained further on as many, as CodeLlama's were: `--job finetune` says so.
    """
    known = pretraining()
    return training_tokens >= min(
        known.tokens_per_parameter * model.active_parameters, known.tokens
    )


def tuning_batch(
    model: Model, sequence_length: int, *, has_adapters: bool = False, job: str | None = None
) -> UsualBatch:
    """Return the batch that published runs took which tuned such weights, or adapters beside them."""
    return _published(model, sequence_length, job, is_pretrained=True, has_adapters=has_adapters)


def _published(
    model: Model,
    sequence_length: int,
    job: str | None,
    *,
    is_pretrained: bool,
    has_adapters: bool = False,
) -> UsualBatch:
    is_headless_image_model = model.reads_images and model.task == "none"
    recipe = find_recipe(
        task="image-classification" if is_headless_image_model else trained_for(job, model.task),
        model_type=model.model_type,
        is_pretrained=is_pretrained,
        has_adapters=has_adapters,
        parameters=model.parameters,
    )
    smallest, largest = recipe.sequences(sequence_length)
    training = _TRAINING.get(trained_for(job, str(job)), "fine-tuning")
    return UsualBatch(
        smallest=smallest,
        largest=largest,
        sequence_length=sequence_length,
        training=f"LoRA {training}" if has_adapters else training,
        is_of_adapters=has_adapters,
    )


def usual_tokens_per_step(parameters: int) -> int:
    """Return the batch that decoders of as many parameters were pre-trained with, in tokens.

    log(tokens) between the published points, by log(parameters); the end points beyond them.

    Source: `data/calibration/batches.toml`.
    Leaves out: the data and the loss, which set the critical batch (McCandlish et al.,
    arXiv:1812.06162).
    """
    known, tokens = np.log(np.array(records.usual_batches(), dtype=float)).T
    return round(float(np.exp(np.interp(np.log(max(1, parameters)), known, tokens))))
