"""The choice against the tree, and against what is faster: what was followed, and what techniques must earn."""

import math

from planner.advice.rules.base import ONE_PER_SEQUENCE, Situation
from planner.advice.rules.batch import WORTH_THE_GPUS
from planner.advice.rules.sentences import said
from planner.catalog.choice import Lead, lead, prices
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.strategy import Layout
from planner.parallel.activations import gathers_parameters
from planner.search.candidate import Candidate
from planner.search.effort import effort_factor, technique_price
from planner.search.search import TIE
from planner.targets import launch

SHOWN_FRACTION = 0.05
"""How much faster another layout must be for the answer to show both."""


def search_disagrees_with_tree(situation: Situation) -> str | None:
    """The choice is of another family than the one that the tree prefers, and more than 5 % faster.

    Why: the guide's order is a rule of thumb, and here the arithmetic is in. Two layouts of one job share
    their kernels, so what counts is the error of their difference, which pairs of published runs show.

    Instead: the tree's own, by the flag --strategy; `planner race` runs both.

    Source: Hugging Face, Efficient Training on Multiple GPUs: "it's best to experiment";
    `data/calibration/leads.toml`.
    """
    gain = _gain(situation.admitted, situation.candidate)
    if gain <= SHOWN_FRACTION or situation.is_for_memory:
        return None
    chosen, admitted = situation.candidate.strategy.family, situation.admitted.strategy.family
    band = lead(situation.job.framework.name, gain)
    real = _was_real(band)
    return said("ONE005.overruled", usual=admitted, chosen=chosen, gain=gain, real=real)


def effort_is_earned(situation: Situation) -> str | None:
    """The layout takes changes to the model's code, which it must be faster by.

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
    names = " and ".join(each.name for each in used)
    changes = said("EFF001.changes", names=names, framework=job.framework.name)
    if all(each.field in situation.asked for each in used):
        return changes + said("EFF001.asked")
    if situation.is_for_memory:
        return changes + said("EFF001.for_memory")
    price = math.prod(1 + technique_price(job, each) for each in used) - 1
    return changes + said("EFF001.must_earn", price=price)


def a_faster_layout_is_held_back(situation: Situation) -> str | None:
    """A faster layout fits, but a slower one is proposed.

    Why: the faster one has no launch files, trains with other numbers, needs host memory, leaves too
    little memory free, or is faster by less than estimates can tell or its work is worth.

    Instead: ask for it with the flag that the message names; `planner race` runs both.

    Source: the search; `data/calibration/choice.toml`.
    """
    other = situation.held_back
    if other is None:
        return None
    chosen = situation.candidate
    gain = _gain(chosen, other)
    saved = float(chosen.memory.reserved_bytes - other.memory.reserved_bytes)
    # Estimates of the host's optimizer are the roughest.
    if gain <= (SHOWN_FRACTION if other.strategy.offloads_optimizer else TIE - 1):
        return None
    faster = said("EFF002.faster", name=named_beside(other, chosen), gain=gain)
    smaller = said("EFF002.smaller", saved=saved) if saved > 0 else ""
    return faster + smaller + said("EFF002.but", obstacle=obstacle(situation.job, other, chosen))


def named_beside(other: Candidate, chosen: Candidate) -> str:
    """Return a layout's family, with the micro-batch and recompute in which it differs from the choice."""
    s, beside = other.strategy, chosen.strategy
    differs = {
        f"micro-batch {s.micro_batch_size}": s.micro_batch_size != beside.micro_batch_size,
        f"recompute {s.recompute}": s.recompute != beside.recompute,
    }
    settings = " and ".join(name for name, is_other in differs.items() if is_other)
    return f"{s.family} with {settings}" if settings else s.family


def _gain(slower: Candidate, faster: Candidate) -> float:
    """Return how much less time a layout takes, as a fraction of its own."""
    return float(slower.step_time.step_seconds / faster.step_time.step_seconds - 1)


def _was_real(band: Lead) -> str:
    return said("ONE005.real", share=band.real_share, pairs=band.pairs)


def obstacle(job: Job, other: Candidate, chosen: Candidate) -> str:
    """Return why a faster layout is not taken: what it lacks beside the choice, else that its lead is not earned."""
    return lack(job, other, chosen) or _unearned(job, other, chosen)


def lack(job: Job, other: Candidate, chosen: Candidate) -> str:
    """Return what a faster layout lacks beside the choice; "" where nothing but evidence."""
    s, launched = other.strategy, launch(job, other.strategy)
    written = launch(job, chosen.strategy).targets
    why = next((launched.unwritten.get(name, "") for name in written), "") or launched.reason
    reasons = {
        said("EFF002.no_files", why=why): not launched.targets and bool(written),
        said("EFF002.local", every=s.synchronize_every): s.is_local,
        said("EFF002.host", offload=str(s.offload)): (
            s.offloads_optimizer and not chosen.strategy.offloads_optimizer
        ),
        said("EFF002.no_room"): chosen.is_comfortable and not other.is_comfortable,
        said("EFF002.numerics", family=s.family): has_other_numbers(job, s, chosen.strategy),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def has_other_numbers(job: Job, s: Layout, chosen: Layout) -> bool:
    """Return whether a layout computes in 16 bit what the choice leaves to autocast."""
    precision = job.precision
    is_autocast = precision.replicated_numerics == Numerics.AUTOCAST != precision.sharded_numerics
    gathers = bool(gathers_parameters(job, s)) and not gathers_parameters(job, chosen)
    return is_autocast and gathers


def _unearned(job: Job, other: Candidate, chosen: Candidate) -> str:
    """Say what a faster layout must earn, and how often such a lead was real."""
    price = float(effort_factor(job, other.strategy) / effort_factor(job, chosen.strategy)) - 1
    family = other.strategy.family
    if price > 0:
        new = [
            each
            for each in DIMENSIONS
            if other.strategy.uses(each) and not chosen.strategy.uses(each)
        ]
        if any(technique_price(job, each) for each in new):
            return said("EFF002.must_earn", price=price, family=family)
        ranks = other.strategy.data_parallel_shard_size
        return said("EFF002.wide", ranks=ranks, price=price, family=family)
    real = _was_real(lead(job.framework.name, _gain(chosen, other)))
    return said("EFF002.too_close", real=real, family=family)


def fewer_gpus(situation: Situation) -> str | None:
    """Return on which of the GPUs a step is as fast as on more of them; None where all of them are faster.

    The fewest of those that estimates do not tell from the fastest. A GPU for each sequence is also enough
    where more of them would only divide a model that each can hold, for less than that is worth.
    """
    here = priced_seconds(situation.candidate)
    fewer = {name: priced_seconds(each) for name, each in situation.on_fewer_gpus.items()}
    longest = TIE * min([here, *fewer.values()])
    alike = [name for name, seconds in fewer.items() if seconds <= longest]
    if alike:
        return alike[0]
    shared = fewer.get(ONE_PER_SEQUENCE, math.inf)
    is_enough = situation.fits_on_one_gpu and shared <= WORTH_THE_GPUS * here
    return ONE_PER_SEQUENCE if is_enough else None


def priced_seconds(each: Candidate) -> float:
    """Return the seconds of a step with the prices of states in host memory, and of a card without room."""
    offload = prices().offload if each.strategy.offloads_optimizer else 0.0
    tight = 0.0 if each.is_comfortable else prices().tight_lead
    return (1 + offload) * (1 + tight) * float(each.step_time.step_seconds)
