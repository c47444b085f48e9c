"""Time of an optimizer step: one function per term, seconds, for one layout or a table of them.

A step is A micro-batches through the pipeline, the communication that does not hide behind them,
and the optimizer. The slowest stage sets the pace; the others' share of one micro-batch is the
bubble.

Notation: A gradient accumulation steps; p pipeline stages, v chunks of layers on each; F, Bw forward
and backward seconds of a micro-batch on the slowest stage.
"""

from dataclasses import dataclass

import numpy as np

from planner.core.term import Amount, Term, pick, total
from planner.domain.job import Job
from planner.domain.strategy import PipelineSchedule, Recompute, Strategy
from planner.parallel import partition
from planner.parallel.adapters import trained_parameters
from planner.parallel.partition import Stage
from planner.parallel.pipeline_schedules import MicroBatchSeconds, idle_share
from planner.step_time import communication, compute, data_parallel, offload
from planner.step_time.micro_batch import Pass, pace, part_pass


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


def estimate_step_time(job: Job, s: Strategy) -> StepTime:
    """Return the time ledger of one optimizer step, in seconds."""
    passes = [(part, part_pass(job, s, part)) for part in job.model.parts]
    whole, slowest, at = pace(job, s, passes)
    reduced = data_parallel.reduction(job, s, at, slowest.backward)
    gathered = data_parallel.gather(job, s, at, slowest.forward, slowest.backward)
    terms = (
        _forward(job, s, slowest),
        _backward(job, s, slowest),
        *_model_parallel(job, s, slowest),
        *_pipeline(job, s, whole, slowest),
        data_parallel.reduction_term(job, s, reduced),
        data_parallel.gather_term(job, gathered),
        data_parallel.slowdown_term(job, s, reduced, gathered),
        _optimizer(job, s, at),
        *offload.terms(job, s, at, slowest.forward, slowest.backward),
    )
    seconds = total(terms)
    tokens_per_gpu = job.tokens_per_step / job.cluster.world_size
    flops = 3 * job.model.flops_per_token(job.recipe.sequence_length) * tokens_per_gpu
    spread = sum(term.spread * term.amount for term in terms)
    return StepTime(
        terms=terms,
        step_seconds=seconds,
        low_seconds=seconds - spread,
        high_seconds=seconds + job.framework.slower_factor * spread,
        tokens_per_second_per_gpu=tokens_per_gpu / seconds,
        model_flops_utilization=flops / (seconds * job.peak_flops_per_second),
    )


def _compute_term(job: Job, s: Strategy, name: str, each: Amount, spread: Amount) -> Term:
    return Term(
        name=name,
        amount=s.gradient_accumulation_steps * each,
        formula="{steps:micro-batches} x {each:seconds} on {gpu} (recompute: {recompute})",
        numbers={
            "steps": s.gradient_accumulation_steps,
            "each": each,
            "gpu": job.cluster.gpu.name,
            "recompute": Recompute.name_of(s.recompute),
        },
        source=job.cluster.gpu.gemm.source,
        spread=spread,
    )


def _forward(job: Job, s: Strategy, slowest: Pass) -> Term:
    """Forward of all micro-batches on the slowest stage: A * F."""
    return _compute_term(job, s, "forward", slowest.forward, slowest.spread)


def _backward(job: Job, s: Strategy, slowest: Pass) -> Term:
    """Backward of all micro-batches, with the forward that recompute repeats: A * Bw."""
    return _compute_term(job, s, "backward", slowest.backward, slowest.spread)


def _model_parallel(job: Job, s: Strategy, slowest: Pass) -> tuple[Term, ...]:
    """What tensor, context and expert parallelism exchange within each micro-batch."""
    kinds = (
        ("tensor_parallel_exchange", slowest.tensor, communication.tensor_group(s)),
        ("context_parallel_exchange", slowest.context, communication.context_group(s)),
        ("expert_parallel_exchange", slowest.expert, communication.expert_group(s)),
    )
    return tuple(
        Term(
            name=name,
            amount=s.gradient_accumulation_steps * each,
            formula="{steps:micro-batches} x {each:seconds} among {ranks:ranks}",
            numbers={
                "steps": s.gradient_accumulation_steps,
                "each": each,
                "ranks": group.ranks,
            },
            source="planner/step_time/communication.py",
            spread=data_parallel.communication_spread(job),
        )
        for name, each, group in kinds
        if np.any(np.asarray(group.ranks) > 1)
    )


def _pipeline(job: Job, s: Strategy, whole: Pass, slowest: Pass) -> tuple[Term, ...]:
    """The bubble while the pipeline fills and drains, and the hand-overs between stages.

        bubble = (whole - slowest) / v;  naive: A * (whole - slowest)
        zb-h1: (whole - slowest) * (whole - 2 W) / whole
        zbv: (whole - slowest) * max(F / 2, B / 2, B - W) / whole
        transfers = 2 (A + p - 1) * send, or with several chunks on each stage
            2 v (p - 1) * send + A * max(0, v * send - slowest)

    Notation: whole, slowest: seconds of a micro-batch through all stages, through the slowest; F, B,
    W of the whole: forward, backward and the weight gradients that zero-bubble schedules put off.
    Interleaved schedules have another chunk to work on while a hand-over travels, but for filling
    and draining, and as long as a micro-batch's hand-overs, one per chunk each way, are quicker
    than its compute.
    Source: Narayanan et al., arXiv:2104.04473, section 2.2; Qi et al., arXiv:2401.10241, table 1;
    for zbv what `planner.parallel.schedule` simulates (Qi et al., arXiv:2405.15362, has the order);
    Megatron-LM overlaps the interleaved schedule's hand-overs (--no-overlap-p2p-communication
    turns it off).
    """
    if np.all(np.asarray(s.pipeline_parallel_size) == 1):
        return ()
    virtual = s.virtual_pipeline_size
    one = communication.pipeline_transfer(job, s)
    filling = s.pipeline_parallel_size - 1
    seconds = MicroBatchSeconds(total=whole.seconds, forward=whole.forward, weight=whole.weight)
    share = idle_share(s, seconds)
    idle = (whole.seconds - slowest.seconds) * share
    steps = s.gradient_accumulation_steps
    times = np.where(virtual > 1, 2 * virtual * filling, 2 * (steps + filling))
    behind = np.where(virtual > 1, np.maximum(0.0, virtual * one - slowest.seconds), 0.0)
    return (
        Term(
            name="pipeline_bubble",
            amount=np.where(s.pipeline_parallel_size > 1, idle, 0.0),
            formula="({whole:seconds} through all stages - {slowest:seconds} on the slowest)"
            " x {share:.3g} ({schedule}, {virtual} chunks)",
            numbers={
                "whole": whole.seconds,
                "slowest": slowest.seconds,
                "share": share,
                "schedule": PipelineSchedule.name_of(s.pipeline_schedule),
                "virtual": virtual,
            },
            source="Narayanan et al., arXiv:2104.04473, section 2.2",
            spread=slowest.spread,
        ),
        Term(
            name="pipeline_transfer",
            amount=times * one + steps * behind,
            formula="{times} x {one:seconds} + {steps:micro-batches} x {behind:seconds} that their"
            " chunks' hand-overs take longer than they compute",
            numbers={"times": times, "one": one, "steps": steps, "behind": behind},
            source="planner/step_time/communication.py",
            spread=data_parallel.communication_spread(job),
        ),
    )


def _optimizer(job: Job, s: Strategy, at: Stage) -> Term:
    """The optimizer's update of the trained parameters that a rank owns, where the GPU makes it.

        seconds = passes * stepped_bytes * (D / N + E / M) / hbm

    Source: the framework record's optimizer section.
    """
    dense, experts = trained_parameters(job, s, at)
    shards = np.where(s.shards_optimizer, partition.dense_shards(s), 1)
    expert_shards = np.where(s.shards_optimizer, partition.expert_shards(s), 1)
    on_gpu = np.where(s.offloads_optimizer, 0, 1)
    parameters = on_gpu * (dense / shards + experts / expert_shards)
    return Term(
        name="optimizer",
        amount=compute.optimizer_step(job, parameters),
        formula="{passes} passes over {size:g} B x {parameters:count} parameters",
        numbers={
            "passes": job.optimizer.passes,
            "size": job.precision.stepped_bytes,
            "parameters": parameters,
        },
        source=job.optimizer.source,
        spread=job.framework.spreads["memory_bound"],
    )
