"""Rules about fitting: does the layout's memory leave the card room?"""

from dataclasses import replace

from planner.advice.rules.base import Situation
from planner.advice.rules.sentences import said
from planner.core.units import format_pace
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
    needs = said(
        "MEM001.needs",
        needed=memory.reserved_bytes,
        usable=usable,
        over=memory.reserved_bytes - usable,
        largest=largest.name.replace("_", " "),
        amount=largest.amount,
        how=largest.how,
    )
    return needs + (_with_fewer_logits(situation) if largest.name == _LOGITS else "")


def _with_fewer_logits(situation: Situation) -> str:
    layout, before = situation.candidate.strategy, situation.candidate.step_time.step_seconds
    texts = []
    for loss, job in lighter_losses(situation.job):
        lighter = estimate(job, layout)
        if lighter.fits:
            reserved = lighter.memory.reserved_bytes
            pace = format_pace(lighter.step_time.step_seconds, before)
            texts.append(said("MEM001.lighter", loss=loss, reserved=reserved, pace=pace))
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
    return said(
        "MEM004.host",
        what=_waiting(s),
        needed=host.training_bytes,
        available=host.available_bytes,
        over=host.training_bytes - host.available_bytes,
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
    return said("MEM005.loading", needed=loading.amount, available=available, how=loading.how)


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
    return said("MEM002.tight", share=share, most=COMFORTABLE_FRACTION)


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
    known = said("MEM003.available", available=host.available_bytes)
    return "".join(
        (
            said("MEM003.waits", what=_offloaded(s), host=host.training_bytes),
            known if host.available_bytes else said("MEM003.assumed"),
            _without_offload(situation),
        )
    )


def _offloaded(s: Layout) -> str:
    words = {"optimizer": "optimizer states", "parameters": "parameters"}
    return " and ".join(words.get(each, each) for each in str(s.offload).split("+"))


def _without_offload(situation: Situation) -> str:
    """Say what would be taken without, or whether the same layout would fit with its states on the GPU."""
    if situation.on_gpu:
        other = situation.on_gpu
        key = "MEM003.other" if other.is_comfortable else "MEM003.other_no_room"
        return said(key, family=other.strategy.family, seconds=other.step_time.step_seconds)
    kept = replace(situation.candidate.strategy, offload=Offload.NONE)
    needed, usable = estimate(situation.job, kept).memory.reserved_bytes, situation.job.usable_bytes
    if needed <= COMFORTABLE_FRACTION * usable:
        return said("MEM003.not_needed", needed=needed, usable=usable)
    if needed <= usable:
        return said("MEM003.no_room", needed=needed, usable=usable)
    return said("MEM003.too_large", needed=needed, usable=usable)
