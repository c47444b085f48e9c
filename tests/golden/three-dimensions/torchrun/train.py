"""Train a causal-lm model with DDP and ZeRO-1, tensor parallelism, a pipeline on 2 x 4 GPUs, by PyTorch alone.

Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2,
pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.

Start it with launch.sh beside it.
"""

import argparse
import gc
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils.data import default_collate

from arguments import check_versions, parse_arguments
from checkpoints import Stop, find_start, remove_older
from data import Samples, read_samples
from division import Grid, settle
from evaluation import evaluate
from gradients import average_gradients, clip, local
from model import read_config
from report import Report, learning_rate, profiler
from settings import (
    GLOBAL_BATCH_SIZE,
    MICRO_BATCH_SIZE,
    PIPELINE_PARALLEL_SIZE,
    TENSOR_PARALLEL_SIZE,
)
from start import introduce, join
from training import Training


def read_batch(samples: Samples, training: Training) -> dict[str, torch.Tensor]:
    """Return this process's sequences of the step, one micro-batch after the other."""
    grid, rows = training.grid, []
    for number in range(training.micro_batches):
        first = training.step * GLOBAL_BATCH_SIZE
        first += (number * grid.data_size + grid.data_rank) * MICRO_BATCH_SIZE
        rows += [samples[first + i] for i in range(MICRO_BATCH_SIZE)]
    return {name: tensor.to(training.device) for name, tensor in default_collate(rows).items()}


def count_labels(training: Training, labels: torch.Tensor) -> torch.Tensor:
    """Return how many tokens a micro-batch of the step predicts, on average over all processes."""
    mean = (labels != -100).sum() / training.micro_batches
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def accumulate(args: argparse.Namespace, training: Training, batch: dict[str, Any]) -> torch.Tensor:
    """Add up the gradients of the micro-batches; return their mean loss, 0 where there is none."""
    losses: list[torch.Tensor] = []
    inputs = (batch["input_ids"],) if training.has_embeddings else ()
    outputs = {"target": batch["labels"], "losses": losses} if training.has_head else {}
    with loss_parallel():
        training.schedule.step(*inputs, **outputs, return_outputs=False)
    zero = torch.zeros((), device=training.device)
    return torch.stack([local(loss.detach()) for loss in losses]).mean() if losses else zero


def train_step(args: argparse.Namespace, training: Training, batch: dict[str, Any]) -> float:
    """Take one optimizer step; return the loss, averaged over the global batch."""
    model, optimizer = training.model, training.optimizer
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(args, training.step)
    training.loss.mean_labels = count_labels(training, batch["labels"])
    total = accumulate(args, training, batch)
    settle(model)
    average_gradients(model, training.grid.batch)
    training.norm = clip(model, args.clip, training.device)
    optimizer.step()
    share_parameters(training)
    model.zero_grad()
    training.step += 1
    dist.all_reduce(total)
    return total.item() / (dist.get_world_size() // PIPELINE_PARALLEL_SIZE)


@torch.no_grad()
def share_parameters(training: Training) -> None:
    """Give every process the parameters that another one has stepped."""
    group = training.grid.batch.get_group()
    handles = [
        dist.broadcast(local(parameter), group=group, group_src=owner, async_op=True)
        for parameter, owner in zip(training.parameters, training.owners, strict=True)
    ]
    for handle in handles:
        handle.wait()


def train(args: argparse.Namespace, device: torch.device) -> int:
    """Take the steps that are left, save the model; return the exit status."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    args.resume = find_start(args)
    introduce(args, rank, world_size)
    config = read_config(args)
    samples, held_out = read_samples(args, config.vocab_size)
    training = Training(args, config, Grid(device), device)
    if args.resume:
        training.load(args.resume)
    report = Report(args, training.step, world_size) if rank == 0 else None
    stop = Stop(device)
    with profiler(args, rank) as profile:
        while training.step < args.steps and not stop.signal:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            # Processes of a tensor-parallel group must drop the same.
            stream = rank // TENSOR_PARALLEL_SIZE
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + stream)
            loss = train_step(args, training, read_batch(samples, training))
            if report:
                report.show(training.step, loss, training.norm)
            if held_out and (training.step % args.eval_every == 0 or training.step == args.steps):
                metrics = evaluate(training, held_out)
                if report:
                    report.evaluated(training.step, metrics)
            if profile:
                profile.step()
            is_due = args.save_every and training.step % args.save_every == 0
            if stop.agreed() or is_due:
                training.save(args.output / f"step-{training.step}")
                remove_older(args, training.step)
    if training.step < args.steps:
        return stop.exit(args, training.step)
    if not args.no_save_model:
        training.save_model(args, args.save_model or args.output / "final")
    dist.barrier()
    return 0


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    check_versions()
    args = parse_arguments(__doc__)
    status = train(args, join(args))
    gc.collect()  # the model holds the process group, whose threads must end before Python does
    dist.destroy_process_group()
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
