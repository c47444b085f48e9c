"""The Hugging Face guide's decision process for one node, as rules; each names its families."""

from planner.rules.base import Situation
from planner.units import format_bytes, format_rate


def one_gpu_only(situation: Situation) -> str | None:
    """The job has a single GPU.

    Why: there is nothing to parallelise; memory is won by recompute, 16-bit precision, smaller
    micro-batches with accumulation, or an 8-bit optimizer.

    Instead: nothing; more GPUs make the same plan faster by data parallelism.

    Source: Hugging Face, Efficient Training on Multiple GPUs, introduction.
    """
    return "one GPU: nothing to divide" if situation.job.cluster.world_size == 1 else None


def model_fits_on_one_gpu(situation: Situation) -> str | None:
    """The model comfortably fits onto a single GPU (case 1): DDP, or ZeRO.

    Why: every GPU can hold a whole replica, so only gradients need to cross the link, once per
    step; ZeRO may or may not be faster, and saves memory that is not needed here.

    Instead: ZeRO where the memory it frees buys a larger micro-batch that pays for its traffic.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 1.
    """
    if situation.job.cluster.world_size == 1 or not situation.fits_on_one_gpu:
        return None
    replica = situation.smallest_replica.memory.reserved_bytes
    return (
        f"a whole replica fits on one GPU ({format_bytes(replica)} at the least, of"
        f" {format_bytes(situation.job.usable_bytes)}), so DDP needs one exchange of gradients per"
        " step; ZeRO may or may not be faster"
    )


def model_exceeds_one_gpu_on_fast_links(situation: Situation) -> str | None:
    """The model does not fit onto one GPU, and NVLink or NVSwitch joins the GPUs (case 2).

    Why: the replica must be divided; with very fast links pipeline, ZeRO and tensor parallelism
    perform alike, and ZeRO asks for no change to the model.

    Instead: the lowest ZeRO stage that fits, as each rung up moves more bytes per step.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 2.
    """
    if not _exceeds(situation) or not situation.job.cluster.slowest_link.is_fast:
        return None
    return (
        f"{_shortfall(situation)}; {_link(situation)} is fast: ZeRO, tensor and pipeline are alike"
    )


def model_exceeds_one_gpu_on_slow_links(situation: Situation) -> str | None:
    """The model does not fit onto one GPU, and only PCIe or a network joins the GPUs (case 2).

    Why: ZeRO and tensor parallelism cross the link in every layer; a pipeline crosses it once per
    stage, so without NVLink it is the faster way to divide the model.

    Instead: ZeRO with few, large micro-batches, so that each gather serves more tokens.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, case 2.
    """
    if not _exceeds(situation) or situation.job.cluster.slowest_link.is_fast:
        return None
    return (
        f"{_shortfall(situation)}; {_link(situation)} is slow: a pipeline would be faster than ZeRO,"
        " but this version does not estimate pipelines yet"
    )


SHOWN_FRACTION = 0.05
"""How much faster the search's choice must be for the answer to show both."""


def search_disagrees_with_tree(situation: Situation) -> str | None:
    """The cost model finds another family more than 5 % faster than the one the tree prefers.

    Why: the guide's order is a rule of thumb, and here the arithmetic is in; but a gain within the
    estimate's own error is no reason to leave the simpler strategy.

    Instead: the answer follows the search where the gain exceeds that error, else the tree; a
    short run of both settles it.

    Source: Hugging Face, Efficient Training on Multiple GPUs: "it's best to experiment".
    """
    gain = search_gain(situation)
    if gain <= SHOWN_FRACTION:
        return None
    fastest, candidate = situation.fastest.strategy.family, situation.candidate.strategy.family
    error = _error(situation)
    verdict = (
        f"more than the estimate's own error of {error:.0%}, so {fastest} is followed"
        if follows_search(situation)
        else f"within the estimate's own error of {error:.0%}, so the simpler {candidate} is followed"
    )
    return f"the tree prefers {candidate}; the search finds {fastest} {gain:.0%} faster, {verdict}"


def search_gain(situation: Situation) -> float:
    """Return how much less time the search's choice takes, as a fraction of its own."""
    tree, search = situation.candidate.step_time, situation.fastest.step_time
    return float(tree.step_seconds / search.step_seconds - 1)


def follows_search(situation: Situation) -> bool:
    """Return whether the search's gain is beyond what the estimate can be wrong by."""
    is_roomier = situation.fastest.is_comfortable and not situation.candidate.is_comfortable
    return is_roomier or search_gain(situation) > _error(situation)


def _error(situation: Situation) -> float:
    """Return by what fraction a step may take longer than estimated."""
    framework = situation.job.framework
    return framework.slower_factor * framework.spreads["compute"]


def _exceeds(situation: Situation) -> bool:
    return situation.job.cluster.world_size > 1 and not situation.fits_on_one_gpu


def _shortfall(situation: Situation) -> str:
    needed = situation.smallest_replica.memory.reserved_bytes
    return (
        f"one GPU cannot hold a replica ({format_bytes(needed)} at the least, of"
        f" {format_bytes(situation.job.usable_bytes)})"
    )


def _link(situation: Situation) -> str:
    link = situation.job.cluster.slowest_link
    return f"{link.name} ({format_rate(link.bytes_per_second)})"
