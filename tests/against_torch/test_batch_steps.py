"""Steps of an epoch and of a schedule, as PyTorch, accelerate, Trainer and DeepSpeed count them."""

import math
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn, optim
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    SequentialSampler,
    TensorDataset,
)
from transformers import TrainingArguments

from planner.advice.batch_arithmetic import BatchSplit, run_steps, scheduler_end, warmup_steps
from planner.advice.batch_by_framework import settings

SHARD = import_module("accelerate.data_loader").BatchSamplerShard
SCHEDULE = import_module("accelerate.scheduler").AcceleratedScheduler
SHAPES = [(2319, 4, 1, 2), (8551, 64, 1, 4), (1000, 8, 16, 4), (17, 3, 2, 5)]


@pytest.mark.parametrize(("samples", "micro", "steps", "ranks"), SHAPES)
def test_ranks_have_as_many_passes(samples: int, micro: int, steps: int, ranks: int) -> None:
    split = BatchSplit(
        micro_batch_size=micro, gradient_accumulation_steps=steps, data_parallel_size=ranks
    )
    wanted = run_steps(split, samples, 1).steps_per_epoch
    data = TensorDataset(torch.arange(samples))
    for rank in range(ranks):
        sampler: DistributedSampler[Any] = DistributedSampler(data, ranks, rank, shuffle=False)
        in_torch = len(DataLoader(data, batch_size=micro, sampler=sampler))
        whole = BatchSampler(SequentialSampler(range(samples)), micro, drop_last=False)
        in_accelerate = len(list(SHARD(whole, ranks, rank)))
        assert math.ceil(in_torch / steps) == math.ceil(in_accelerate / steps) == wanted


def test_a_prepared_schedule_steps_once_per_rank() -> None:
    calls, ranks = 122, 4
    optimizer = optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / calls))
    with (
        patch("accelerate.scheduler.GradientState", lambda: SimpleNamespace(sync_gradients=True)),
        patch(
            "accelerate.scheduler.AcceleratorState", lambda: SimpleNamespace(num_processes=ranks)
        ),
    ):
        prepared = SCHEDULE(schedule, SimpleNamespace(step_was_skipped=False))
        rates = []
        for _ in range(calls):
            optimizer.step()
            prepared.step()
            rates.append(schedule.get_last_lr()[0])
    assert 1 + rates.index(0) == scheduler_end(calls, ranks) == 31


def test_trainer_takes_the_settings_and_warms_up_as_long() -> None:
    split = BatchSplit(micro_batch_size=8, gradient_accumulation_steps=4, data_parallel_size=2)
    run = run_steps(split, 10_000, 3)
    warmup = warmup_steps(run, 0.03)
    sizes, length = settings(split, run, warmup)["transformers"]
    named = dict(pair.split("=") for pair in f"{sizes}, {length.partition(';')[0]}".split(", "))
    values: dict[str, Any] = {name: int(value) for name, value in named.items()}
    arguments = TrainingArguments(**values)
    assert arguments.per_device_train_batch_size == 8
    assert arguments.get_warmup_steps(run.steps) == warmup
    by_share = TrainingArguments(warmup_steps=0.03)
    assert by_share.get_warmup_steps(run.steps) == warmup
