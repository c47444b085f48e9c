"""What to write down for a batch, framework by framework: sizes, steps of the schedule, warm-up."""

from collections.abc import Mapping

from planner.advice.batch_arithmetic import BatchSplit, RunSteps
from planner.core.units import format_steps


def settings(
    split: BatchSplit, run: RunSteps | None, warmup_steps: int | None
) -> Mapping[str, tuple[str, ...]]:
    """Return the settings of each framework for a batch, as one would type them.

    Source: PyTorch 2.13, accelerate 1.15.0 (AcceleratedScheduler), transformers 5.23
    (TrainingArguments), DeepSpeed 0.19.8 (runtime/config.py, runtime/lr_schedules.py).

    Args:
        split: of the global batch.
        run: None where the length of the run is unknown.
        warmup_steps: of the run; None as for it.
    """
    trainer = (
        f"per_device_train_batch_size={split.micro_batch_size},"
        f" gradient_accumulation_steps={split.gradient_accumulation_steps}"
    )
    deepspeed = (
        f'"train_micro_batch_size_per_gpu": {split.micro_batch_size},'
        f' "gradient_accumulation_steps": {split.gradient_accumulation_steps},'
        f' "train_batch_size": {split.global_batch_size}'
    )
    sizes = {
        "torch": _torch(split),
        "accelerate": _accelerate(split),
        "transformers": (trainer,),
        "deepspeed": (deepspeed,),
    }
    if run is None or warmup_steps is None:
        return sizes
    steps, ranks = format_steps(run.steps), split.data_parallel_size
    warmed, each_call = (
        f"{warmup_steps * ranks} of them warm-up",
        f": each call steps it {ranks} times",
    )
    schedules = {
        "torch": f"a schedule of {steps}, {warmup_steps} of them warm-up, stepped with the optimizer",
        "accelerate": f"a prepared schedule of {format_steps(run.steps * ranks)}, {warmed}"
        + (each_call if ranks > 1 else ""),
        "transformers": f"num_train_epochs={run.epochs:g}, warmup_steps={warmup_steps}; no max_steps: it makes the"
        f" {steps} of its schedule itself",
        "deepspeed": f'"scheduler": WarmupDecayLR with "total_num_steps": {run.steps}, "warmup_num_steps":'
        f" {warmup_steps}",
    }
    return {name: (*lines, schedules[name]) for name, lines in sizes.items()}


def _torch(split: BatchSplit) -> tuple[str, ...]:
    steps, is_alone = split.gradient_accumulation_steps, split.data_parallel_size == 1
    sampler = ", sampler=DistributedSampler(...)), and sampler.set_epoch(epoch)"
    loader = f"DataLoader(batch_size={split.micro_batch_size}{', shuffle=True)' if is_alone else sampler}"
    unsynchronized = "" if is_alone else f", and no_sync() on all but the last of each {steps}"
    scaled = f"loss / {steps} for each micro-batch{unsynchronized}"
    return (loader, scaled) if steps > 1 else (loader,)


def _accelerate(split: BatchSplit) -> tuple[str, ...]:
    steps = split.gradient_accumulation_steps
    loader = (
        f"DataLoader(batch_size={split.micro_batch_size}): of each rank, unless split_batches=True"
    )
    scaled = (
        f"Accelerator(gradient_accumulation_steps={steps}); with accelerator.accumulate(model): ..."
    )
    return (loader, scaled) if steps > 1 else (loader,)
