"""Rules about fitting: does the layout's memory leave the card room?"""

from dataclasses import replace

from planner.advice.rules.base import Situation
from planner.core.units import format_bytes, format_fraction, format_pace, format_seconds
from planner.domain.strategy import Layout, Offload
from planner.memory.host import estimate_host_memory, loading_term
from planner.memory.room import COMFORTABLE_FRACTION
from planner.search.candidate import estimate
from planner.search.largest_that_fits import lighter_losses

_LOGITS = "logits_and_loss"


def out_of_memory(situation: Situation) -> str | None:
    """The layout needs more memory than the card offers.

    Why: the first step, or the first with the longest sequence, ends in an out-of-memory error.

    Instead: recompute activations, compute the loss in chunks or fused with the head, use a smaller
    micro-batch with more accumulation, a higher ZeRO stage, or more GPUs (which shrink only what is sharded).

    Source: the memory ledger of the layout; Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3; Hsu et
    al., Liger Kernel, arXiv:2410.10989, section 3.2.
    """
    memory, usable = situation.candidate.memory, situation.job.usable_bytes
    if memory.reserved_bytes <= usable:
        return None
    largest = max(memory.terms, key=lambda term: term.amount)
    return (
        f"needs {format_bytes(memory.reserved_bytes)} of {format_bytes(usable)},"
        f" {format_bytes(memory.reserved_bytes - usable)} too much;"
        f" most of it {largest.name.replace('_', ' ')}: {format_bytes(largest.amount)}"
        f" = {largest.how}"
        f"{_with_fewer_logits(situation) if largest.name == _LOGITS else ''}"
    )


def _with_fewer_logits(situation: Situation) -> str:
    layout, before = situation.candidate.strategy, situation.candidate.step_time.step_seconds
    texts = []
    for loss, job in lighter_losses(situation.job):
        lighter = estimate(job, layout)
        if lighter.fits:
            reserved = format_bytes(lighter.memory.reserved_bytes)
            pace = format_pace(lighter.step_time.step_seconds, before)
            texts.append(f"; with --loss {loss} it fits in {reserved}, {pace}")
    return "".join(texts)


def host_out_of_memory(situation: Situation) -> str | None:
    """What is offloaded needs more memory than a node has.

    Why: pinned memory cannot be swapped out, so the process ends before the first step, or the kernel ends it.

    Instead: more nodes, among which states are divided; what keeps them small, such as an 8-bit
    optimizer or adapters; or a machine with more memory.

    Source: the host memory ledger of the layout; Ren et al., ZeRO-Offload, arXiv:2101.06840.
    """
    job, s = situation.job, situation.candidate.strategy
    if not s.offloads_optimizer and not s.activation_offload_layers:
        return None
    host = estimate_host_memory(job, s)
    if not host.available_bytes or host.training_bytes <= host.available_bytes:
        return None
    return (
        f"{_waiting(s)} needs {format_bytes(host.training_bytes)} of the"
        f" {format_bytes(host.available_bytes)} of a node's memory,"
        f" {format_bytes(host.training_bytes - host.available_bytes)} too much"
    )


def _waiting(s: Layout) -> str:
    layers = s.activation_offload_layers
    of_layers = f"activation_offload_layers={layers}" if layers else ""
    of_states = f"offload={s.offload}" if s.offloads_optimizer else ""
    return " and ".join(filter(None, (of_states, of_layers)))


def loading_exceeds_the_host(situation: Situation) -> str | None:
    """Reading or drawing the weights needs more memory than a node has.

    Why: the processes hold whole weights in host memory before they are on the GPUs; the kernel ends
    one, and the run with it, before the first step.

    Instead: a layout or framework in which one process reads them for all, or each its own part:
    FSDP, tensor or pipeline parallelism, torchtitan; or a machine with more memory.

    Source: the host memory ledger of the layout; huggingface/accelerate#2037, Lightning-AI/litgpt#456.
    """
    available = situation.job.cluster.host_memory_bytes
    loading = loading_term(situation.job, situation.candidate.strategy)
    if not available or loading.amount <= available:
        return None
    return (
        f"loading the weights takes {format_bytes(loading.amount)} of a node's memory,"
        f" which has {format_bytes(available)}: {loading.how}"
    )


def tight_memory(situation: Situation) -> str | None:
    """The layout fits, but leaves the card little room.

    Why: near the limit the allocator frees and retries, throughput falls, and one longer sequence
    or an evaluation step ends the run.

    Instead: a smaller micro-batch, recompute, or a higher ZeRO stage.

    Source: TensorAuto/OpenTau#273: 7.0, 6.2 and 4.9 samples/s at 91, 98 and 97 % reserved.
    """
    if not situation.candidate.fits or situation.candidate.is_comfortable:
        return None
    share = situation.candidate.memory.reserved_bytes / situation.job.usable_bytes
    tight = f"above {format_fraction(COMFORTABLE_FRACTION)} is tight"
    return f"takes {format_fraction(share)} of the card's memory; {tight}"


def states_wait_in_host_memory(situation: Situation) -> str | None:
    """States are offloaded to host memory, as a last resort.

    Why: they cross PCIe every step, and the CPU steps the optimizer.

    Instead: more GPUs, recompute, an 8-bit optimizer or adapters, each of which keeps training on
    the GPUs. Where layouts without it fit, it must be faster by its price in `data/calibration/choice.toml`.

    Source: Ren et al., ZeRO-Offload, arXiv:2101.06840.
    """
    s = situation.candidate.strategy
    if not s.offloads_optimizer:
        return None
    host = estimate_host_memory(situation.job, s)
    known = "of {available}" if host.available_bytes else "assumed to be there"
    return (
        f"{str(s.offload).replace('+', ' and ')} in host memory:"
        f" {format_bytes(host.training_bytes)} of each node's,"
        f" {known.format(available=format_bytes(host.available_bytes))};"
        f" {_without_offload(situation)}"
    )


def _without_offload(situation: Situation) -> str:
    """Say what would be taken without, or whether the same layout would fit with its states on the GPU."""
    if situation.on_gpu:
        seconds = format_seconds(situation.on_gpu.step_time.step_seconds)
        room = "" if situation.on_gpu.is_comfortable else " leaves the card no room and"
        return f"without it {situation.on_gpu.strategy.family}{room} takes {seconds}"
    kept = replace(situation.candidate.strategy, offload=Offload.NONE)
    needed, usable = estimate(situation.job, kept).memory.reserved_bytes, situation.job.usable_bytes
    amounts = f"{format_bytes(needed)} of {format_bytes(usable)} per GPU"
    if needed <= COMFORTABLE_FRACTION * usable:
        return f"not needed, and it costs time: without it the layout takes {amounts}"
    if needed <= usable:
        return f"without it the layout fits, but not with room: {amounts}"
    return f"without it the layout would not fit: {amounts}"
