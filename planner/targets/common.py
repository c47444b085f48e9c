"""What no target writes, whatever the layout."""

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.targets.base import refusal

TASKS = ("causal-lm", "masked-lm", "sequence-classification")
"""Those that the scripts have a data set and a loss for."""
PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
OPTIMIZERS = ("adamw",)


def judge(job: Job, _s: Strategy) -> tuple[Breach, ...]:
    """Return why no target writes files for the job."""
    recipe, task = job.recipe, job.model.task
    vendor = records.vendor(job.cluster.gpu.vendor)
    return (
        refusal(
            recipe.lora is not None,
            "the scripts train all weights, not adapters",
            "recipe.method",
            hint="--method full has files; PEFT's own examples train adapters",
        ),
        refusal(
            job.is_in_config_dtype,
            "the scripts keep weights in fp32 under mixed precision, not in the config's dtype",
            "recipe.weights_dtype",
            hint="--weights fp32, or --precision bf16 for all in 16 bit",
        ),
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
            recipe.optimizer not in OPTIMIZERS,
            "the scripts step {optimizers}, not {optimizer}",
            "recipe.optimizer",
            optimizer=recipe.optimizer,
            optimizers=", ".join(OPTIMIZERS),
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
