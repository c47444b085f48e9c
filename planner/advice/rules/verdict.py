"""Tree against search: which of the two is followed, and what techniques must earn."""

import math

from planner.advice.rules.base import ONE_PER_SEQUENCE, Situation
from planner.advice.rules.batch import WORTH_THE_GPUS
from planner.catalog.choice import Lead, lead, prices, trusted_lead
from planner.core.units import format_bytes, format_fraction, format_pace, format_percent
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.search.candidate import Candidate
from planner.search.effort import effort_factor, technique_price
from planner.search.search import TIE
from planner.targets import launch

SHOWN_FRACTION = 0.05
"""How much faster another layout must be for the answer to show both."""


def search_disagrees_with_tree(situation: Situation) -> str | None:
    """The cost model finds another family more than 5 % faster than the one the tree prefers.

    Why: the guide's order is a rule of thumb, and here the arithmetic is in; but a small lead on
    paper is often none on the machine. Two layouts of one job share their kernels, so what counts
    is the error of their difference, which pairs of published runs show.

    Instead: the answer follows the search where four of five such leads were real, after what more
    techniques must earn; else the tree. A short run of both settles it.

    Source: Hugging Face, Efficient Training on Multiple GPUs: "it's best to experiment";
    `data/calibration/leads.toml`.
    """
    gain = search_gain(situation)
    if gain <= SHOWN_FRACTION:
        return None
    fastest, candidate = situation.fastest.strategy.family, situation.candidate.strategy.family
    start = f"the tree prefers {candidate}; {fastest} is {format_fraction(gain)} faster on paper"
    if follows_search(situation):
        return f"{start}, {_evidence(situation)}, so {fastest} is followed"
    if situation.lead <= SHOWN_FRACTION:
        return f"{start}, which its techniques must earn, so the simpler {candidate} is followed"
    return f"{start}, but {_evidence(situation)}, so the simpler {candidate} is followed"


def effort_is_earned(situation: Situation) -> str | None:
    """The layout takes changes to the model's code, and is faster by what they must earn.

    Why: dividing a model's own code takes days, and every change to the model after them; data
    parallelism and ZeRO wrap any model as it is.

    Instead: the fastest layout without changes, where time matters less; or a framework whose own
    models are divided already (Megatron-LM, nanotron, torchtitan).

    Source: Hugging Face, Efficient Training on Multiple GPUs: ZeRO "requires close to no
    modifications"; the price of each technique in `data/calibration/choice.toml` is judgement.
    """
    job, s = situation.job, situation.candidate.strategy
    changing = job.framework.capabilities.changes_model
    used = [each for each in DIMENSIONS if s.uses(each) and each.name in changing]
    if not used:
        return None
    names = ", ".join(each.name for each in used)
    if all(each.field in situation.asked for each in used):
        return (
            f"{names} parallelism changes the model's code in {job.framework.name}: it is asked for"
        )
    changes = f"{names} parallelism changes the model's code in {job.framework.name}"
    if situation.is_for_memory:
        return f"{changes}: it takes the least memory, whatever the time"
    is_spare = situation.has_spare_context
    factors = (1 + technique_price(job, each, has_spare_context=is_spare) for each in used)
    price = format_fraction(math.prod(factors) - 1)
    other = situation.unchanged
    if other is None:
        return f"{changes}: it is proposed only where it is {price} faster, or nothing else fits"
    pace = format_pace(other.step_time.step_seconds, situation.candidate.step_time.step_seconds)
    beside = f"is {pace}" if other.is_comfortable else f"({pace}) leaves the card no room"
    return f"{changes}, so it must be {price} faster: {other.strategy.family} {beside}"


def a_faster_layout_is_held_back(situation: Situation) -> str | None:
    """A faster layout fits, and is not proposed.

    Why: it trains another way, needs the host's memory, leaves the card no room, is ruled out by
    the tree, or leads by less than its techniques must earn and estimates can tell.

    Instead: ask for it by the flags of its row; a short run of both settles it.

    Source: the search; `data/calibration/choice.toml`.
    """
    other = situation.held_back
    if other is None:
        return None
    chosen = situation.candidate
    gain = float(chosen.step_time.step_seconds / other.step_time.step_seconds) - 1
    saved = float(chosen.memory.reserved_bytes - other.memory.reserved_bytes)
    # Estimates of the host's optimizer are the roughest.
    if gain <= (SHOWN_FRACTION if other.strategy.offloads_optimizer else TIE - 1):
        return None
    room = f" and takes {format_bytes(saved)} less" if saved > 0 else ""
    name = named_beside(other, chosen)
    return f"{name} is {format_fraction(gain)} faster on paper{room}; {_obstacle(situation)}"


def named_beside(other: Candidate, chosen: Candidate) -> str:
    """Return a layout's family, with the micro-batch and recompute in which it differs from the choice."""
    s, beside = other.strategy, chosen.strategy
    differs = {
        f"micro-batch {s.micro_batch_size}": s.micro_batch_size != beside.micro_batch_size,
        f"recompute {s.recompute}": s.recompute != beside.recompute,
    }
    settings = " and ".join(name for name, is_other in differs.items() if is_other)
    return f"{s.family} with {settings}" if settings else s.family


def _factor(situation: Situation, s: Layout) -> float:
    return float(effort_factor(situation.job, s, has_spare_context=situation.has_spare_context))


def search_gain(situation: Situation) -> float:
    """Return how much less time the search's choice takes, as a fraction of its own."""
    tree, search = situation.candidate.step_time, situation.fastest.step_time
    return float(tree.step_seconds / search.step_seconds - 1)


def follows_search(situation: Situation) -> bool:
    """Return whether such a lead of the search's choice was real often enough, or it alone has room."""
    is_roomier = situation.fastest.is_comfortable and not situation.candidate.is_comfortable
    return is_roomier or situation.lead >= trusted_lead(situation.job.framework.name)


def _evidence(situation: Situation) -> str:
    band = lead(situation.job.framework.name, situation.lead)
    earned = (
        ""
        if math.isclose(situation.lead, search_gain(situation), rel_tol=0.02)
        else f"{format_fraction(situation.lead)} after what its techniques must earn; "
    )
    return earned + _was_real(band)


def _was_real(band: Lead) -> str:
    share = format_fraction(band.real_share)
    return f"such a lead was real in {share} of {band.pairs:,} published pairs"


def _obstacle(situation: Situation) -> str:
    other, chosen = situation.held_back, situation.candidate
    if other is None:
        raise AssertionError("there is a layout to speak of")
    return lack(situation.job, other, chosen) or _doubt(situation, other)


def lack(job: Job, other: Candidate, chosen: Candidate) -> str:
    """Return what a faster layout lacks beside the choice; "" where nothing but evidence."""
    s, launched = other.strategy, launch(job, other.strategy)
    reasons = {
        f"it has no launch files: {launched.reason}": (
            not launched.targets and bool(launch(job, chosen.strategy).targets)
        ),
        f"it averages weights every {s.synchronize_every} steps, which trains another way"
        f" (--synchronize-every {s.synchronize_every})": s.is_local,
        f"it needs the host's memory and CPUs, a last resort here (--offload {s.offload})": (
            s.offloads_optimizer and not chosen.strategy.offloads_optimizer
        ),
        "it leaves the card no room": chosen.is_comfortable and not other.is_comfortable,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _unearned(situation: Situation, other: Candidate, gain: float, *, are_many: bool) -> str:
    name, chosen = situation.job.framework.name, situation.candidate.strategy
    factor = _factor(situation, other.strategy) / _factor(situation, chosen)
    left = (1 + gain) / factor - 1
    price = f"must earn {format_fraction(factor - 1)} for {'their' if are_many else 'its'} work"
    if left <= 0:
        return f"{price}, which is more"
    if left >= trusted_lead(name):
        verb = "do" if are_many else "does"
        return f"{price}, and {verb}; {_tree(situation, other)}: {_settled_by(other)}"
    band = lead(name, left)
    return (
        f"{price}; a lead of {format_percent(left)}, which is left, was real in"
        f" {format_fraction(band.real_share)} of {band.pairs:,} published pairs, where"
        f" {format_fraction(prices().trusted_share)} are asked for"
    )


def _tree(situation: Situation, other: Candidate) -> str:
    link = situation.job.cluster.slowest_link
    is_slow = not (situation.is_multi_node or link.is_fast)
    if is_slow and other.strategy.tensor_parallel_size > 1:
        return f"the tree divides no tensors over {link.name}"
    return "the tree prefers the simpler one"


def _doubt(situation: Situation, other: Candidate) -> str:
    job, chosen = situation.job, situation.candidate
    gain = float(chosen.step_time.step_seconds / other.step_time.step_seconds) - 1
    real = _was_real(lead(job.framework.name, gain))
    uses = (each for each in DIMENSIONS if other.strategy.uses(each))
    more = [each.name for each in uses if not chosen.strategy.uses(each)]
    is_trusted = gain >= trusted_lead(job.framework.name)
    if more and is_trusted and situation.fits_on_one_gpu:
        return f"{real}, but a replica fits on one GPU, so the model is not divided"
    if more:
        unearned = _unearned(situation, other, gain, are_many=len(more) > 1)
        return f"{' and '.join(more)} parallelism {unearned}"
    if is_trusted:
        return f"the tree prefers the simpler one; {_settled_by(other)}"
    return real


def _settled_by(other: Candidate) -> str:
    return f"a short run of both settles it (--strategy {other.strategy.family})"


def fewer_gpus(situation: Situation) -> str | None:
    """Return on which of the GPUs a step is as fast as on more of them; None where all of them are faster.

    The fewest of those that estimates do not tell from the fastest. A GPU for each sequence is also enough
    where more of them would only divide a model that each can hold, for less than that is worth.
    """
    here = float(situation.candidate.step_time.step_seconds)
    fewer = {
        name: float(each.step_time.step_seconds)
        for name, each in situation.on_fewer_gpus.items()
        if each.is_comfortable
    }
    longest = TIE * min([here, *fewer.values()])
    alike = [name for name, seconds in fewer.items() if seconds <= longest]
    if alike:
        return alike[0]
    shared = fewer.get(ONE_PER_SEQUENCE, math.inf)
    is_enough = situation.fits_on_one_gpu and shared <= WORTH_THE_GPUS * here
    return ONE_PER_SEQUENCE if is_enough else None
