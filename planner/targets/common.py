"""What no target writes, whatever the layout, and what several refuse."""

from collections.abc import Mapping
from types import MappingProxyType

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.targets import some_layers
from planner.targets.base import refusal

TASKS = (
    "causal-lm",
    "masked-lm",
    "sequence-classification",
    "seq2seq-lm",
    "image-classification",
)
"""Those that the scripts have a data set and a loss for."""
_TYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "seq2seq-lm": ("t5", "mt5", "bart"),
        "image-classification": ("vit", "deit", "dinov2", "swin"),
    }
)
"""Where the scripts know the inputs of some models alone: from text to text, and pieces of images."""
PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
OPTIMIZERS = ("adamw",)


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why no target writes files for the job."""
    recipe, task = job.recipe, job.model.task
    kind, vendor = job.model.model_type, records.vendor(job.cluster.gpu.vendor)
    kinds = _TYPES.get(task, (kind,))
    return (
        refusal(
            not vendor.has_launch_files,
            "{gpu} runs PyTorch's {build} build, and the files install and start CUDA's",
            "cluster.gpu",
            gpu=job.cluster.gpu.name,
            build=vendor.pytorch_build,
        ),
        refusal(
            task not in TASKS,
            "the scripts train {tasks}, not {task}",
            "recipe.task",
            task=task,
            tasks=", ".join(TASKS),
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
            recipe.optimizer not in OPTIMIZERS,
            "the scripts step {optimizers}, not {optimizer}",
            "recipe.optimizer",
            optimizer=recipe.optimizer,
            optimizers=", ".join(OPTIMIZERS),
        ),
        some_layers.on_gpu(s),
        refusal(
            recipe.optimizer_in_backward,
            "the scripts step the optimizer after backward, once gradients are clipped",
            "recipe.optimizer_in_backward",
            hint="--no-optimizer-in-backward",
        ),
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


def loss_scale(job: Job) -> Breach:
    """Return why a loss scale refuses weights in the config's dtype."""
    return refusal(
        job.recipe.precision == "fp16-mixed" and trains_in_config_dtype(job),
        "a loss scale in fp16 needs weights in fp32",
        "recipe.weights_dtype",
        hint="--weights fp32",
    )
