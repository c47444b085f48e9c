"""The loss of what is held out."""

import math

import torch

from data import HeldOut
from settings import GLOBAL_BATCH_SIZE
from training import Training, count_labels, micro_batches


@torch.no_grad()
def evaluate(training: Training, held_out: HeldOut) -> dict[str, float]:
    """Return the mean loss over all labels of what is held out, a global batch at a time."""
    engine = training.engine
    loss, labels = 0.0, 0.0
    engine.module.loss_fn.mean_labels = torch.ones((), device=engine.device)  # so losses are sums
    for step in range(math.ceil(held_out.length / GLOBAL_BATCH_SIZE)):
        batches = micro_batches(held_out, step)
        labels += count_labels(training, batches).item() * len(batches)
        loss += engine.eval_batch(iter(batches)).item() * len(batches)
    return {"eval_loss": loss / labels, "eval_perplexity": math.exp(min(loss / labels, 700.0))}
