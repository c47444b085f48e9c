"""The loss of what is held out."""

import math

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils.data import default_collate

from data import HeldOut
from gradients import local
from settings import (
    LAYERS_PER_STAGE,
    MICRO_BATCH_SIZE,
    PIPELINE_PARALLEL_SIZE,
    SEQUENCE_LENGTH,
)
from training import Training


def pass_through(training: Training, tokens: torch.Tensor) -> torch.Tensor | None:
    """Return the logits of a micro-batch on the process that has the last stage, else nothing."""
    group = training.grid.mesh["pipeline"].get_group()
    here, hidden, before = dist.get_rank(group), tokens, 0
    shape = (
        MICRO_BATCH_SIZE,
        SEQUENCE_LENGTH,
        training.model.config.hidden_size,
    )
    for number in range(len(LAYERS_PER_STAGE)):
        rank = number % PIPELINE_PARALLEL_SIZE
        if here == before != rank:
            dist.send(hidden.contiguous(), group=group, group_dst=rank)
        if here == rank:
            if rank != before:
                hidden = torch.empty(shape, dtype=torch.float32, device=training.device)
                dist.recv(hidden, group=group, group_src=before)
            (stage,) = (stage for stage in training.stages if stage.number == number)
            hidden = stage(hidden)
        before = rank
    return hidden if here == before else None


@torch.no_grad()
def evaluate(training: Training, held_out: HeldOut) -> dict[str, float]:
    """Return the mean loss over all labels of what is held out; each process computes a part."""
    grid, device = training.grid, training.device
    stride = MICRO_BATCH_SIZE * grid.data_size
    totals = torch.zeros(2, dtype=torch.double, device=device)
    end = math.ceil(held_out.length / stride) * stride  # so all compute as many batches
    training.loss.mean_labels = torch.ones((), device=device)  # so a loss is a sum
    training.model.eval()
    for first in range(grid.data_rank * MICRO_BATCH_SIZE, end, stride):
        batch = default_collate([held_out[first + i] for i in range(MICRO_BATCH_SIZE)])
        tokens, labels = (batch[name].to(device) for name in ("input_ids", "labels"))
        with loss_parallel():
            logits = pass_through(training, tokens)
            if logits is not None:
                loss = local(training.loss(logits, labels))
                totals += torch.stack([loss.double(), (labels != -100).sum().double()])
    training.model.train()
    dist.all_reduce(totals)
    loss, labels = totals.tolist()
    return {"eval_loss": loss / labels, "eval_perplexity": math.exp(min(loss / labels, 700.0))}
