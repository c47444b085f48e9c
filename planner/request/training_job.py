"""Which job a request means: the training of weights that there are, or of random ones, and for which task."""

from dataclasses import replace

from planner.catalog.batches import fewest_pretraining_tokens, starts_from_random
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_count
from planner.domain.job import POST_TRAINING, JobName
from planner.domain.model import Model
from planner.models.architectures.heads import has_head
from planner.request.assumed import assumed_sequence_length
from planner.request.post_training import post_training_task
from planner.request.remarks import Assumption
from planner.request.sections import RecipeRequest, StrategyRequest

_TASK = "sequence-classification"
"""That encoders of texts are most often tuned to, where nobody names a task."""
_WITHOUT_TASK = ("masked-lm", "none")


@frozen
class TrainingJob:
    """What a request means, in the words of `planner.domain.job.Recipe.job`."""

    name: JobName | None
    task: str = ""
    """That is assumed; "" for the request's, or else the model's own."""
    assumptions: tuple[Assumption, ...] = ()

    def of(self, model: Model) -> Model:
        """Return the model as the job starts it: with the weights that there are, or without."""
        is_random = self.name == "pretrain" and model.is_pretrained
        return replace(model, is_pretrained=False) if is_random else model


def training_job(
    wanted: RecipeRequest, strategy: StrategyRequest | None, model: Model
) -> TrainingJob:
    """Return the job that a request means: as it says, or as its method, its model or its tokens imply.

    Else weights of the Hub are fine-tuned, where its batch is not said either: of a batch that is, both jobs
    may be meant, and neither is assumed.

    Raises:
        InvalidInputError: it says a job that its method or its model does not allow.
    """
    if wanted.job is not None:
        _check(wanted, model)
        if wanted.job in POST_TRAINING:
            return TrainingJob(name=wanted.job, task=post_training_task(wanted, model))
        task = _task(wanted, model) if wanted.job == "finetune" else ""
        return TrainingJob(name=wanted.job, task=task, assumptions=_assumed_task(task))
    if wanted.method != "full":
        return TrainingJob(name="finetune")
    if not model.is_pretrained:
        return TrainingJob(name="pretrain")
    return _open_job(wanted, strategy, model)


def _open_job(wanted: RecipeRequest, strategy: StrategyRequest | None, model: Model) -> TrainingJob:
    tokens = _tokens(wanted, strategy, model)
    if starts_from_random(model, tokens):
        text = f"pre-training from random weights, as runs of {format_count(tokens)} tokens are"
        return TrainingJob(name="pretrain", assumptions=(_of_job(text),))
    if _says_batch(wanted, strategy):
        return TrainingJob(name=None)
    if tokens >= fewest_pretraining_tokens(model):
        return TrainingJob(
            name=None, assumptions=(_of_job("pre-training continues from the published weights"),)
        )
    task = _task(wanted, model)
    assumed = _of_job("fine-tuning from the published weights")
    return TrainingJob(name="finetune", task=task, assumptions=(assumed, *_assumed_task(task)))


def _of_job(text: str) -> Assumption:
    return Assumption(text=text, field="recipe.job")


def _assumed_task(task: str) -> tuple[Assumption, ...]:
    said = {_TASK: "a head that classifies sequences"}
    return (Assumption(text=said[task], field="recipe.task"),) if task else ()


def _task(wanted: RecipeRequest, model: Model) -> str:
    is_left_open = wanted.task is None and model.task in _WITHOUT_TASK
    return _TASK if is_left_open and has_head(model.model_type, _TASK) else ""


def _check(wanted: RecipeRequest, model: Model) -> None:
    """Refuse a job that the method or the model does not allow.

    Raises:
        InvalidInputError: says which, and what to leave out.
    """
    if wanted.job == "pretrain" and wanted.method != "full":
        raise InvalidInputError(
            f"{wanted.method} needs trained weights, and pre-training starts from random ones",
            hint="--job finetune, or --method full",
            field="recipe.job",
        )
    if wanted.job != "pretrain" and not model.is_pretrained and wanted.method == "full":
        raise InvalidInputError(
            f"{model.name[:60]} has no weights to fine-tune: it is a config alone",
            hint="give the model's Hub id or the folder of its weights; or --job pretrain",
            field="recipe.job",
        )


def _says_batch(wanted: RecipeRequest, strategy: StrategyRequest | None) -> bool:
    is_implied = strategy and strategy.micro_batch_size and strategy.gradient_accumulation_steps
    return bool(wanted.global_batch_size or wanted.global_batch_tokens or is_implied)


def _tokens(wanted: RecipeRequest, strategy: StrategyRequest | None, model: Model) -> float:
    """Return the tokens of the run, padding among those of samples; 0 where nobody says."""
    pieces = strategy.context_parallel_size if strategy else 1
    length = wanted.sequence_length or assumed_sequence_length(model, pieces)
    return wanted.training_tokens or (wanted.training_samples or 0) * length
