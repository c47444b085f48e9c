"""Time of an optimizer step: one function per term, seconds, for one layout or a table of them.

A step is `gradient_accumulation_steps` micro-batches of compute, the communication that does not
hide behind it, and the optimizer.

Notation: A accumulation steps; P parameters; N ranks; g, r bytes per parameter on the wire when
gathered and reduced; F, Bw the forward and backward time of a micro-batch.
"""

from dataclasses import dataclass

import numpy as np

from planner import collectives, compute
from planner.cluster import Group, Provenance
from planner.job import Job
from planner.model import Numerics
from planner.strategy import Strategy
from planner.term import Amount, Term, pick, total


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The ledger of one step, or of a table of layouts."""

    terms: tuple[Term, ...]
    """They sum to `step_seconds`."""
    step_seconds: Amount
    low_seconds: Amount
    high_seconds: Amount
    tokens_per_second_per_gpu: Amount
    model_flops_utilization: Amount
    """Fraction of the card's dense peak, recompute not counted."""

    def at(self, row: int) -> "StepTime":
        """Return the ledger of one row of a table."""
        return StepTime(
            terms=tuple(term.at(row) for term in self.terms),
            step_seconds=pick(self.step_seconds, row),
            low_seconds=pick(self.low_seconds, row),
            high_seconds=pick(self.high_seconds, row),
            tokens_per_second_per_gpu=pick(self.tokens_per_second_per_gpu, row),
            model_flops_utilization=pick(self.model_flops_utilization, row),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MicroBatch:
    """What one micro-batch takes on the GPU, before communication."""

    tokens: Amount
    forward_seconds: Amount
    backward_seconds: Amount
    """Recompute included."""


def estimate_step_time(job: Job, s: Strategy) -> StepTime:
    """Return the time ledger of one optimizer step, in seconds."""
    micro_batch = _micro_batch(job, s)
    terms = (
        _forward(job, s, micro_batch),
        _backward(job, s, micro_batch),
        _gradient_reduction(job, s, micro_batch),
        _parameter_gather(job, s, micro_batch),
        _optimizer(job, s),
    )
    seconds = total(terms)
    tokens_per_gpu = job.tokens_per_step / job.cluster.world_size
    flops = 3 * job.model.flops_per_token(job.recipe.sequence_length) * tokens_per_gpu
    spread = sum(term.spread * term.amount for term in terms)
    return StepTime(
        terms=terms,
        step_seconds=seconds,
        low_seconds=seconds - spread,
        high_seconds=seconds + spread,
        tokens_per_second_per_gpu=tokens_per_gpu / seconds,
        model_flops_utilization=flops / (seconds * job.peak_flops_per_second),
    )


def _micro_batch(job: Job, s: Strategy) -> _MicroBatch:
    tokens = s.micro_batch_size * job.recipe.sequence_length
    replicated = _passes(job, tokens, job.precision.replicated_numerics)
    sharded = _passes(job, tokens, job.precision.sharded_numerics)
    forward, backward, blocks = (
        np.where(s.shards_parameters, here, there)
        for here, there in zip(sharded, replicated, strict=True)
    )
    recompute = np.where(s.recompute == "full", blocks, 0.0)
    backward = backward + recompute
    host = sum(part.count * compute.launches(job, part) for part in job.model.parts)
    stretch = compute.at_least(host, forward + backward) / (forward + backward)
    return _MicroBatch(
        tokens=tokens, forward_seconds=forward * stretch, backward_seconds=backward * stretch
    )


def _passes(job: Job, tokens: Amount, numerics: Numerics) -> tuple[Amount, Amount, Amount]:
    """Seconds of forward, of backward without recompute, and of the blocks' share of forward."""
    forward = backward = blocks = 0.0 * tokens
    length = job.recipe.sequence_length
    for part in job.model.parts:
        seen = tokens * part.tokens(length) / length
        there = part.count * compute.forward(job, part, seen, numerics)
        forward = forward + there
        backward = backward + part.count * compute.backward(job, part, seen, numerics)
        if part.is_block:
            blocks = blocks + there
    loss = compute.loss(job, tokens)
    return forward + loss / 3, backward + 2 * loss / 3, blocks


def _forward(job: Job, s: Strategy, micro_batch: _MicroBatch) -> Term:
    """Forward of all micro-batches.

        seconds = A * F

    Source: matmuls by the GPU's measured curve; the rest by HBM bandwidth (planner/compute.py).
    """
    return Term(
        name="forward",
        amount=s.gradient_accumulation_steps * micro_batch.forward_seconds,
        formula="{steps:micro-batches} x {each:seconds} for {tokens:,} tokens"
        " ({flops:flops} each on {gpu})",
        numbers={
            "steps": s.gradient_accumulation_steps,
            "each": micro_batch.forward_seconds,
            "tokens": micro_batch.tokens,
            "flops": micro_batch.tokens * job.model.flops_per_token(job.recipe.sequence_length),
            "gpu": job.cluster.gpu.name,
        },
        source=job.cluster.gpu.gemm.source,
        spread=max(job.cluster.gpu.gemm.spread, job.framework.spreads["compute"]),
    )


def _backward(job: Job, s: Strategy, micro_batch: _MicroBatch) -> Term:
    """Backward of all micro-batches, with the forward that recompute repeats.

        seconds = A * Bw

    Source: as `_forward`; two matmuls per forward matmul.
    """
    return Term(
        name="backward",
        amount=s.gradient_accumulation_steps * micro_batch.backward_seconds,
        formula="{steps:micro-batches} x {each:seconds} (recompute: {recompute})",
        numbers={
            "steps": s.gradient_accumulation_steps,
            "each": micro_batch.backward_seconds,
            "recompute": s.recompute,
        },
        source=job.cluster.gpu.gemm.source,
        spread=max(job.cluster.gpu.gemm.spread, job.framework.spreads["compute"]),
    )


def _gather_seconds(job: Job, s: Strategy) -> Amount:
    """Seconds to gather all parameters of ZeRO-2 or 3 once, g * P in one operation per block."""
    size = job.precision.gather_bytes * job.model.parameters
    return collectives.all_gather(job.cluster, _data_parallel(s), size, _groups(job))


def _data_parallel(s: Strategy) -> Group:
    """Return the ranks that hold the same part of the model: neighbours, so far all of them."""
    return Group(ranks=s.data_parallel_size)


def _groups(job: Job) -> int:
    """Return the collectives per pass of fully_shard: one per block, one for the rest."""
    return job.model.num_blocks + 1


def _hidden(job: Job, seconds: Amount) -> Amount:
    """Return how much communication can hide behind that much compute."""
    return job.framework.backward_overlap_fraction * seconds


def _gradient_reduction(job: Job, s: Strategy, micro_batch: _MicroBatch) -> Term:
    """What the gradients' reduction adds to the step after hiding behind backward.

        exposed = max(tail, reduction - hidden), once per step for DDP and ZeRO-1 (no_sync on the
        other micro-batches), every micro-batch for ZeRO-2 and 3

    Notation: reduction: all-reduce of r * P (DDP, ZeRO-1) or its reduce-scatter (ZeRO-2, 3);
    tail: the last bucket or block, which no compute follows; hidden: overlap * Bw, less what
    ZeRO-3's gather takes of it on the same link.
    Source: planner/collectives.py; overlap: the framework record.
    Leaves out: what the overlapped collective takes from the compute (SMs, HBM).
    """
    group, ranks = _data_parallel(s), s.data_parallel_size
    size = job.precision.reduce_bytes * job.model.parameters
    buckets = max(1, round(size / job.framework.bucket_bytes))
    reduction = np.where(
        s.shards_parameters,
        collectives.reduce_scatter(job.cluster, group, size, _groups(job)),
        collectives.all_reduce(job.cluster, group, size, buckets),
    )
    tail = reduction / np.where(s.shards_parameters, _groups(job), buckets)
    gathered = np.where(s.gathers_twice, _gather_seconds(job, s), 0.0)
    hidden = np.maximum(0.0, _hidden(job, micro_batch.backward_seconds) - gathered)
    exposed = np.where(ranks > 1, np.maximum(tail, reduction - hidden), 0.0)
    times = np.where(s.shards_parameters, s.gradient_accumulation_steps, 1)
    return Term(
        name="gradient_reduction",
        amount=times * exposed,
        formula="{times} x {exposed:seconds} exposed of {reduction:seconds}"
        " ({size:bytes} over {ranks:ranks} at {rate:rate}, {link})",
        numbers={
            "times": times,
            "exposed": exposed,
            "reduction": reduction,
            "size": size,
            "ranks": ranks,
            "rate": size / np.where(ranks > 1, reduction, np.inf),
            "link": job.cluster.slowest_link.name,
        },
        source=collectives.source(job.cluster, _everyone(job)),
        spread=_communication_spread(job),
    )


def _parameter_gather(job: Job, s: Strategy, micro_batch: _MicroBatch) -> Term:
    """What gathering parameters adds: ZeRO-1 after its step, ZeRO-2 and 3 every micro-batch.

        ZeRO-1: all-gather of parameter_bytes * P once, exposed
        ZeRO-2: A * max(first, gather - overlap * F), gathered once per micro-batch
        ZeRO-3: A * (max(first, gather - overlap * F) + max(0, gather - overlap * Bw))

    Notation: gather: all-gather of g * P; first: the first block's, which nothing hides.
    Source: ZeRO, arXiv:1910.02054, section 7; fully_shard prefetches one block ahead.
    """
    group, ranks = _data_parallel(s), s.data_parallel_size
    gather = _gather_seconds(job, s)
    first = gather / _groups(job)
    in_forward = np.maximum(first, gather - _hidden(job, micro_batch.forward_seconds))
    in_backward = np.maximum(0.0, gather - _hidden(job, micro_batch.backward_seconds))
    each = in_forward + np.where(s.gathers_twice, in_backward, 0.0)
    whole = job.precision.parameter_bytes * job.model.parameters
    after_step = np.where(
        s.shards_optimizer, collectives.all_gather(job.cluster, group, whole), 0.0
    )
    exposed = np.where(ranks > 1, np.where(s.shards_parameters, each, after_step), 0.0)
    times = np.where(s.shards_parameters, s.gradient_accumulation_steps, 1)
    return Term(
        name="parameter_gather",
        amount=times * exposed,
        formula="{times} x {exposed:seconds} exposed; one gather of {size:bytes} takes"
        " {gather:seconds} ({link})",
        numbers={
            "times": times,
            "exposed": exposed,
            "size": np.where(
                s.shards_parameters, job.precision.gather_bytes * job.model.parameters, whole
            ),
            "gather": np.where(s.shards_parameters, gather, after_step),
            "link": job.cluster.slowest_link.name,
        },
        source=collectives.source(job.cluster, _everyone(job)),
        spread=_communication_spread(job),
    )


def _optimizer(job: Job, s: Strategy) -> Term:
    """The optimizer's update of the parameters that a rank owns.

        seconds = passes * parameter_bytes * P / N / hbm

    Source: the framework record's optimizer section.
    """
    parameters = job.model.parameters / s.optimizer_shards
    return Term(
        name="optimizer",
        amount=compute.optimizer_step(job, parameters),
        formula="{passes} passes over {size} B x {parameters:count} parameters",
        numbers={
            "passes": job.optimizer.passes,
            "size": job.precision.parameter_bytes,
            "parameters": parameters,
        },
        source=job.optimizer.source,
        spread=job.framework.spreads["compute"],
    )


def _everyone(job: Job) -> Group:
    """Return the group of all ranks, whose sources stand for those of every group."""
    return Group(ranks=job.cluster.world_size)


def _communication_spread(job: Job) -> float:
    kind = {
        Provenance.MEASURED: "communication_measured",
        Provenance.DERIVED: "communication_derived",
        Provenance.ASSUMED: "communication_assumed",
    }[collectives.provenance(job.cluster, _everyone(job))]
    return job.framework.spreads[kind]
