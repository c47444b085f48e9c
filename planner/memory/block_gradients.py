"""Bytes of the gradients with which a block's backward begins, while all that its forward kept is there."""

import numpy as np

from planner.core.term import Amount, Expression, Truth, bytes_each, count, greatest, plain, size
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.strategy import Recompute, Strategy
from planner.parallel.activations import by_numerics, hidden_state_bytes, tokens

_COPY = 0.5
"""Of an fp32 activation: what a matmul under autocast has of it."""


def around_last_matmul(job: Job, s: Strategy) -> Expression:
    """Return the bytes around a block's last matmul, see `planner.memory.activations.recomputed_gradients`.

    Where the activation before it is spelled out in Python, the gradients of its product and of both factors are more:

        bytes = T * max(state + e * inputs / t, (3 w - freed) * inputs / t)

    Notation: w bytes of an element of the activation, 4 under autocast; freed what the matmul kept of its input, 0
    beside frozen weights, and under autocast, whose copy lives on where the block is not run again.
    Source: allocations of transformers 5.23 followed without a GPU, PyTorch 2.13.
    """
    last = [part.linears[-1] for part in job.model.blocks if part.linears]
    width = greatest(
        layer.experts_per_token
        * layer.in_features
        / (s.tensor_parallel_size if layer.cuts_inputs else 1)
        for layer in last
    )
    is_gated = any(kept.name == "activated_gate" for part in job.model.blocks for kept in part.kept)
    at_once = 2.0 + is_gated if job.recipe.lora else 1.0
    each = by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else 2.0)
    state, seen = hidden_state_bytes(job, s) / tokens(job, s), count(tokens(job, s), "tokens")
    usual = state + each * width * at_once
    spelled_out = _around_activation(job, s)
    if np.any(spelled_out > usual):
        return seen * size(np.maximum(usual, spelled_out), "/token around its activation")
    inputs = (
        bytes_each(each) * count(width, "inputs of its last matmul") * plain(at_once, "at once")
    )
    return seen * (size(state, "/token of its output") + inputs)


def _around_activation(job: Job, s: Strategy) -> Amount:
    """Return the bytes per token of the gradients around a block's spelled-out activation; 0 where none is."""
    kept = [kept for part in job.model.blocks for kept in part.kept if kept.name == "gelu_tanh"]
    if not kept:
        return 0.0
    each = by_numerics(job, s, lambda n: max(one.bytes_in(n) for one in kept))
    is_autocast = by_numerics(job, s, lambda n: float(n == Numerics.AUTOCAST))
    copied = np.where(repeats_blocks(job, s), _COPY, 0.0)
    freed = np.where(is_autocast, copied, 1.0) if job.recipe.lora is None else 0.0
    return (3.0 - freed) * each / s.tensor_parallel_size


def repeats_blocks(job: Job, s: Strategy) -> Truth:
    """Return whether a block's forward is run again before its backward, whatever was saved of it."""
    recompute = np.asarray(s.recompute)
    is_run_again: Truth = recompute == Recompute.FULL
    if job.framework.activations.selective_recompute == "matmuls":
        is_run_again = recompute != Recompute.NONE
    return is_run_again
