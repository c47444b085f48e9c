"""What to write down for a batch, framework by framework: sizes, steps of the schedule, warm-up."""

from collections.abc import Mapping

from planner.advice.batches import BatchSplit, RunSteps
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
    return {
        "torch": _torch(split, run, warmup_steps),
        "accelerate": _accelerate(split, run, warmup_steps),
        "transformers": _trainer(split, run, warmup_steps),
        "deepspeed": _deepspeed(split, run, warmup_steps),
    }


def _torch(split: BatchSplit, run: RunSteps | None, warmup_steps: int | None) -> tuple[str, ...]:
    steps, is_alone = split.gradient_accumulation_steps, split.data_parallel_size == 1
    sampler = ", sampler=DistributedSampler(...)), and sampler.set_epoch(epoch)"
    lines = [
        f"DataLoader(batch_size={split.micro_batch_size}{', shuffle=True)' if is_alone else sampler}"
    ]
    if steps > 1:
        unsynchronized = "" if is_alone else f", and no_sync() on all but the last of each {steps}"
        lines.append(f"loss / {steps} for each micro-batch{unsynchronized}")
    if run is not None:
        lines.append(
            f"a schedule of {format_steps(run.steps)}, {warmup_steps} of them warm-up, stepped with the optimizer"
        )
    return tuple(lines)


def _accelerate(
    split: BatchSplit, run: RunSteps | None, warmup_steps: int | None
) -> tuple[str, ...]:
    ranks, steps = split.data_parallel_size, split.gradient_accumulation_steps
    lines = [
        f"DataLoader(batch_size={split.micro_batch_size}): of each rank, unless split_batches=True"
    ]
    if steps > 1:
        lines.append(
            f"Accelerator(gradient_accumulation_steps={steps}); with accelerator.accumulate(model): ..."
        )
    if run is not None and warmup_steps is not None:
        lines.append(
            f"a prepared schedule of {format_steps(run.steps * ranks)}, {warmup_steps * ranks} of them warm-up:"
            f" each call steps it {ranks} times"
            if ranks > 1
            else f"a prepared schedule of {format_steps(run.steps)}, {warmup_steps} of them warm-up"
        )
    return tuple(lines)


def _trainer(split: BatchSplit, run: RunSteps | None, warmup_steps: int | None) -> tuple[str, ...]:
    sizes = (
        f"per_device_train_batch_size={split.micro_batch_size},"
        f" gradient_accumulation_steps={split.gradient_accumulation_steps}"
    )
    lines = [sizes]
    if run is not None:
        lines.append(
            f"num_train_epochs={run.epochs:g}, warmup_steps={warmup_steps}; no max_steps: it makes the"
            f" {format_steps(run.steps)} of its schedule itself"
        )
    return tuple(lines)


def _deepspeed(
    split: BatchSplit, run: RunSteps | None, warmup_steps: int | None
) -> tuple[str, ...]:
    sizes = (
        f'"train_micro_batch_size_per_gpu": {split.micro_batch_size},'
        f' "gradient_accumulation_steps": {split.gradient_accumulation_steps},'
        f' "train_batch_size": {split.global_batch_size}'
    )
    lines = [sizes]
    if run is not None:
        lines.append(
            f'"scheduler": WarmupDecayLR with "total_num_steps": {run.steps}, "warmup_num_steps":'
            f" {warmup_steps}"
        )
    return tuple(lines)
