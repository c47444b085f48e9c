"""Peak memory of a rank: one function per term, bytes, for one layout or a table of them.

Memory is followed through the phases of a step (`planner.parallel.phases`); the peak is the phase with the
largest sum, and the ledger shows every term as it stands then. Pipeline stages differ, so each has
a ledger of its own, and the busiest one speaks for the layout.

Notation: D dense and E experts' parameters of a stage on a rank, after tensor and expert
parallelism; B those of its largest block; O those outside the blocks; N ranks that ZeRO divides
dense parameters over; M those it divides experts over.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.core.term import Amount, Term, pick, total
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.memory import optimizers
from planner.memory.sharding_buffers import communication_buffers, framework_and_context
from planner.parallel import activations, adapters, partition
from planner.parallel.partition import Stage
from planner.parallel.phases import always, at_phase, moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The ledger of one rank, or of a table of layouts."""

    terms: tuple[Term, ...]
    """They sum to `reserved_bytes`; all but `framework_and_context` sum to `peak_bytes`."""
    peak_bytes: Amount
    """What torch.cuda.max_memory_allocated would say."""
    reserved_bytes: Amount
    """What the allocator, NCCL and the CUDA context take from the card."""
    low_bytes: Amount
    high_bytes: Amount
    """The range of `reserved_bytes`."""
    phase: Amount
    """Index into `PHASES` of the moment of the peak."""
    stage: Amount = 0
    """Index of the pipeline stage that the ledger is of."""

    def at(self, row: int) -> "Memory":
        """Return the ledger of one row of a table."""
        return Memory(
            terms=tuple(term.at(row) for term in self.terms),
            peak_bytes=pick(self.peak_bytes, row),
            reserved_bytes=pick(self.reserved_bytes, row),
            low_bytes=pick(self.low_bytes, row),
            high_bytes=pick(self.high_bytes, row),
            phase=pick(self.phase, row),
            stage=pick(self.stage, row),
        )


def estimate_memory(job: Job, s: Strategy) -> Memory:
    """Return the memory ledger of the busiest rank at its peak, in bytes."""
    return _busiest([_stage_memory(job, s, at) for at in partition.heaviest_stages(job, s)])


def stage_memories(job: Job, s: Strategy) -> tuple[Memory, ...]:
    """Return the ledger of every pipeline stage of one layout, in order."""
    size = int(s.pipeline_parallel_size)
    if size == 1:
        return (estimate_memory(job, s),)
    values = {field.name: getattr(s, field.name) for field in fields(Strategy)}
    table = Strategy(**{name: np.full(size, value) for name, value in values.items()})
    memories = stage_memory(job, table, np.arange(size))
    return tuple(memories.at(index) for index in range(size))


def stage_memory(job: Job, s: Strategy, index: Amount) -> Memory:
    """Return the ledger of one pipeline stage of a layout, or of each row's of a table."""
    return _stage_memory(job, s, partition.stage(job, s, index))


def _stage_memory(job: Job, s: Strategy, at: Stage) -> Memory:
    frozen = () if job.recipe.lora is None else (adapters.dequantised_weight,)
    in_all_phases = tuple(term(job, s, at) for term in (*_TERMS, *frozen))
    phase = np.argmax(total(in_all_phases), axis=0)
    terms = tuple(at_phase(term, phase) for term in in_all_phases)
    peak = total(terms)
    terms = (*terms, framework_and_context(job, s, peak))
    reserved = total(terms)
    spread = job.framework.uncertainty.memory
    return Memory(
        terms=terms,
        peak_bytes=peak,
        reserved_bytes=reserved,
        low_bytes=reserved * (1 - spread),
        high_bytes=reserved * (1 + spread),
        phase=phase,
        stage=at.index,
    )


def _busiest(stages: list[Memory]) -> Memory:
    """Return, layout by layout, the ledger of the stage with the largest peak."""
    if len(stages) == 1:
        return stages[0]
    which = np.argmax([memory.reserved_bytes for memory in stages], axis=0)
    later = [which == index for index in range(1, len(stages))]

    def choose(values: list[Amount]) -> Amount:
        if all(value is values[0] for value in values):
            return values[0]
        chosen = np.asarray(values[0])
        for is_busiest, value in zip(later, values[1:], strict=True):
            chosen = np.where(is_busiest, value, chosen)
        return chosen if chosen.ndim else chosen.item()

    terms = tuple(
        replace(
            same[0],
            amount=choose([term.amount for term in same]),
            numbers={
                name: choose([term.numbers[name] for term in same]) for name in same[0].numbers
            },
        )
        for same in zip(*(memory.terms for memory in stages), strict=True)
    )
    amounts = {
        field.name: choose([getattr(memory, field.name) for memory in stages])
        for field in fields(Memory)
        if field.name != "terms"
    }
    return Memory(terms=terms, **amounts)


def _shared(
    job: Job, s: Strategy, at: Stage, size: Amount, sharded: Amount
) -> tuple[Amount, str, dict[str, Amount]]:
    """Return size * (D / N + E / M) bytes, undivided where not sharded, and its arithmetic.

    Of what is offloaded the size on the GPU is 0.
    """
    dense, experts = adapters.trained_parameters(job, s, at)
    shards = np.where(sharded, partition.dense_shards(s), 1)
    expert_shards = np.where(sharded, partition.expert_shards(s), 1)
    numbers = {"size": size, "parameters": dense, "shards": shards}
    formula = "{size:g} B x {parameters:,.0f} parameters / {shards:ranks}"
    if job.model.has_experts:
        formula += " + {size:g} B x {experts:,.0f} of experts / {expert_shards:ranks}"
        numbers |= {"experts": experts, "expert_shards": expert_shards}
    return size * (dense / shards + experts / expert_shards), formula, numbers


def parameters(job: Job, s: Strategy, at: Stage) -> Term:
    """Parameters as forward reads them, sharded from the framework's stage on.

        bytes = parameter_bytes * (D / N + E / M) + F / N, N = M = 1 where they are whole

    Notation: F bytes of frozen weights; beside them D counts the adapters alone.
    Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5; FSDP2 shards parameters from
    ZeRO-2 up (reshard_after_forward only says for how long the gathered copy stays).
    Leaves out: padding of a sharded dimension to a multiple of N.
    """
    size = np.where(s.offloads_parameters, 0.0, job.precision.parameter_bytes)
    is_sharded = activations.shards_parameters(job, s)
    held, formula, numbers = _shared(job, s, at, size, is_sharded)
    if job.recipe.lora is not None:
        shards = np.where(is_sharded, partition.dense_shards(s), 1)
        frozen = np.where(s.offloads_parameters, 0.0, adapters.frozen_bytes(job, s, at)) / shards
        held, formula = held + frozen, "{frozen:bytes} of frozen weights + " + formula
        numbers |= {"frozen": frozen}
    return Term(
        name="parameters",
        amount=always(held),
        formula=formula,
        numbers=numbers,
        source="ZeRO, arXiv:1910.02054, section 5",
    )


def gradients(job: Job, s: Strategy, at: Stage) -> Term:
    """Gradients, whole or reduce-scattered, as the framework and the ZeRO stage say.

        bytes = gradient_bytes * (D / N + E / M), N = M = 1 where they are whole

    They live through the whole step where the framework keeps its buffers, where DDP's buckets
    hold them (gradient_as_bucket_view) or accumulation spans micro-batches; otherwise they appear
    during backward.
    Source: torch.nn.parallel.DistributedDataParallel; FSDP2 reduce-scatters every micro-batch.
    """
    is_sharded = s.zero_stage >= job.framework.sharding.gradients_sharded_from
    is_away = job.framework.host_memory.offloads_gradients & is_sharded & s.offloads_optimizer
    size = np.where(is_away, 0.0, job.precision.gradient_bytes)
    whole, formula, numbers = _shared(job, s, at, size, is_sharded)
    outlives_step = (
        (s.gradient_accumulation_steps > 1)
        | (s.zero_stage >= job.framework.sharding.keeps_gradients_from)
        | (np.logical_not(is_sharded) & (s.data_parallel_size > 1))
    )
    early = np.where(outlives_step, whole, 0.0)
    return Term(
        name="gradients",
        amount=moments(
            like=early,
            forward=early,
            loss=early,
            last_block=early,
            first_block=whole,
            outer=whole,
            step=whole,
        ),
        formula=formula,
        numbers=numbers,
        source="ZeRO, arXiv:1910.02054, section 5; DistributedDataParallel gradient_as_bucket_view",
    )


def optimizer_states(job: Job, s: Strategy, at: Stage) -> Term:
    """The fp32 master copy, where there is one, and the optimizer's states: sharded from ZeRO-1 up.

        bytes = (master_bytes + states) * (D / N + E / M)

    Notation: states bytes per parameter, see `planner.memory.optimizers`.
    Source: ZeRO, arXiv:1910.02054, section 3.1.
    Leaves out: ZeroRedundancyOptimizer deals out whole tensors, so its shares are uneven.
    """
    precision, states = job.precision, optimizers.state_bytes_per_parameter(job, s, at)
    is_away = s.offloads_optimizer
    size = np.where(is_away, 0.0, precision.master_bytes + precision.master_gradient_bytes + states)
    held, formula, numbers = _shared(job, s, at, size, s.shards_optimizer)
    return Term(
        name="optimizer_states",
        amount=always(held),
        formula=formula,
        numbers=numbers,
        source="ZeRO, arXiv:1910.02054, section 3.1",
    )


def _optimizer_temporaries(job: Job, s: Strategy, at: Stage) -> Term:
    """What the optimizer's step allocates for its own duration.

        bytes = temporary_fraction * stepped_bytes * (D / N + E / M) + largest

    Notation: largest, what a step that goes tensor by tensor takes: see `planner.memory.optimizers`.
    Source: the framework record's optimizer section.
    """
    fraction = job.optimizer.temporary_fraction
    size = np.where(s.offloads_optimizer, 0.0, job.precision.stepped_bytes)
    stepped, formula, numbers = _shared(job, s, at, size, s.shards_optimizer)
    largest = size * optimizers.largest_temporary(job, s, at)
    return Term(
        name="optimizer_temporaries",
        amount=moments(step=fraction * stepped + largest, like=stepped),
        formula="{fraction:g} x ("
        + formula
        + ")"
        + (" + {largest:bytes} for the largest tensor" if job.optimizer.temporary_tensors else ""),
        numbers={"fraction": fraction, "largest": largest} | numbers,
        source=job.optimizer.source,
    )


_TERMS: tuple[Callable[[Job, Strategy, Stage], Term], ...] = (
    parameters,
    gradients,
    optimizer_states,
    _optimizer_temporaries,
    activations.activations,
    activations.recomputed_block,
    activations.autocast_weight_copies,
    activations.logits_and_loss,
    activations.tensor_parallel_buffers,
    activations.gathered_keys_values,
    activations.passing_gradients,
    communication_buffers,
)
