"""What offloading adds to a step: copies to the host and back as far as nothing hides them, and the optimizer on the CPU.

Notation: A gradient accumulation steps; F, Bw forward and backward seconds of a micro-batch on the
slowest stage; n GPUs of a node.
"""

import numpy as np

from planner.catalog.interconnect import interconnect
from planner.core.term import (
    NOTHING,
    Amount,
    Term,
    count,
    gpus,
    largest,
    micro_batches,
    only_where,
    rate,
    seconds,
    size,
)
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.hardware.pcie import slot_bytes_per_second
from planner.hardware.usual_host import host_memory_bytes_per_second
from planner.parallel.activations import mean_block_bytes, offloaded_blocks
from planner.parallel.adapters import trained_parameters
from planner.parallel.partition import Stage, dense_shards, expert_shards, stage_parameters
from planner.step_time.terms import StepTerm


def terms(
    job: Job, s: Strategy, stage: Stage, forward: Amount, backward: Amount
) -> tuple[Term, ...]:
    """Return the term of a step that offloads; nothing where no layout of the table does.

        seconds = down + (T - 1) * share / add_rate + n * share / host_rate + up
        down = T * max(0, leaving * share / (T * pcie) - overlap * Bw)
        leaving = L + (T - 1) * g; where gradients are added on the GPU L + (2 T - 1) * g for T > 1
        up, optimizer alone: parameter_bytes * share / pcie, after the step
        up, parameters too: A * (max(0, fetch - overlap * F) + max(0, fetch - overlap * Bw)), the
        second where backward gathers again; fetch = parameter_bytes * held / pcie

    Notation: share the trained parameters that a rank steps, held those it holds; T times that
    gradients are reduced in a step; L bytes of a gradient that leaves to be stepped, g of one that waits; host_rate parameters per second that a node's CPUs step (`stepped_per_second`);
    add_rate those whose gradients a rank adds up there, which backward waits for.
    Source: Ren et al., ZeRO-Offload, arXiv:2101.06840, section 4: gradients leave as backward makes
    them, parameters return after the step; fully_shard's CPUOffloadPolicy copies a shard before each
    gather; the framework record's offload section.
    Leaves out: delayed parameter update; NVMe.
    """
    if not np.any(s.offloads_optimizer):
        return ()
    share = _share(s, trained_parameters(job, s, stage))
    pcie = host_link_bytes_per_second(job)
    hidden = job.framework.overlap.backward_fraction * np.asarray(backward)
    every = s.zero_stage >= job.framework.sharding.reduces_every_micro_batch_from
    times = np.where(every, s.gradient_accumulation_steps, 1)
    down = _leaving_bytes(job, times) * share / pcie / times
    is_beside = np.asarray(s.zero_stage) >= job.framework.offload.overlaps_from
    leaving = times * np.maximum(0.0, down - hidden * is_beside)
    stepping = (
        gpus(job.cluster.gpus_per_node)
        * count(share, "parameters")
        / count(stepped_per_second(job), "a second on the CPU")
    )
    added = job.framework.offload.added_parameters_per_second
    adding = np.where(s.offloads_parameters, (times - 1) * share / added, 0.0)
    fetch = job.precision.parameter_bytes * _share(s, stage_parameters(job, s, stage)) / pcie
    again = np.where(s.gathers_twice, np.maximum(0.0, fetch - hidden), 0.0)
    before = np.maximum(0.0, fetch - job.framework.overlap.backward_fraction * np.asarray(forward))
    returning = job.precision.parameter_bytes * share / pcie
    up = np.where(
        s.offloads_parameters, s.gradient_accumulation_steps * (before + again), returning
    )
    moved = seconds(leaving + adding, "of gradients to the host, and added up there") + stepping
    return (
        Term(
            name=StepTerm.OFFLOAD,
            arithmetic=only_where(s.offloads_optimizer, moved + seconds(up, "of parameters back")),
            note=("copies at ", rate(pcie), " a GPU"),
            source=job.framework.offload.source,
            applies=s.offloads_optimizer,
        ),
    )


def _leaving_bytes(job: Job, times: Amount) -> Amount:
    """Return the bytes of a parameter's gradient that cross to or from the host in a step.

    Source: DeepSpeed runtime/zero/stage_1_and_2.py async_accumulate_grad_in_cpu_via_gpu and stage3.py partition_grads.
    """
    record, waiting = job.framework.offload, job.precision.gradient_bytes
    last = record.leaving_bytes or waiting
    if not record.adds_on_gpu:
        return last + (np.asarray(times) - 1) * waiting
    return last + np.where(np.asarray(times) > 1, (2.0 * np.asarray(times) - 1) * waiting, 0.0)


def stepped_per_second(job: Job) -> float:
    """Return the parameters that the CPUs of a node step in a second, several times as many in one kernel.

        min(rate, memory / bytes)

    Notation: memory what a desktop's two channels give, where the node is one; bytes that stepping a parameter moves.
    Source: the framework record's offload section; `data/calibration/interconnect.toml`, section host.
    Leaves out: how many cores a node has; that a loop over tensors gains nothing from more of them.
    """
    offload = job.framework.offload
    is_fused = job.recipe.optimizer in offload.fused
    rate = offload.fused_parameters_per_second if is_fused else offload.parameters_per_second
    return min(rate, host_memory_bytes_per_second(job.cluster) / offload.stepped_bytes)


def activation_terms(
    job: Job, s: Strategy, stage: Stage, forward: Amount, backward: Amount
) -> tuple[Term, ...]:
    """Return the term of a step whose blocks keep activations in host memory; nothing where none do.

        seconds = A * (max(0, copy - overlap * w * F) + max(0, copy - overlap * w * Bw))
        copy = n * kept / pcie

    Notation: n of the stage's N blocks; kept bytes that a micro-batch leaves in one; overlap 0 where a framework
        copies on the stream that computes; w the share of blocks beside which copies run: n / N, or 1 where they
        are spread over all of them.
    Source: a block's copy runs beside the compute of the next one, on a stream of its own: Bekman et al.,
    arXiv:2506.13996, section 3.3. Spread: TransformerEngine pytorch/cpu_offload.py AsyncDoubleBufferGroupOffloadHandler,
    whose windows deal the copies evenly to the blocks.
    Leaves out: an optimizer that is offloaded besides, whose copies take the same link.
    """
    if not np.any(np.asarray(s.activation_offload_layers)):
        return ()
    blocks = offloaded_blocks(s, stage)
    copied = count(blocks, "blocks") * size(mean_block_bytes(job, s, stage))
    link = host_link_bytes_per_second(job)
    overlap = job.framework.overlap
    share = 1.0 if overlap.spreads_activation_copies else blocks / np.maximum(1, stage.num_blocks)
    hidden = share * (overlap.backward_fraction if overlap.hides_activation_copies else 0.0)
    out, back = (
        largest(copied / rate(link) - seconds(hidden * np.asarray(each), f"behind {name}"), NOTHING)
        for each, name in ((forward, "forward"), (backward, "backward"))
    )
    has_any = s.activation_offload_layers > 0
    return (
        Term(
            name=StepTerm.ACTIVATION_OFFLOAD,
            arithmetic=only_where(
                has_any, micro_batches(s.gradient_accumulation_steps) * (out + back)
            ),
            source="Bekman et al., arXiv:2506.13996, section 3.3; data/links by PCIe generation, data/gpus of NVLink to the CPU",
            applies=has_any,
        ),
    )


def host_link_bytes_per_second(job: Job) -> float:
    """Return what one GPU's copies to or from host memory reach while all of its node copy.

        min(pcie, host_memory / n), what NVLink to the CPU gives (Grace), or what was timed on the user's own machine

    Source: `data/links` by PCIe generation; `data/calibration/interconnect.toml`, [pcie], for the
    memory that the GPUs of a node share; the GPU's record for NVLink to the CPU.
    Leaves out: lanes shared behind a switch, NUMA settings.
    """
    gpu = job.cluster.gpu
    if gpu.host_link_bytes_per_second:
        return gpu.host_link_bytes_per_second
    pcie = interconnect().pcie
    generation = gpu.pcie_generation or pcie.default_generation
    slot, _ = slot_bytes_per_second(generation, gpu.pcie_lanes or pcie.default_lanes)
    memory = pcie.host_memory_bytes_per_second[pcie.known_generation(generation)]
    return min(slot, memory / job.cluster.gpus_per_node)


def _share(s: Strategy, parameters: tuple[Amount, Amount]) -> Amount:
    dense, experts = parameters
    is_sharded = s.shards_optimizer
    return dense / np.where(is_sharded, dense_shards(s), 1) + experts / np.where(
        is_sharded, expert_shards(s), 1
    )
