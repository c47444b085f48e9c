"""Peak memory of a rank: one function per term, bytes, for one layout or a table of them.

Memory is followed through the phases of a step (`planner.memory.phases`); the peak is the phase with the
largest sum, and the ledger shows every term as it stands then. Pipeline stages differ, so each has
a ledger of its own, and the busiest one speaks for the layout.

Notation: D dense and E experts' parameters of a stage on a rank, after tensor and expert parallelism; B those
of its largest block; O those outside the blocks; N ranks that ZeRO divides dense parameters over; M experts'.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields

import numpy as np

from planner.core.frozen import frozen
from planner.core.term import (
    NOTHING,
    Amount,
    Column,
    Expression,
    RowTerms,
    Term,
    Truth,
    bytes_each,
    count,
    either,
    only_where,
    pick,
    plain,
    ranks,
    size,
)
from planner.domain.job import Job
from planner.domain.strategy import Layout, Strategy, Table, num_rows, rows, tabulate
from planner.memory import activations, dummy_gradients, loss, optimizers
from planner.memory.phases import BLOCKS, PhasedTerm, always
from planner.memory.pipeline import (
    arriving_gradients,
    input_gradients,
    pipeline_buffers,
    stage_outputs,
    waiting_gradients,
)
from planner.memory.reference import reference_forward, reference_weights
from planner.memory.room import states_on_card
from planner.memory.sharding_buffers import communication_buffers, framework_and_context
from planner.parallel import adapters, frozen_weights, partition
from planner.parallel.activations import gathers_parameters
from planner.parallel.partition import Stage
from planner.parallel.pipeline_schedules import in_flight


@frozen
class Memory:
    """The ledger of one rank, or of a table of layouts."""

    terms: Collection[Term]
    """They sum to `reserved_bytes`; all but `framework_and_context` and `paged_states` sum to `peak_bytes`."""
    peak_bytes: Amount
    """What torch.cuda.max_memory_allocated would say."""
    reserved_bytes: Amount
    """What the allocator, NCCL, the CUDA context and paged states take from the card."""
    low_bytes: Amount
    high_bytes: Amount
    """The range of `reserved_bytes`."""
    peak_low_bytes: Amount
    peak_high_bytes: Amount
    """That of `peak_bytes`, as wide as a fraction; paged states are in neither."""
    phase: Amount
    """Index into `PHASES` of the moment of the peak."""
    stage: Amount = 0
    """Index of the pipeline stage that the ledger is of."""
    paged_out_bytes: Amount = 0.0
    """Paged states that the card has no room for at the peak, and that host memory holds."""
    rows_of_terms: Column | None = None
    """Which row of the terms is each layout's, where they are of more stages than one a layout."""

    def at(self, row: int) -> "Memory":
        """Return the ledger of one row of a table."""
        of_terms = row if self.rows_of_terms is None else int(self.rows_of_terms[row])
        return Memory(
            terms=RowTerms(self.terms, of_terms),
            peak_bytes=pick(self.peak_bytes, row),
            reserved_bytes=pick(self.reserved_bytes, row),
            low_bytes=pick(self.low_bytes, row),
            high_bytes=pick(self.high_bytes, row),
            peak_low_bytes=pick(self.peak_low_bytes, row),
            peak_high_bytes=pick(self.peak_high_bytes, row),
            phase=pick(self.phase, row),
            stage=pick(self.stage, row),
            paged_out_bytes=pick(self.paged_out_bytes, row),
        )


def estimate_memory(job: Job, s: Strategy) -> Memory:
    """Return the memory ledger of the busiest rank at its peak, in bytes."""
    indices = partition.heaviest_indices(job, s)
    if len(indices) == 1:
        return stage_memory(job, s, indices[0])
    if not isinstance(s, Table):  # one of its stages is quicker than a ledger of each
        return estimate_memory(job, tabulate([s])).at(0)
    return _largest_stage_of_each(job, s, np.stack(np.broadcast_arrays(*indices)))


def stage_memories(job: Job, s: Layout) -> tuple[Memory, ...]:
    """Return the ledger of every pipeline stage of one layout, in order."""
    num_stages = s.pipeline_parallel_size
    if num_stages == 1:
        return (estimate_memory(job, s),)
    memories = stage_memory(job, tabulate([s] * num_stages), np.arange(num_stages))
    return tuple(memories.at(index) for index in range(num_stages))


def stage_memory(job: Job, s: Strategy, index: Amount) -> Memory:
    """Return the ledger of one pipeline stage of a layout, or of each row's of a table."""
    return _stage_memory(job, s, partition.stage(job, s, index))


def _stage_memory(job: Job, s: Strategy, stage: Stage) -> Memory:
    phased = phased_terms(job, s, stage)
    amounts = (
        sum((held.value for held in same if held is not NOTHING), 0.0) for same in _by_phase(phased)
    )
    in_phases = np.stack(np.broadcast_arrays(*amounts))
    phase = np.argmax(in_phases, axis=0)
    peak = np.max(in_phases, axis=0)
    framework = framework_and_context(job, s, peak)
    spread = job.framework.uncertainty.memory
    rest = peak + framework.amount
    # A card that is just full is not over by what rounding adds.
    rest = np.where(np.abs(rest - job.usable_bytes) < _LESS_THAN_A_BYTE, job.usable_bytes, rest)
    states = paged_states(job, s, stage)
    on_card = states_on_card(job, states, rest)
    pages = Term(name="paged_states", arithmetic=on_card, source=job.optimizer.source)
    most = rest * (1 + spread)
    return Memory(
        terms=(
            *(term.in_phase(phase) for term in phased),
            framework,
            *((pages,) if job.optimizer.is_paged else ()),
        ),
        peak_bytes=peak,
        reserved_bytes=rest + on_card.value,
        low_bytes=rest * (1 - spread) + on_card.value,
        # Pages give way to what needs more than is likely.
        high_bytes=np.maximum(most, np.minimum(most + on_card.value, job.usable_bytes)),
        peak_low_bytes=peak * (1 - spread),
        peak_high_bytes=peak * (1 + spread),
        phase=phase,
        stage=stage.index,
        paged_out_bytes=states.value - on_card.value,
    )


def held_in_a_step(job: Job, s: Layout, index: int) -> frozenset[str]:
    """Return the names of the terms that some phase of a step holds, though maybe not the peak's."""
    return frozenset(
        term.name
        for term in phased_terms(job, s, partition.stage(job, s, index))
        if any(held is not NOTHING and held.value for held in term.phases)
    )


def phased_terms(job: Job, s: Strategy, stage: Stage) -> tuple[PhasedTerm, ...]:
    """Return every term of memory of a stage, as it stands in each phase."""
    phased = tuple(term(job, s, stage) for term in _TERMS)
    if job.recipe.lora is not None:
        phased = (*phased, activations.dequantised_weight(job, stage))
        if job.framework.sharding.flat_parameters:
            phased = (*phased, activations.frozen_block_inputs(job, s, stage))
    if job.loss is not None:
        phased = (*phased, loss.loss_gradients(job, s, stage))
    if job.recipe.runs_reference:
        phased = (
            *phased,
            *(each(job, s, stage) for each in (reference_weights, reference_forward)),
        )
    return phased


def _by_phase(terms: tuple[PhasedTerm, ...]) -> Iterator[tuple[Expression, ...]]:
    return zip(*(term.phases for term in terms), strict=True)


def _largest_stage_of_each(job: Job, table: Table, stages: Column) -> Memory:
    """Return, layout by layout, the ledger of the stage with the largest peak.

    One table of all stages is quicker than a table of each, which would hold pipelines of one stage again.

    Args:
        job: supplies model and framework.
        table: the layouts.
        stages: [candidate, layout] indices; the first again where a layout has no such candidate.
    """
    is_another = np.not_equal(stages, stages[0])
    is_another[0] = True
    _, row = np.nonzero(is_another)
    every = stage_memory(job, rows(table, row), stages[is_another])
    place = np.zeros(stages.shape, dtype=np.int64)
    place[is_another] = np.arange(len(row))
    reserved = np.full(stages.shape, -np.inf)
    reserved[is_another] = every.reserved_bytes + every.paged_out_bytes
    busiest = place[np.argmax(reserved, axis=0), np.arange(num_rows(table))]
    amounts = {
        field.name: np.broadcast_to(getattr(every, field.name), len(row))[busiest]
        for field in fields(Memory)
        if field.name not in ("terms", "rows_of_terms")
    }
    return Memory(terms=every.terms, rows_of_terms=busiest, **amounts)


def _held(job: Job, s: Strategy, stage: Stage, size: Amount, is_sharded: Truth) -> Expression:
    """Return size * (D / N + E / M), N = M = 1 where what the size is of is not sharded."""
    dense, experts = adapters.trained_parameters(job, s, stage)
    shares = count(dense, "parameters") / _shards(is_sharded, partition.dense_shards(s))
    if job.model.has_experts:
        of_experts = count(experts, "of experts")
        shares = shares + of_experts / _shards(is_sharded, partition.expert_shards(s))
    return bytes_each(size) * shares


def _shards(is_sharded: Truth, shards: Amount) -> Expression:
    return ranks(np.where(is_sharded, shards, 1))


def parameters(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Parameters as forward reads them, sharded from the framework's stage on.

        bytes = parameter_bytes * (D / N + E / M) + F / N + C, N = M = 1 where they are whole

    Notation: F bytes of frozen weights, C of quantised ones' constants; beside them D counts the adapters alone.
    Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5; FSDP2 shards parameters from
    ZeRO-2 up (reshard_after_forward only says for how long the gathered copy stays).
    Leaves out: padding of a sharded dimension to a multiple of N.
    """
    is_sharded = gathers_parameters(job, s)
    each = np.where(s.offloads_parameters, 0.0, job.precision.parameter_bytes)
    held = _held(job, s, stage, each, is_sharded)
    if job.recipe.lora is not None:
        frozen = np.where(s.offloads_parameters, 0.0, frozen_weights.frozen_bytes(job, s, stage))
        of_frozen = size(frozen, "of frozen weights")
        held = held + of_frozen / _shards(is_sharded, partition.dense_shards(s))
        if job.recipe.lora.is_quantised:
            constants = frozen_weights.constant_bytes(job, s, stage)
            held = held + size(constants, "of their constants, whole")
    return always("parameters", held, _ZERO)


def gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients, whole or reduce-scattered, as the framework and the ZeRO stage say.

        bytes = gradient_bytes * (D / N + E / M), N = M = 1 where they are whole

    They live through the whole step where the framework keeps its buffers, where DDP's buckets
    hold them (gradient_as_bucket_view) or a micro-batch comes after another's backward; otherwise, as
    with gpipe, they appear during backward. Where the optimizer steps inside backward, there are those of a block's shards, or of the
    largest tensor that is not sharded.
    Source: torch.nn.parallel.DistributedDataParallel; FSDP2 reduce-scatters every micro-batch.
    """
    if job.recipe.optimizer_in_backward:
        held = bytes_each(job.precision.gradient_bytes) * optimizers.stepped_at_once(job, s, stage)
        return PhasedTerm.during(
            (*BLOCKS, "outer"),
            held,
            name="gradients",
            note="each gradient is freed once it is stepped",
            source=_IN_BACKWARD,
        )
    is_sharded = s.zero_stage >= job.framework.sharding.gradients_sharded_from
    is_away = job.framework.host_memory.offloads_gradients & is_sharded & s.offloads_optimizer
    each = np.where(is_away, 0.0, job.precision.gradient_bytes)
    held = _held(job, s, stage, each, is_sharded)
    at_once = in_flight(s, np.asarray(s.pipeline_parallel_size) - 1)
    outlives_step = (
        (s.gradient_accumulation_steps > at_once)
        | (s.zero_stage >= job.framework.sharding.keeps_gradients_from)
        | (np.logical_not(is_sharded) & (s.data_parallel_size > 1))
    )
    early = only_where(outlives_step, held)
    return PhasedTerm(
        name="gradients",
        forward=early,
        loss=early,
        last_block=early,
        first_block=held,
        outer=held,
        step=held,
        source=f"{_ZERO}; DistributedDataParallel gradient_as_bucket_view",
    )


def optimizer_states(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """The fp32 master copy, where there is one, and the optimizer's states: sharded from ZeRO-1 up.

        bytes = (master_bytes + states) * (D / N + E / M)

    Notation: states bytes per parameter, see `planner.memory.optimizers`; 0 of paged ones, see `paged_states`.
    Source: ZeRO, arXiv:1910.02054, section 3.1.
    Leaves out: ZeroRedundancyOptimizer deals out whole tensors, so its shares are uneven.
    """
    each: Amount = job.precision.master_bytes + job.precision.master_gradient_bytes
    if not job.optimizer.is_paged:
        each = each + optimizers.state_bytes_per_parameter(job, s, stage)
    held = _stepped(job, s, stage, each)
    return always("optimizer_states", held, "ZeRO, arXiv:1910.02054, section 3.1")


def paged_states(job: Job, s: Strategy, stage: Stage) -> Expression:
    """Return the bytes of a rank's states that are paged, on its card or on the host; nothing where none are."""
    if not job.optimizer.is_paged:
        return NOTHING
    return _stepped(job, s, stage, optimizers.state_bytes_per_parameter(job, s, stage))


def _stepped(job: Job, s: Strategy, stage: Stage, each: Amount) -> Expression:
    """Return the bytes, so many per parameter, of what the GPU steps; 0 where the host does."""
    on_gpu = np.where(s.offloads_optimizer, 0.0, each)
    return _held(job, s, stage, on_gpu, s.shards_optimizer)


def _optimizer_temporaries(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """What the optimizer's step allocates for its own duration.

        bytes = temporary_fraction * stepped_bytes * min(D / N + E / M, parts) + stepped_bytes * largest

    Notation: parts, what is stepped at a time of parameters that are sharded; largest, what a step that
    goes tensor by tensor takes: see `planner.memory.optimizers`.
    Source: the framework record's optimizer section.
    """
    if job.recipe.optimizer_in_backward:
        fraction = job.optimizer.temporary_fraction + job.optimizer.temporary_tensors
        stepped_bytes = bytes_each(job.precision.stepped_bytes)
        held = plain(fraction) * stepped_bytes * optimizers.stepped_at_once(job, s, stage)
        name, source = "optimizer_temporaries", job.optimizer.source
        return PhasedTerm.during((*BLOCKS, "outer"), held, name=name, source=source)
    each = np.where(s.offloads_optimizer, 0.0, job.precision.stepped_bytes)
    stepped = _in_parts(job, s, stage, each)
    largest = count(optimizers.largest_temporary(job, s, stage), "elements of the largest tensor")
    return PhasedTerm(
        name="optimizer_temporaries",
        step=plain(job.optimizer.temporary_fraction) * stepped + bytes_each(each) * largest,
        source=job.optimizer.source,
    )


def _in_parts(job: Job, s: Strategy, stage: Stage, each: Amount) -> Expression:
    """Return the bytes of what is stepped at a time: all that the rank steps, or a part of its shard."""
    everything = _held(job, s, stage, each, s.shards_optimizer)
    part = job.optimizer.parts_elements
    if not part:
        return everything
    elements = _held(job, s, stage, 1.0, s.shards_optimizer).value
    is_parted = gathers_parameters(job, s) & (elements > part)
    return either(is_parted, bytes_each(each) * count(part, "parameters at a time"), everything)


_LESS_THAN_A_BYTE = 0.5
_IN_BACKWARD = (
    "torch.Tensor.register_post_accumulate_grad_hook, PyTorch 2.13; Lv et al., arXiv:2306.09782"
)
_ZERO = "ZeRO, arXiv:1910.02054, section 5"
_TERMS: tuple[Callable[[Job, Strategy, Stage], PhasedTerm], ...] = (
    parameters,
    gradients,
    dummy_gradients.dummy_weight_gradients,
    optimizer_states,
    _optimizer_temporaries,
    activations.activations,
    activations.recomputed_block,
    activations.recomputed_gradients,
    activations.autocast_weight_copies,
    loss.logits_and_loss,
    activations.tensor_parallel_buffers,
    activations.gathered_keys_values,
    activations.passing_gradients,
    pipeline_buffers,
    stage_outputs,
    arriving_gradients,
    waiting_gradients,
    input_gradients,
    communication_buffers,
)
