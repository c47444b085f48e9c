"""What the GPU waits for: the host that launches its work, and the ranks that meet at every exchange.

Notation: t tensor parallel size; all results in seconds, for a number or a column of layouts.
"""

import numpy as np

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.model import Linear, Part
from planner.domain.strategy import Recompute, Strategy
from planner.parallel.adapters import launched
from planner.parallel.partition import recomputed_share
from planner.parallel.recomputed_modules import repeated_modules
from planner.step_time import compute, elementwise

_UNFUSED_KERNELS = 8
"""More that the host launches then in forward: those, and the mask's own."""


def launches(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds the host needs to launch the part's operations, forward and backward together.

        seconds = host_seconds * (forward * (2 + recompute) + modules + exchanges * log2(t) + sharded)
                  + divided * (2 + recompute) / 2

    Notation: forward: two operations per matmul, of which experts that run one by one have one each,
    one per kept tensor, three for attention; backward launches as many; modules: forward of those that
    recompute by themselves; exchanges: the sums of
    tensor parallelism, at each of which a rank waits for the slowest of t hosts; sharded: what the
    framework does around a block whose parameters are sharded; divided: what DTensors take. With `waits` it is a
    floor under the part's time, which small micro-batches meet.
    CUDA graphs leave a share of the operations, experts' routing adds to them: the framework record.
    """
    forward = _operations(job, s, part) + launched(job, part)
    forward = forward + _UNFUSED_KERNELS * elementwise.unfuses_softmax(job, s, part)
    again, exchanges = repeats_forward(job, s, part), _exchanges(job, s, part)
    graphed = job.framework.host.graphed_fraction if job.recipe.cuda_graphs else 1.0
    forward, modules = graphed * forward, graphed * _of_modules(job, s, part)
    operations = (2 + again) * forward + modules + exchanges * np.log2(s.tensor_parallel_size)
    if part.is_block:
        is_sharded = np.asarray(s.zero_stage) >= job.framework.sharding.parameters_sharded_from
        operations = operations + job.framework.host.sharded_operations * is_sharded
    divided = _of_divided(job, s, part) * (2 + again) / 2
    return operations * job.framework.host.operation_seconds + divided


def _of_divided(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of a block's DTensors, forward and backward; experts are divided by hand.

        seconds = linears * per linear + p * norms * per norm, p 1 with sequence parallelism

    Source: the framework record's host section.
    """
    if not part.is_block:
        return 0.0
    linears = sum(1 for layer in part.linears if layer.num_experts == 1)
    norms = sum(1 for name in part.vectors if "norm" in name or name.startswith("ln_"))
    host = job.framework.host
    of_norms = norms * host.divided_norm_seconds * np.asarray(s.sequence_parallel)
    seconds = linears * host.divided_linear_seconds + of_norms
    return np.where(np.asarray(s.tensor_parallel_size) > 1, seconds, 0.0)


def _operations(job: Job, s: Strategy, part: Part) -> Amount:
    matmuls = sum((_launched(job, s, layer) for layer in part.linears), 0.0)
    routed = job.framework.experts.operations if compute.routes_tokens(part) else 0.0
    return 2 * matmuls + len(part.kept) + (3 if part.attention else 0) + routed


def _of_modules(job: Job, s: Strategy, part: Part) -> Amount:
    repeated = (
        np.where(is_repeated, _operations(job, s, module.repeated), 0.0)
        for module, is_repeated in repeated_modules(s, part)
    )
    return recomputed_share(job, s) * sum(repeated, 0.0)


def waits(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds that the part's exchanges wait, forward and backward together: see `exchange_wait`."""
    if not job.framework.host.exchange_seconds_per_rank:
        return 0.0
    return _exchanges(job, s, part) * exchange_wait(job, s)


def _exchanges(job: Job, s: Strategy, part: Part) -> Amount:
    sums = sum(layer.cuts_inputs for layer in part.linears)
    return (2 + repeats_forward(job, s, part)) * sums


def repeats_forward(job: Job, s: Strategy, part: Part) -> Amount:
    """Return the share of the part's occurrences whose forward runs again in backward: 1, 0 or between."""
    share = recomputed_share(job, s) if part.is_block else 0.0
    again: Amount = np.where(s.recompute == Recompute.FULL, share, 0.0)
    return again


def exchange_wait(job: Job, s: Strategy) -> Amount:
    """Seconds of each exchange of tensor parallelism beside a pipeline whose hops leave a node.

        seconds = wait_per_rank * t * sqrt(nodes of the t ranks)

    Notation: wait_per_rank of the framework record's host section.
    Source: fitted on the ultrascale playbook's runs of up to 16 nodes, where small micro-batches meet the same
    floor whatever their size: 10, 15, 25 and 55 ms a layer at 2, 4, 8 and 16 ranks.
    """
    per_rank = job.framework.host.exchange_seconds_per_rank
    ranks = np.asarray(s.tensor_parallel_size)
    if not per_rank:
        return 0.0 * ranks
    joined = job.cluster.joined_gpus
    leaves = (s.pipeline_parallel_size > 1) & (job.cluster.world_size > joined)
    nodes = np.maximum(1, -(-ranks // joined))
    return np.where(leaves & (ranks > 1), per_rank * ranks * np.sqrt(nodes), 0.0)


def host_stretch(
    job: Job, launched: Amount, gpu_seconds: Amount, exchange_seconds: Amount = 0.0
) -> Amount:
    """Return by what factor launching stretches the GPU's time for a part.

        stretch = ((busy^b + launched^b)^(1/b) - exchange) / gpu_seconds, busy = gpu + exchange

    Notation: launched the seconds of `launches` and `waits`; b the framework record's sharpness. Some operations of a part wait
    for the host where others keep the GPU busy, so the two blend where they are close. What the ranks exchange is
    launched ahead as well: waiting for the host hides it. Parts without work stay at 1.
    """
    busy = np.maximum(gpu_seconds + exchange_seconds, 1e-12)
    sharpness = job.framework.host.sharpness
    waiting = busy * ((1 + (launched / busy) ** sharpness) ** (1 / sharpness) - 1)
    return 1 + waiting / np.maximum(gpu_seconds, 1e-12)


def runs_experts_one_by_one(job: Job) -> bool:
    """Return whether the GPU has no kernel that multiplies all experts of a layer at once."""
    capability = job.cluster.gpu.compute_capability
    return bool(capability) and float(capability) < job.framework.experts.grouped_from


def _launched(job: Job, s: Strategy, layer: Linear) -> Amount:
    if layer.num_experts == 1 or not runs_experts_one_by_one(job):
        return 1.0
    return layer.num_experts / s.expert_parallel_size
