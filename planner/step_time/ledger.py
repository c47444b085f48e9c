"""Time of an optimizer step: one function per term, seconds, for one layout or a table of them.

A step is A micro-batches through the pipeline, the communication that does not hide behind them,
and the optimizer. The slowest stage sets the pace; the others' share of one micro-batch is the
bubble.

Notation: A gradient accumulation steps; p pipeline stages, v chunks of layers on each; F, Bw forward
and backward seconds of a micro-batch on the slowest stage.
"""

from collections.abc import Collection, Mapping

import numpy as np

from planner.core.frozen import frozen
from planner.core.term import (
    Amount,
    RowTerms,
    RowWords,
    Term,
    add,
    micro_batches,
    percent,
    pick,
    ranks,
    seconds,
    total,
)
from planner.domain.job import Job
from planner.domain.strategy import Strategy, Table
from planner.parallel.partition import Stage
from planner.step_time import (
    communication,
    compute,
    data_parallel,
    doubt,
    offload,
    optimizer,
    pipeline,
    reference,
)
from planner.step_time.doubt import Cause
from planner.step_time.micro_batch import (
    BACKWARD,
    FORWARD,
    OF_ADAPTERS,
    OF_FP8,
    MicroBatch,
    Spent,
    pace,
)
from planner.step_time.terms import StepTerm


@frozen
class StepTime:
    """The ledger of one step, or of a table of layouts."""

    terms: Collection[Term]
    """They sum to `step_seconds`."""
    step_seconds: Amount
    low_seconds: Amount
    high_seconds: Amount
    doubts: Mapping[Cause, Amount]
    """Half-widths of the range by what they come from, in seconds."""
    tokens_per_second_per_gpu: Amount
    """Without padding."""
    model_flops_utilization: Amount
    """Fraction of the card's dense peak: what is computed, padding too, recompute not counted."""

    def at(self, row: int) -> "StepTime":
        """Return the ledger of one row of a table."""
        return StepTime(
            terms=RowTerms(self.terms, row),
            step_seconds=pick(self.step_seconds, row),
            low_seconds=pick(self.low_seconds, row),
            high_seconds=pick(self.high_seconds, row),
            doubts={cause: pick(width, row) for cause, width in self.doubts.items()},
            tokens_per_second_per_gpu=pick(self.tokens_per_second_per_gpu, row),
            model_flops_utilization=pick(self.model_flops_utilization, row),
        )


def estimate_step_time(job: Job, s: Strategy) -> StepTime:
    """Return the time ledger of one optimizer step, in seconds."""
    whole, slowest, stage = pace(job, s)
    reduced = data_parallel.reduction(job, s, stage, slowest.backward)
    gathered = data_parallel.gather(job, s, stage, slowest.forward, slowest.backward)
    terms = (
        _computed(job, s, slowest, StepTerm.FORWARD, FORWARD),
        _computed(job, s, slowest, StepTerm.BACKWARD, BACKWARD),
        *_of_reference(job, s, stage, slowest),
        *_model_parallel(job, s, slowest),
        *pipeline.terms(job, s, whole, slowest),
        data_parallel.reduction_term(job, s, reduced),
        data_parallel.gather_term(job, gathered),
        data_parallel.slowdown_term(job, s, reduced, gathered),
        optimizer.update(job, s, stage),
        *offload.terms(job, s, stage, slowest.forward, slowest.backward),
        *offload.activation_terms(job, s, stage, slowest.forward, slowest.backward),
    )
    step_seconds = total(terms)
    gpus = job.cluster.world_size
    flops = compute.training_flops_per_token(job) * job.tokens_per_step / gpus
    doubts = doubt.half_widths(job, s, terms, slowest)
    low, high = doubt.reach(job, doubts)
    return StepTime(
        terms=terms,
        step_seconds=step_seconds,
        low_seconds=step_seconds / (1 + low / step_seconds),
        high_seconds=step_seconds + high,
        doubts=doubts,
        tokens_per_second_per_gpu=job.text_tokens_per_step / gpus / step_seconds,
        model_flops_utilization=flops / (step_seconds * job.peak_flops_per_second),
    )


def _computed(job: Job, s: Strategy, slowest: MicroBatch, name: str, kinds: range) -> Term:
    """Forward, or backward, of all micro-batches on the slowest stage: A * F, or A * Bw."""
    steps, source = micro_batches(s.gradient_accumulation_steps), job.cluster.gpu.gemm.source
    left_out = OF_ADAPTERS if job.recipe.lora is None else frozenset()
    left_out |= OF_FP8 if job.fp8_recipe is None else frozenset()
    found = (kind for kind in map(Spent, kinds) if kind not in left_out)
    each = {kind: seconds(slowest.of(kind), kind.words) for kind in found}
    parts = tuple(
        Term(
            name=kind.words.replace(" ", "_"),
            arithmetic=steps * one,
            source=source,
        )
        for kind, one in each.items()
    )
    return Term(
        name=name,
        arithmetic=steps * add(each.values()),
        parts=parts,
        source=source,
    )


def _of_reference(job: Job, s: Strategy, stage: Stage, slowest: MicroBatch) -> tuple[Term, ...]:
    has_one = job.recipe.runs_reference
    return (reference.forward_term(job, s, stage, slowest),) if has_one else ()


def _model_parallel(job: Job, s: Strategy, slowest: MicroBatch) -> tuple[Term, ...]:
    kinds = (
        (StepTerm.TENSOR_EXCHANGE, Spent.TENSOR, communication.tensor_group(s)),
        (StepTerm.CONTEXT_EXCHANGE, Spent.CONTEXT, communication.context_group(s)),
        (StepTerm.EXPERT_EXCHANGE, Spent.EXPERT, communication.expert_group(s)),
    )
    steps = micro_batches(s.gradient_accumulation_steps)
    return tuple(
        Term(
            name=name,
            arithmetic=steps * seconds(slowest.of(kind)),
            note=("among ", ranks(group.ranks), *_hidden_words(job, s, name)),
            source="planner/step_time/communication.py",
            applies=np.asarray(group.ranks) > 1,
        )
        for name, kind, group in kinds
        if np.any(np.asarray(group.ranks) > 1)
    )


def _hidden_words(job: Job, s: Strategy, name: str) -> tuple[RowWords | str, ...]:
    """Return what hides of tensor parallelism's exchanges, where the recipe has them travel in pieces."""
    in_forward, _ = communication.hidden_of_tensor(job, s)
    if name != StepTerm.TENSOR_EXCHANGE or not np.any(in_forward):
        return ()
    words = RowWords(lambda row: _hidden(pick(in_forward, row)))
    return (words if isinstance(s, Table) else words.at(0),)


def _hidden(fraction: float) -> str:
    return f", {percent(fraction, 'of those in blocks behind matmuls').text}" if fraction else ""
