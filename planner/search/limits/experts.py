"""Limits of how the experts of a mixture are dealt out and divided."""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy, Whole
from planner.parallel.partition import dense_shards
from planner.search.limits.base import divides


def experts_do_not_divide(job: Job, s: Strategy) -> Breach:
    """The expert parallel size must divide the experts.

    Why: a rank holds whole experts, and ranks with fewer would wait for the others.

    Instead: an expert parallel size that divides the number of experts.

    Source: Lepikhin et al., GShard, arXiv:2006.16668, section 3.
    """
    experts = _experts(job)
    return Breach(
        broken=np.logical_not(divides(s.expert_parallel_size, experts)),
        message="expert_parallel_size {size} does not divide the {experts:,} experts"
        if job.model.has_experts
        else "expert_parallel_size {size} deals out experts, and the model has none",
        hint="use a divisor of {right:,}" if job.model.has_experts else "leave it at 1",
        numbers={
            "size": s.expert_parallel_size,
            "experts": experts,
            "right": np.gcd(experts, _expert_ranks(job, s)),
        },
        field="strategy.expert_parallel_size",
    )


def tokens_of_experts_are_whole(job: Job, s: Strategy) -> Breach:
    """A mixture that tensor parallelism divides has sequence parallelism beside it, where the framework asks that.

    Why: without it every tensor-parallel rank would route the same tokens to the experts.

    Instead: sequence_parallel, or tensor parallelism of 1.

    Source: Megatron-LM core/transformer/moe/moe_layer.py MoELayer.forward, which raises; the framework record's capabilities.
    """
    asks = job.framework.capabilities.experts_need_sequence_parallel and job.model.has_experts
    is_divided = np.asarray(s.tensor_parallel_size) > 1
    return Breach(
        broken=asks & is_divided & np.logical_not(s.sequence_parallel),
        message="{framework} trains no mixture of experts with tensor parallelism and without"
        " sequence_parallel",
        hint="set sequence_parallel to true",
        numbers={"framework": job.framework.name},
        field="strategy.sequence_parallel",
    )


def shares_of_experts_do_not_fit(job: Job, s: Strategy) -> Breach:
    """The ranks that share an expert are some of those that share every other matrix.

    Why: each of the groups over which experts are dealt holds all of them once, cut as often as is asked; what is
    left of a stage's ranks holds the same again.

    Instead: a divisor of the tensor parallel size whose product with the expert parallel size divides the ranks of
    a stage, or none: as many as dealing the experts leaves.

    Source: Megatron-LM core/parallel_state.py, --expert-tensor-parallel-size.
    """
    given = s.expert_tensor_parallel_size
    each: Whole = np.maximum(given, 1)
    left: Whole = s.expert_parallel_size
    # Factor by factor: the product of the largest sizes is no machine number.
    for ranks in (
        np.floor_divide(s.tensor_parallel_size, each),
        s.context_parallel_size,
        s.data_parallel_shard_size,
        s.data_parallel_replicate_size,
    ):
        left = np.floor_divide(left, np.maximum(np.gcd(left, ranks), 1))
    fits = divides(each, s.tensor_parallel_size) & np.equal(left, 1)
    return Breach(
        broken=(np.asarray(given) > 0) & np.logical_not(fits & job.model.has_experts),
        message="expert_tensor_parallel_size {given} and expert_parallel_size {size} do not divide tensor"
        " {tensor} x context and data {ranks}"
        if job.model.has_experts
        else "expert_tensor_parallel_size {given} divides experts, and the model has none",
        hint="leave expert_tensor_parallel_size out",
        numbers={
            "given": given,
            "size": s.expert_parallel_size,
            "tensor": s.tensor_parallel_size,
            "ranks": s.context_parallel_size * s.data_parallel_size,
        },
        field="strategy.expert_tensor_parallel_size",
    )


def experts_do_not_spread(job: Job, s: Strategy) -> Breach:
    """Experts are dealt over the ranks of a pipeline stage that see different tokens.

    Why: they exchange those tokens, and each group of them holds every expert once. Some frameworks fold
    tensor-parallel ranks into the groups: each then takes its share of the tokens to whole experts.

    Instead: an expert parallel size that divides context x data, or there tensor x context x data.

    Source: Megatron-LM core/parallel_state.py, expert-model-parallel groups; Liu et al., MoE parallel
    folding, arXiv:2504.14960; the framework record's capabilities.
    """
    is_folded = job.framework.capabilities.folds_experts
    ranks = _expert_ranks(job, s)
    return Breach(
        broken=np.logical_not(divides(s.expert_parallel_size, ranks)),
        message="expert_parallel_size {size} does not divide the {ranks} ranks of {kinds}",
        hint="use a divisor of {right}",
        numbers={
            "right": np.gcd(_experts(job), ranks),
            "size": s.expert_parallel_size,
            "ranks": ranks,
            "kinds": ("tensor x " if is_folded else "") + "context x data",
        },
        field="strategy.expert_parallel_size",
    )


def _experts(job: Job) -> int:
    counts = [layer.num_experts for part in job.model.blocks for layer in part.linears]
    return max(counts, default=1)


def _expert_ranks(job: Job, s: Strategy) -> Whole:
    """Return the ranks of a stage that experts are dealt over."""
    ranks = dense_shards(s) * s.data_parallel_replicate_size
    return ranks * s.tensor_parallel_size if job.framework.capabilities.folds_experts else ranks
