"""How to run a plan: the command that writes its files, and what else is the user's to choose."""

import shlex

from planner.advice.offers import Offer
from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_pace, format_seconds
from planner.report.flags import flag_words, flags
from planner.report.layout_words import offload_words, sizes_text
from planner.report.values import Figure

_LEAST_SAVED = 0.05
"""Of the plan's memory: what another family must save to be named beside it."""
_MOST_SLOWER = 1.10
"""How many times as long its step may be."""


def how_to_run(plan: Plan, command: str, *, is_brief: bool = False) -> tuple[Figure, ...]:
    """Return the command that writes the plan's files; where none can be written, why, and what has some.

    Args:
        plan: what is to run.
        command: the command line that asked; "" where it wrote files already.
        is_brief: whether another command is told by its difference from the one that asked.
    """
    if plan.launch.targets:
        run = Figure(label="Run it", amount=f"{command} --out DIR", rest="")
        return (run,) if command else ()
    none = Figure(label="Files", amount="none:", rest=plan.launch.reason)
    if not command or plan.rollout is not None:
        return (none,)
    nearest = [each for each in plan.offers if not each.reason]
    instead = tuple(_instead(plan, each, command, is_brief=is_brief) for each in nearest)
    nothing = Figure(
        label="Instead", amount="", rest="nothing: no recipe or layout that was tried has files"
    )
    return (none, *(instead or (nothing,)))


def _instead(plan: Plan, offer: Offer, command: str, *, is_brief: bool) -> Figure:
    amount = f"{command_with(command, offer)} --out DIR"
    # Of a flag that is said twice the last one counts.
    if is_brief and not offer.dropped:
        amount = f"the same with {shlex.join(_words(offer))} --out DIR"
    return Figure(label="Instead", amount=amount, rest=f"({offer_words(plan, offer)})")


def offer_words(plan: Plan, offer: Offer) -> str:
    """Say what there is beside a plan, or in its place: how fast, which layout, what is other than asked."""
    s, seconds = offer.candidate.strategy, float(offer.candidate.step_time.step_seconds)
    offloaded = f" with {offload_words(s)}" if s.offloads_optimizer else ""
    is_alone = plan.job.cluster.world_size == 1
    layout = f"one GPU{offloaded}" if is_alone else f"{s.family}, {sizes_text(s)}"
    pace = format_pace(seconds, plan.chosen.step_time.step_seconds)
    tight = "" if offer.candidate.is_comfortable else "; memory is tight"
    taken = f"{layout}, {format_bytes(offer.candidate.memory.reserved_bytes)}"
    files = "" if offer.reason else "the nearest with launch files: "
    reason = f"; {offer.reason}" if offer.reason else ""
    return f"{files}{taken}, {format_seconds(seconds)} per step, {pace}{tight}{reason}"


def other_choices(plan: Plan) -> list[tuple[str, str, str]]:
    """Return what else can be had: its name, what is gained, the flag."""
    return [_choice(plan, each) for each in plan.offers if each.reason] + _smaller_family(plan)


def _choice(plan: Plan, offer: Offer) -> tuple[str, str, str]:
    chosen, other = plan.chosen, offer.candidate
    family = other.strategy.family
    name = ", ".join(str(value) for value in offer.changes.values())
    if family != chosen.strategy.family and plan.job.cluster.world_size > 1:
        name = f"{name}, {family}"
    pace = format_pace(other.step_time.step_seconds, chosen.step_time.step_seconds)
    tight = "" if other.is_comfortable else ", memory is tight"
    return name, f"{pace}{tight}, {offer.reason}", shlex.join(_words(offer))


def _smaller_family(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the family that needs the least memory of those that are nearly as fast, if it saves some."""
    chosen = plan.chosen
    most = (1 - _LEAST_SAVED) * float(chosen.memory.reserved_bytes)
    longest = _MOST_SLOWER * float(chosen.step_time.step_seconds)
    found = [
        each
        for each in plan.alternatives
        if float(each.candidate.memory.reserved_bytes) <= most and not each.unwritten
        if float(each.candidate.step_time.step_seconds) <= longest and each.candidate.is_comfortable
        if plan.launch.targets
        and not each.candidate.strategy.is_local
        and not each.candidate.strategy.offloads_optimizer
    ]
    smallest = min(found, key=lambda each: each.candidate.memory.reserved_bytes, default=None)
    if smallest is None:
        return []
    family = smallest.candidate.strategy.family
    return [(family, smallest.reason, shlex.join(flag_words("strategy.zero_stage", value=family)))]


def command_with(command: str, offer: Offer) -> str:
    """Return the command line with what has to change, and without what may not be held fixed."""
    words, kept = shlex.split(command), []
    changed = {_flag(name) for name in offer.changes}
    if offer.dropped:
        changed |= {"--pin", *(_flag(name) for name in flags() if name.startswith(offer.dropped))}
    while words:
        word = words.pop(0)
        name, is_joined, _ = word.partition("=")
        if name not in changed:
            kept.append(word)
        elif not is_joined and words and not words[0].startswith("--"):
            words.pop(0)
    return shlex.join([*kept, *_words(offer)])


def _words(offer: Offer) -> list[str]:
    new = (flag_words(name, value=value) for name, value in offer.changes.items())
    return [word for words in new for word in words]


def _flag(field: str) -> str:
    return flags()[field].partition(" ")[0]
