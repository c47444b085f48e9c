"""Tree against search: which of the two is followed, and what changes to a model must earn."""

from planner.advice.rules.base import Situation
from planner.domain.dimensions import DIMENSIONS
from planner.search.code_changes import GAIN_PER_CHANGE, code_change_factor, num_code_changes

SHOWN_FRACTION = 0.05
"""How much faster the search's choice must be for the answer to show both."""


def search_disagrees_with_tree(situation: Situation) -> str | None:
    """The cost model finds another family more than 5 % faster than the one the tree prefers.

    Why: the guide's order is a rule of thumb, and here the arithmetic is in; but a gain within the
    estimate's own error is no reason to leave the simpler strategy.

    Instead: the answer follows the search where the gain, less what changes to the model must
    earn, exceeds that error; else the tree. A short run of both settles it.

    Source: Hugging Face, Efficient Training on Multiple GPUs: "it's best to experiment".
    """
    gain = search_gain(situation)
    if gain <= SHOWN_FRACTION:
        return None
    fastest, candidate = situation.fastest.strategy.family, situation.candidate.strategy.family
    error = _error(situation)
    if follows_search(situation):
        return (
            f"the tree prefers {candidate}; the search finds {fastest} {gain:.0%} faster, more than"
            f" the estimate's own error of {error:.0%}, so {fastest} is followed"
        )
    return (
        f"the tree prefers {candidate}; the search finds {fastest} {gain:.0%} faster, within the"
        f" estimate's own error of {error:.0%}{_code_changes_note(situation)}, so the simpler {candidate} is"
        " followed"
    )


def effort_is_earned(situation: Situation) -> str | None:
    """The layout takes changes to the model's code, and is faster by what they must earn.

    Why: dividing a model's own code takes days, and every change to the model after them; data
    parallelism and ZeRO wrap any model as it is.

    Instead: the fastest layout without changes, where time matters less; or a framework whose own
    models are divided already (Megatron-LM, nanotron, torchtitan).

    Source: Hugging Face, Efficient Training on Multiple GPUs: ZeRO "requires close to no
    modifications"; each technique must be 10 % faster here, which is judgement.
    """
    changes = int(num_code_changes(situation.job, situation.candidate.strategy))
    if not changes:
        return None
    s = situation.candidate.strategy
    names = ", ".join(dimension.name for dimension in DIMENSIONS if s.uses(dimension))
    return (
        f"{names} parallelism changes the model's code in {situation.job.framework.name}: it is"
        f" proposed only where it is {code_change_factor(changes) - 1:.0%} faster ({GAIN_PER_CHANGE:.0%} for"
        " each), or nothing else fits"
    )


def search_gain(situation: Situation) -> float:
    """Return how much less time the search's choice takes, as a fraction of its own."""
    tree, search = situation.candidate.step_time, situation.fastest.step_time
    return float(tree.step_seconds / search.step_seconds - 1)


def follows_search(situation: Situation) -> bool:
    """Return whether the search's gain is beyond the estimate's error and what changes earn."""
    is_roomier = situation.fastest.is_comfortable and not situation.candidate.is_comfortable
    job, fastest = situation.job, situation.fastest.strategy
    more_changes = num_code_changes(job, fastest) - num_code_changes(
        job, situation.candidate.strategy
    )
    net_gain = (1 + search_gain(situation)) / float(
        code_change_factor(max(0, int(more_changes)))
    ) - 1
    return is_roomier or net_gain > _error(situation)


def _code_changes_note(situation: Situation) -> str:
    job, fastest = situation.job, situation.fastest.strategy
    more_changes = int(
        num_code_changes(job, fastest) - num_code_changes(job, situation.candidate.strategy)
    )
    return (
        f" and the {code_change_factor(more_changes) - 1:.0%} that its changes must earn"
        if more_changes > 0
        else ""
    )


def _error(situation: Situation) -> float:
    """Return by what fraction a step may take longer than estimated."""
    framework = situation.job.framework
    return framework.uncertainty.slower_factor * framework.uncertainty.compute
