"""What no target writes, whatever the layout, and what several refuse."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from planner.catalog import records
from planner.catalog.configs import model_support
from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.core.remembered import remembered
from planner.domain.breach import Breach
from planner.domain.framework import Framework
from planner.domain.job import Job
from planner.domain.model import Model
from planner.domain.strategy import Recompute, Strategy
from planner.targets import titan_models
from planner.targets.base import refusal


@frozen
class Task:
    """What the scripts train a model for, with a data set and a loss."""

    auto_class: str
    """transformers' class that loads such a model."""
    model_types: tuple[str, ...] = ()
    """Where the scripts know the inputs of some models alone: from text or sound to text, and pieces of images."""
    not_written_for: tuple[str, ...] = ()
    """Models with such a head whose inputs the scripts do not know."""
    corpus: str = "corpus.txt"
    """What READMEs call the user's file."""
    sample: str = "sequence"
    """What READMEs call a sample."""
    data_packages: tuple[str, ...] = ()
    """What reads the files, where samples are no text."""
    has_classes: bool = False


@frozen
class _Tasks:
    source: str
    tasks: Mapping[str, Task]


@cache
def tasks() -> Mapping[str, Task]:
    """Return the tasks by name."""
    return build(_Tasks, read("scripts", "tasks"), "scripts/tasks").tasks


FROM_TEXT_ALONE = ("causal-lm", "masked-lm")
"""Tasks of the scripts that have their own loop, whose samples are tokens, packed into sequences."""

PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")


FIRST_WITH_FLASH = (8, 0)
"""Compute capability: Ampere."""
_WITHOUT_A_HEAD = "none"
"""Task of a model whose class has nothing to train towards."""
_TRITON = (7, 0)
"""Compute capability from which PyTorch's compiler has kernels: has_triton of torch/utils/_triton.py."""
OWN_MODELS = ("megatron", "nanotron", "torchtitan", "composer")
"""Frameworks with models and attention of their own, of which transformers says nothing."""
WITH_INDEXERS = ("deepseek_v32", "glm_moe_dsa")
"""Models whose indexers pick keys without gradients."""


@frozen
class Converted:
    """A type of model whose weights Megatron Bridge brings into Megatron's format."""

    stored_in: tuple[str, ...] = ()
    """How they may be quantised on the Hub."""


@frozen
class _Bridge:
    source: str
    models: Mapping[str, Converted]


@cache
def converted() -> Mapping[str, Converted]:
    """Return them by `model_type`."""
    return build(_Bridge, read("scripts", "bridge"), "scripts/bridge").models


def _is_converted(config: Mapping[str, object]) -> bool:
    return config.get("model_type") in converted()


_READERS: Mapping[str, Callable[[Mapping[str, object]], bool]] = {
    "torchtitan": titan_models.loads_weights,
    "megatron": _is_converted,
}
"""Of a framework with models of its own, whether its files load the Hub's weights of a config.json's model."""


def loads_weights(framework: str, *, config: Mapping[str, object], has_adapters: bool) -> bool:
    """Return whether a framework's files start from a model's trained weights; its own models may be made at random."""
    reads = _READERS.get(framework)
    return has_adapters or framework not in OWN_MODELS or (reads is not None and reads(config))


@remembered(4)
def judge(job: Job) -> tuple[Breach, ...]:
    """Return why no target writes files for the job."""
    recipe, task = job.recipe, job.model.task
    kind, vendor = job.model.model_type, records.vendor(job.cluster.gpu.vendor)
    known = tasks().get(task)
    kinds = (known and known.model_types) or (kind,)
    return (
        refusal(
            not vendor.has_launch_files,
            "{gpu} runs PyTorch's {build} build, and no file installs and starts it",
            "cluster.gpu",
            gpu=job.cluster.gpu.name,
            build=vendor.pytorch_build,
        ),
        refusal(
            task == _WITHOUT_A_HEAD,
            "the model has no head to train: of a text model --task sequence-classification or"
            " token-classification gives it one",
            "recipe.task",
        ),
        refusal(
            task not in {*tasks(), _WITHOUT_A_HEAD},
            "the scripts train {tasks}, not {task}",
            "recipe.task",
            task=task,
            tasks=", ".join(tasks()),
        ),
        refusal(
            kind not in kinds,
            "for {task} the scripts know the inputs of {kinds}, not of models of type {kind}",
            "model",
            task=task,
            kind=kind[:40],
            kinds=", ".join(kinds),
        ),
        refusal(
            known is not None and kind in known.not_written_for,
            "for {task} the scripts do not know the inputs of models of type {kind}",
            "model",
            task=task,
            kind=kind[:40],
        ),
        refusal(
            lacks_attention(job),
            "transformers has no {attention} attention for models of type {kind}",
            "recipe.attention",
            hint="--attention eager",
            attention=recipe.attention,
            kind=kind[:40],
        ),
        refusal(
            lacks_flash_attention(job),
            "FlashAttention does not run on {gpu}, which is older than Ampere",
            "recipe.attention",
            hint="--attention sdpa",
            gpu=job.cluster.gpu.name,
        ),
    )


def for_vendor(job: Job, target: str) -> Breach:
    """Return why a target's files are for the GPUs of another vendor than the job's."""
    gpu = job.cluster.gpu
    why = records.vendor(gpu.vendor).unwritten.get(target, "")
    return refusal(why != "", why, "cluster.gpu", hint="--framework torch", gpu=gpu.name)


def lacks_attention(job: Job) -> bool:
    """Return whether the scripts run transformers' model, which is without the recipe's attention."""
    return is_without_attention(job.model, job.framework, job.recipe.attention)


def is_without_attention(model: Model, framework: Framework, attention: str) -> bool:
    """Return whether a framework runs transformers' models, of which this one has no such attention."""
    if framework.name in OWN_MODELS:
        return False
    return model.model_type in model_support().without_attention.get(attention, ())


def lacks_flash_attention(job: Job) -> bool:
    """Return whether the recipe has FlashAttention on a card older than Ampere; other makers have their own.

    Source: Dao-AILab/flash-attention README.md, CUDA support: Ampere, Ada, or Hopper GPUs.
    """
    capability = job.cluster.gpu.compute_capability
    if job.recipe.attention != "flash" or not capability:
        return False
    return tuple(int(number) for number in capability.split(".")) < FIRST_WITH_FLASH


def unused_by_backward(job: Job, s: Strategy) -> Breach:
    """Return why replicas without shards do not train a model whose indexer has no gradients.

    Tried on two processes with transformers 5.23: DDP raises in the second step, FSDP2 trains.
    """
    return refusal(
        (job.model.model_type in WITH_INDEXERS)
        & np.logical_not(s.shards_gradients)
        & (np.asarray(s.data_parallel_size) > 1),
        "an indexer's parameters get no gradients, for which DDP waits; FSDP (ZeRO-3) does not",
        hint="--strategy zero-3",
    )


def recomputed(job: Job, s: Strategy) -> Breach:
    """Return why a script that has transformers recompute the blocks does not."""
    kind = job.model.model_type
    return refusal(
        (np.asarray(s.recompute) != Recompute.NONE) & (kind in model_support().without_recompute),
        "transformers recomputes nothing in models of type {kind}",
        "strategy.recompute",
        hint="--recompute none",
        kind=kind[:40],
    )


def from_text_alone(job: Job) -> Breach:
    """Return why a script with its own loop trains for a few tasks alone."""
    return refusal(
        job.model.task not in FROM_TEXT_ALONE,
        "for {task} there are the files of trainer: its own loop reads text and tokens",
        "recipe.task",
        task=job.model.task,
    )


def precision(job: Job) -> Breach:
    """Return why a script of PyTorch's own precisions refuses the job's."""
    return refusal(
        job.recipe.precision not in PRECISIONS,
        "the scripts run {precisions}, not {precision}",
        "recipe.precision",
        precision=job.recipe.precision,
        precisions=", ".join(PRECISIONS),
    )


def trains_in_config_dtype(job: Job) -> bool:
    """Return whether weights are trained in the 16 bit that config.json names; frozen ones are not."""
    return job.is_in_config_dtype and job.recipe.lora is None


def compiled(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why a script that compiles a model's blocks one by one refuses a layout."""
    recipe, is_compiled = job.recipe, job.recipe.compile
    is_selective = np.asarray(s.recompute) == Recompute.SELECTIVE
    version = records.capability_version(job.cluster.gpu.compute_capability)
    return (
        refusal(
            is_compiled and () < version < _TRITON,
            "PyTorch's compiler has no kernels for cards older than Volta",
            "recipe.compile",
        ),
        refusal(
            is_compiled & np.asarray(s.divides_model),
            "blocks that are divided over GPUs are not compiled",
            "recipe.compile",
        ),
        refusal(
            is_compiled & is_selective,
            "selective recompute picks operations that compiling joins",
            "recipe.compile",
        ),
        refusal(
            is_compiled and recipe.lora is not None and recipe.lora.is_quantised,
            "blocks with quantised weights are not compiled",
            "recipe.compile",
        ),
    )


def loss_scale(job: Job) -> Breach:
    """Return why a loss scale refuses weights in the config's dtype."""
    return refusal(
        job.recipe.precision == "fp16-mixed" and trains_in_config_dtype(job),
        "a loss scale in fp16 needs weights in fp32",
        "recipe.weights_dtype",
        hint="--weights fp32",
    )
