"""Seconds that ranks spend on each other's data and cannot hide: one function per kind of parallelism.

Ranks are numbered as Megatron numbers them: tensor parallel innermost, then context, data (shards
before replicas), and pipeline outermost; experts are dealt over neighbouring ranks, data-parallel ones
first (see `Strategy.ranks_per_expert`).

Notation: t, c, e, p tensor, context, expert and pipeline parallel sizes; N shards, R replicas;
T tokens of a micro-batch on a rank; h hidden size; A micro-batches of a step; a bytes per element.
"""

from typing import NamedTuple

import numpy as np

from planner.catalog.interconnect import interconnect
from planner.collectives import operations
from planner.collectives.timed import known_or_timed_slowdown
from planner.core.remembered import remembered
from planner.core.term import Amount, Truth
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.domain.model import Part
from planner.domain.strategy import Recompute, Strategy
from planner.parallel.activations import (
    gathers_parameters,
    sequence_split,
    tokens,
)
from planner.parallel.adapters import gathered_stage_bytes, trained_parameters
from planner.parallel.partition import (
    Stage,
    dense_shards,
    expert_shards,
    stage_parameters,
)
from planner.step_time import pieces
from planner.step_time.rates import elementwise_bandwidth


class _Holders(NamedTuple):
    """Who holds the same parameters."""

    shards: Group
    """The ranks that ZeRO divides them over."""
    replicas: Amount
    """Of those shards."""


def tensor_group(s: Strategy) -> Group:
    """Return the ranks that share every matmul."""
    return Group(ranks=s.tensor_parallel_size)


def context_group(s: Strategy) -> Group:
    """Return the ranks that share a sequence."""
    return Group(ranks=s.context_parallel_size, stride=s.tensor_parallel_size)


def expert_group(s: Strategy) -> Group:
    """Return the ranks that deal out the experts of a layer."""
    return Group(ranks=s.expert_parallel_size, stride=s.ranks_per_expert)


def shard_group(s: Strategy) -> Group:
    """Return the ranks that ZeRO divides dense states over, context-parallel ones included."""
    return Group(
        ranks=s.data_parallel_shard_size * s.context_parallel_size, stride=s.tensor_parallel_size
    )


def replica_group(s: Strategy) -> Group:
    """Return the ranks that hold the same shard; under DDP, all that hold the same parameters."""
    shard = shard_group(s)
    return Group(ranks=s.data_parallel_replicate_size, stride=shard.ranks * shard.stride)


def activation_bytes(job: Job, s: Strategy) -> Amount:
    """Bytes of one hidden state of a micro-batch: a * T * h."""
    element = 4 if job.precision.matmul_dtype in {"fp32", "tf32"} else 2
    return element * tokens(job, s) * job.model.hidden_size


def tensor_parallel(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of one pass (forward, or backward) through a part: its partial sums, added up.

        n * all_reduce(a T h), or under sequence parallelism n * (all_gather + reduce_scatter + 2 crossing)

    Notation: n row-parallel matmuls of the part, experts' among them where tensor-parallel ranks share
    each; crossing of a ring that leaves a node, see `_crossing`. In fp8 what is gathered is rounded first,
    as matmuls want it: one byte per element, where the recipe's scales allow it.
    Source: Shoeybi et al., arXiv:1909.08053, section 3; Korthikanti et al., arXiv:2205.05198;
    the framework record's fp8_recipes.
    """
    sums = _partial_sums(s, part)
    if not np.any(sums):
        return 0.0 * activation_bytes(job, s)
    whole = summed(job, s)
    if not np.any(s.sequence_parallel):
        return sums * whole
    parted = _all_gather(job, s) + scattered(job, s) + 2 * _crossing(job, s)
    return sums * np.where(s.sequence_parallel, parted, whole)


@remembered(2)
def summed(job: Job, s: Strategy) -> Amount:
    """Seconds to add up the tensor-parallel ranks' partial sums of a hidden state on all of them."""
    return operations.all_reduce(job.cluster, tensor_group(s), activation_bytes(job, s))


@remembered(2)
def scattered(job: Job, s: Strategy) -> Amount:
    """Seconds to add them up and leave one part of the sequence on each."""
    size, group = activation_bytes(job, s), tensor_group(s)
    return operations.reduce_scatter(job.cluster, group, size) + copied_to_scatter(job, s, size)


def _crossing(job: Job, s: Strategy) -> Amount:
    """Seconds that a ring of tensor-parallel ranks takes besides where it leaves a node: per_rank * (t - 1).

    Notation: per_rank of the framework record's host section, 0 of most.
    Source: fitted on the ultrascale playbook's runs with 16 and 32 tensor-parallel ranks and no pipeline, over AWS
    EFA: a step of the ring after the other, each of which a message between nodes holds up.
    """
    per_rank = job.framework.host.crossing_seconds_per_rank
    ranks = np.asarray(s.tensor_parallel_size)
    return np.where(ranks > job.cluster.joined_gpus, per_rank * (ranks - 1), 0.0)


def gathered_again(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of the inputs that recompute="selective" by operation gathers again for a part.

        n * all_gather(a T h) under sequence parallelism

    Notation: as `tensor_parallel`.
    Source: torchtitan 0.3.0 distributed/activation_checkpoint.py: outputs of reduce-scatters are on the list of
    what is saved, those of all-gathers are not, and weight gradients read them.
    """
    by_operation = job.framework.activations.selective_recompute == "matmuls"
    is_again = np.logical_and(s.sequence_parallel, s.recompute == Recompute.SELECTIVE)
    sums = _partial_sums(s, part)
    if not by_operation or not np.any(is_again) or not np.any(sums):
        return 0.0
    return np.where(is_again, sums * _all_gather(job, s), 0.0)


@remembered(4)
def _partial_sums(s: Strategy, part: Part) -> Amount:
    """Return n, how often a pass through a part adds up what tensor-parallel ranks multiplied."""
    rows = [layer for layer in part.linears if layer.cuts_inputs]
    dense = {layer.name for layer in rows if layer.num_experts == 1}
    routed = {layer.name.removeprefix("expert_") for layer in rows if layer.num_experts > 1}
    is_shared = s.ranks_per_expert == s.tensor_parallel_size
    return len(dense) + np.where(is_shared, len(routed - dense), 0)


@remembered(2)
def _all_gather(job: Job, s: Strategy) -> Amount:
    size = activation_bytes(job, s)
    if job.fp8_recipe is not None and job.fp8_recipe.gathers_rounded:
        size = size / 2
    group = tensor_group(s)
    return operations.all_gather(job.cluster, group, size) + copied_after_gather(job, s, size)


def copied_after_gather(job: Job, s: Strategy, exchanged_bytes: Amount) -> Amount:
    """Seconds to copy what was gathered into the order of its sequences.

        seconds = (1 + 1) * bytes / (hbm_fraction * hbm), with several sequences in a micro-batch

    Ranks' parts arrive one after the other, each with its piece of all sequences.
    Source: the framework record's memory_bound section.
    Leaves out: what asynchronous tensor parallelism copies in their place, which its overlapped fraction holds.
    """
    if not job.framework.memory_bound.copies_exchanged:
        return 0.0
    is_copied = (np.asarray(s.micro_batch_size) > 1) & (np.asarray(s.tensor_parallel_size) > 1)
    return np.where(is_copied, 2 * exchanged_bytes / elementwise_bandwidth(job), 0.0)


def copied_to_scatter(job: Job, s: Strategy, exchanged_bytes: Amount) -> Amount:
    """Seconds to copy what will be scattered into the order of the ranks, in the mean of both passes.

        seconds = copied_after_gather(bytes), half of it where compiled

    What is scattered in backward are gradients of an input that several matmuls read, added up: compiled, the
    sum is written in that order.
    Source: torch/_inductor/lowering.py cat: a concatenation of up to 8 computed pieces is one kernel with them.
    """
    share = 0.5 if job.recipe.compile else 1.0
    return share * copied_after_gather(job, s, exchanged_bytes)


def hidden_of_tensor(job: Job, s: Strategy) -> tuple[Amount, Amount]:
    """Return which shares of tensor parallelism's exchanges hide behind matmuls, in forward and in backward.

    In pieces where the recipe says so, or where recipes of its precision do, beside sequence parallelism and over
    NVLink, which user buffers write through; else in backward alone, behind weight gradients.

    Source: the framework record's overlap and precisions.
    """
    overlap, said = job.framework.overlap, job.recipe.tensor_parallel_overlap
    if said is False:
        return 0.0, 0.0
    whole = overlap.tensor_overlapped_fraction
    if said:
        return whole, whole
    is_usual = job.precision.overlaps_tensor and job.cluster.gpu.nvlink_generation > 0
    in_pieces = np.logical_and(is_usual, s.sequence_parallel)
    return np.where(in_pieces, whole, 0.0), np.where(in_pieces, whole, overlap.tensor_fraction)


def context_parallel(job: Job, s: Strategy, part: Part) -> tuple[Amount, Amount]:
    """Seconds of a forward and of a backward pass through a part, by the framework's exchange.

        ring        (c - 1) * send(K), and twice that: keys, values and their gradients
        gather      all_gather(c K), and all_gather(c K) + reduce_scatter(c K)
        all_to_all  all_to_all(2 Q + K), and the same

    Notation: K = a T 2 kv / t bytes of keys and values, kv the width of all key heads; Q = a T q / t
    of queries, and as much of results.
    Source: Liu et al., ring attention, arXiv:2310.01889; Llama team, arXiv:2407.21783, section
    3.3.2, for gathering; Jacobs et al., Ulysses, arXiv:2309.14509, section 3.
    """
    if part.attention is None:
        return 0.0, 0.0
    element = 4 if job.precision.matmul_dtype in {"fp32", "tf32"} else 2
    each = element * tokens(job, s) / s.tensor_parallel_size
    keys, queries = each * 2 * part.attention.key_value_size, each * part.attention.query_size
    cluster, group, size = job.cluster, context_group(s), s.context_parallel_size
    if job.framework.context_parallel.exchange == "ring":
        ring = (size - 1) * operations.send(cluster, group, keys)
        return ring, 2 * ring
    if job.framework.context_parallel.exchange == "gather":
        gather = operations.all_gather(cluster, group, size * keys)
        return gather, gather + operations.reduce_scatter(cluster, group, size * keys)
    dealt = operations.all_to_all(cluster, group, 2 * queries + keys)
    return dealt, dealt


def expert_parallel(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of one pass through a part: tokens to their experts, and back.

        2 * all_to_all(a T k h / q) * (1 - o), k experts per token, q as sequence parallelism divides; a dispatcher
        that sends a token once to each node hands it on there

    Notation: o what hides behind other micro-batches where the recipe overlaps it (`hidden_of_experts`).
    Source: Lepikhin et al., GShard, arXiv:2006.16668, section 3; deepseek-ai/DeepEP.
    """
    routed = [layer.experts_per_token for layer in part.linears if layer.num_experts > 1]
    if not routed:
        return 0.0
    chosen = max(routed)
    size = chosen * activation_bytes(job, s) / sequence_split(s)
    is_once = job.recipe.expert_dispatch == "once-per-node"
    copies = chosen if is_once else 1
    exchange = operations.all_to_all(job.cluster, expert_group(s), size, copies=copies)
    return 2 * exchange * (1 - hidden_of_experts(job))


def hidden_of_experts(job: Job) -> float:
    """Return which share of the experts' exchange hides behind other micro-batches where the recipe overlaps it.

    More where one CUDA graph holds the whole step: nothing then waits for a host between the exchange and the matmuls
    that it runs beside.

    Source: the framework record's experts section.
    """
    experts, recipe = job.framework.experts, job.recipe
    if not recipe.expert_overlap:
        return 0.0
    is_able = float(job.cluster.gpu.compute_capability or 0) >= experts.whole_graphs_from
    is_whole = is_able and recipe.cuda_graphs and recipe.expert_dispatch == "once-per-node"
    return experts.whole_graphs_fraction if is_whole else experts.overlapped_fraction


@remembered(2)
def gather_parameters(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Seconds to gather all sharded parameters of a stage once, in blocks or buckets.

    Beside frozen weights, which the optimizer does not step, ZeRO-1 gathers the adapters alone.
    """
    dense_bytes = gathered_stage_bytes(job, s, stage)
    calls = pieces.gathers(job, s, stage, dense_bytes)
    shared = operations.all_gather(job.cluster, shard_group(s), dense_bytes, calls)
    if not job.model.has_experts or job.recipe.lora is not None:
        return shared
    _, experts = stage_parameters(job, s, stage)
    size, group = job.precision.gather_bytes * experts, _expert_shard_group(s)
    calls = pieces.gathers(job, s, stage, size)
    return shared + operations.all_gather(job.cluster, group, size, calls)


def reduce_gradients(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Seconds to reduce all gradients of a stage once.

    DDP, torch's ZeRO-1: all_reduce over N * R ranks
    sharded: reduce_scatter over the shards, then all_reduce of a shard over the replicas
    Frozen parameters have no gradients.
    """
    dense, experts = trained_parameters(job, s, stage)
    parts = [(dense, _Holders(shard_group(s), s.data_parallel_replicate_size))]
    if job.model.has_experts:
        group = _expert_shard_group(s)
        holders = s.expert_parallel_size * s.ranks_per_expert
        stage_ranks = dense_shards(s) * s.data_parallel_replicate_size * s.tensor_parallel_size
        ranks = stage_ranks / holders
        parts.append((experts, _Holders(group, np.maximum(1, np.floor_divide(ranks, group.ranks)))))
    return sum(_reduce(job, s, amount, holders, stage) for amount, holders in parts)


def average_parameters(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Seconds to average all parameters of a stage over the data-parallel ranks, as local SGD does.

        all_reduce(parameter_bytes * parameters)

    Source: Stich, local SGD, arXiv:1805.09767.
    """
    dense, experts = trained_parameters(job, s, stage)
    group = shard_group(s)
    everyone = Group(ranks=group.ranks * s.data_parallel_replicate_size, stride=group.stride)
    each = job.precision.parameter_bytes
    calls = pieces.buckets(job, s, dense + experts, each)
    return operations.all_reduce(job.cluster, everyone, each * (dense + experts), calls)


def slowdown(job: Job, s: Strategy) -> Amount:
    """Return the seconds that compute loses per second of a data-parallel collective beside it.

    Source: the user's own machine, where that was measured; else `data/calibration/interconnect.toml`,
    overlap_slowdown, by what carries the collective.
    Leaves out: groups within a node that see another link than the node's; that gathers may lose another share than
    scatters, of which the larger is taken.
    """
    known = _known_slowdown(job, s)
    if all(curve.slowdown is None for curve in job.cluster.timed_collectives):
        return known
    shards = shard_group(s)
    everyone = Group(ranks=shards.ranks * s.data_parallel_replicate_size, stride=shards.stride)
    whole, scattered, gathered = (
        known_or_timed_slowdown(job.cluster, group, operation, known)
        for group, operation in (
            (everyone, "all_reduce"),
            (shards, "reduce_scatter"),
            (shards, "all_gather"),
        )
    )
    return np.where(gathers_parameters(job, s), np.maximum(scattered, gathered), whole)


def _known_slowdown(job: Job, s: Strategy) -> Amount:
    """Return what compute loses beside data-parallel collectives by what carries them.

        inside a node, shards among them: inner;  between nodes: max(network, inner * min(1, B m / (G inside)))

    Notation: inner, network of what carries the group inside a node, and between nodes; B bytes per second of a
    node's network, of which m of its G GPUs get their part; inside bytes per second of the links in a node, which
    are busy for that share of the time, and idle where the network is slower.
    """
    cluster, by_medium = job.cluster, interconnect().overlap_slowdown.by_medium
    inner, replica, shards = by_medium[cluster.intra_node.medium], replica_group(s), shard_group(s)
    spans = replica.ranks * replica.stride > cluster.joined_gpus
    if cluster.inter_node is None or not np.any(spans):
        return inner + 0.0 * np.asarray(replica.ranks)
    inside = np.maximum(1, np.floor_divide(cluster.gpus_per_node, shards.stride))
    rate = cluster.inter_node.bytes_per_second * inside / cluster.gpus_per_node
    busy = np.minimum(1.0, rate / cluster.intra_node.bytes_per_second)
    stays = (np.asarray(shards.ranks) > 1) & (shards.ranks * shards.stride <= cluster.joined_gpus)
    busy = np.where(stays, 1.0, np.where(inside > 1, busy, 0.0))
    return np.where(spans, np.maximum(by_medium["network"], inner * busy), inner)


def scatters(job: Job, s: Strategy) -> Truth:
    """Return whether each rank gets its share of the gradients only."""
    return s.zero_stage >= job.framework.sharding.scatters_gradients_from


def _reduce(job: Job, s: Strategy, elements: Amount, holders: _Holders, stage: Stage) -> Amount:
    group, replicas = holders
    size = job.precision.reduce_bytes * elements
    everyone = Group(ranks=group.ranks * replicas, stride=group.stride)
    calls = pieces.reductions(job, s, stage, elements)
    whole = operations.all_reduce(job.cluster, everyone, size, calls)
    is_parted = scatters(job, s)
    if not np.any(is_parted):
        return whole
    outer = Group(ranks=replicas, stride=group.ranks * group.stride)
    parted = operations.reduce_scatter(job.cluster, group, size, calls) + operations.all_reduce(
        job.cluster, outer, size / group.ranks, calls
    )
    return np.where(is_parted, parted, whole)


def _expert_shard_group(s: Strategy) -> Group:
    return Group(ranks=expert_shards(s), stride=s.ranks_per_expert * s.expert_parallel_size)
