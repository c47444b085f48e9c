"""Host memory of a node: what is offloaded to it, and the weights while they are read."""

from dataclasses import replace

import numpy as np

from planner.core.frozen import frozen
from planner.core.term import (
    Amount,
    Expression,
    Term,
    Truth,
    bytes_each,
    count,
    gpus,
    percent,
    pick,
    plain,
    size,
    total,
)
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, Strategy
from planner.memory import ledger
from planner.parallel import partition
from planner.parallel.activations import gathers_parameters, mean_block_bytes, offloaded_blocks
from planner.parallel.frozen_weights import constant_bytes, frozen_bytes, frozen_other_bytes


@frozen
class HostMemory:
    """The ledger of one node's host memory, for one layout or a table of them."""

    terms: tuple[Term, ...]
    """Of training; they sum to `training_bytes`."""
    training_bytes: Amount
    loading: Term
    """What reading the weights takes, before training."""
    peak_bytes: Amount
    """The larger of the two."""
    available_bytes: float
    """0 where unknown."""
    fits: Truth | None
    """None where the node's memory is unknown."""

    def at(self, row: int) -> "HostMemory":
        """Return the ledger of one row of a table."""
        return HostMemory(
            terms=tuple(term.at(row) for term in self.terms if pick(term.applies, row)),
            training_bytes=pick(self.training_bytes, row),
            loading=self.loading.at(row),
            peak_bytes=pick(self.peak_bytes, row),
            available_bytes=self.available_bytes,
            fits=pick(self.fits, row),
        )


def estimate_host_memory(job: Job, s: Strategy) -> HostMemory:
    """Return the host memory that a layout takes of a node, in bytes.

        peak = max(training, loading);  training = (1 + pinned_fraction) * what is offloaded + what is paged out

    Source: the framework record's host_memory section.
    Leaves out: the processes themselves (2 to 4 GB a rank), data loaders and the page cache.
    """
    moved = _offloaded(job, s)
    terms = (*moved, _pinning(job, moved), *_paged_out(job, s))
    training, loading = total(terms), loading_term(job, s)
    peak, available = np.maximum(training, loading.amount), job.cluster.host_memory_bytes
    return HostMemory(
        terms=terms,
        training_bytes=training,
        loading=loading,
        peak_bytes=peak,
        available_bytes=available,
        fits=peak <= available if available else None,
    )


def fits_host(job: Job, s: Strategy) -> Truth:
    """Return whether a node's memory holds what is offloaded to it, or paged out; so where it is unknown."""
    available = job.cluster.host_memory_bytes
    is_moved = np.any(s.offloads_optimizer | (s.activation_offload_layers > 0))
    if not available or not (is_moved or job.optimizer.is_paged):
        return True
    return estimate_host_memory(job, s).training_bytes <= available


def _offloaded(job: Job, s: Strategy) -> tuple[Term, ...]:
    """Return what the ranks of a node keep in its memory in place of their GPUs'.

    The optimizer steps on the host, so its share of the gradients is there too, in the dtype of
    what it steps.
    """
    precision, framework = job.precision, job.framework
    on_gpu = replace(s, offload=Offload.NONE)
    zero_stage = np.maximum(s.zero_stage, framework.sharding.gradients_sharded_from)
    scattered = replace(on_gpu, zero_stage=zero_stage)
    is_stepped = np.where(s.offloads_optimizer, 1.0, 0.0)
    per_gradient = is_stepped * precision.stepped_bytes / precision.gradient_bytes
    stages = partition.heaviest_stages(job, s)
    held = [np.asarray(sum(partition.stage_parameters(job, s, each))) for each in stages]
    stage = partition.stage(
        job, s, np.choose(np.argmax(held, axis=0), [each.index for each in stages])
    )
    is_moved = np.where(s.offloads_parameters, 1.0, 0.0)
    states = (
        _of_a_node(job, "parameters", is_moved, ledger.parameters(job, on_gpu, stage).step),
        _of_a_node(job, "gradients", per_gradient, ledger.gradients(job, scattered, stage).step),
        _of_a_node(
            job,
            "optimizer_states",
            is_stepped,
            # The host has no pages to give way: there such states are as any others.
            ledger.optimizer_states(job, on_gpu, stage).step
            + ledger.paged_states(job, on_gpu, stage),
        ),
    )
    if not np.any(s.activation_offload_layers):
        return states
    return (*states, _activations(job, s))


def _paged_out(job: Job, s: Strategy) -> tuple[Term, ...]:
    """What the cards of a node have no room for of paged states, as the fullest of them has."""
    if not job.optimizer.is_paged:
        return ()
    out = ledger.estimate_memory(job, s).paged_out_bytes
    return (
        Term(
            name="host_paged_states",
            arithmetic=gpus(job.cluster.gpus_per_node) * size(out, "that do not fit on its card"),
            source=job.optimizer.source,
        ),
    )


def _activations(job: Job, s: Strategy) -> Term:
    """What blocks of the first stage, which has the most micro-batches in flight, keep in a node's memory.

        bytes = GPUs * blocks * T * kept * micro-batches in flight

    Source: torch.autograd.graph.save_on_cpu; for checkpoints Bekman et al., Arctic Long Sequence Training,
    arXiv:2506.13996, section 3.3.
    """
    first = partition.stage(job, s, 0 * s.pipeline_parallel_size)
    each = size(mean_block_bytes(job, s, first), "a block")
    blocks = count(offloaded_blocks(s, first), "blocks")
    return Term(
        name="host_activations",
        arithmetic=gpus(job.cluster.gpus_per_node)
        * blocks
        * each
        * plain(first.in_flight, "in flight"),
        source="Bekman et al., arXiv:2506.13996, section 3.3",
        applies=s.activation_offload_layers > 0,
    )


def _of_a_node(job: Job, name: str, factor: Amount, in_step: Expression) -> Term:
    return Term(
        name=f"host_{name}",
        arithmetic=gpus(job.cluster.gpus_per_node) * plain(factor) * in_step,
        source=job.framework.host_memory.source,
    )


def _pinning(job: Job, moved: tuple[Term, ...]) -> Term:
    return Term(
        name="host_pinned_buffers",
        arithmetic=percent(job.framework.host_memory.pinned_fraction) * size(total(moved)),
        source=job.framework.host_memory.source,
    )


def loading_term(job: Job, s: Strategy) -> Term:
    """The whole model on every rank, or on the first, while weights are read or initialised.

        bytes = ranks of the node that hold it * bytes of a weight * parameters

    Notation: a weight is in the dtype that is stepped, a frozen one in its own; where it is quantised,
    each goes to its GPU as it is read, or is packed by every rank for FSDP to shard. Ranks that divide the
    model get their parts from the first, as those do that shard it.
    Source: the framework record's host_memory section; the launch scripts (`shard`, `assemble`); one copy a
    rank is what runs out of host memory before the first step in Lightning-AI/litgpt#456 and
    huggingface/accelerate#2037.
    Leaves out: checkpoints of another dtype, which are cast tensor by tensor.
    """
    lora = job.recipe.lora
    copies = {"every": job.cluster.gpus_per_node, "first": 1, "none": 0}
    whole, divided = (copies[kind] for kind in job.framework.host_memory.loading)
    is_sharded = gathers_parameters(job, s)
    ranks_of_model = s.tensor_parallel_size * s.pipeline_parallel_size * s.context_parallel_size
    held = np.where(is_sharded | (ranks_of_model > 1), divided, whole)
    weights = bytes_each(_read_bytes(job)) * count(job.model.parameters, "parameters")
    if lora is not None and lora.is_quantised:
        held, model = np.where(is_sharded, whole, 0), partition.stage(job, Layout(), 0)
        packed = frozen_bytes(job, Layout(), model) + constant_bytes(job, Layout(), model)
        weights = plain(1.0) * size(packed, "of packed weights")
    return Term(
        name="host_loading",
        arithmetic=plain(held) * weights,
        source=job.framework.host_memory.source,
    )


def _read_bytes(job: Job) -> float:
    lora = job.recipe.lora
    if lora is None:
        return job.precision.stepped_bytes
    return 0.0 if lora.is_quantised else frozen_other_bytes(lora, job)
