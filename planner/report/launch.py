"""How to run a plan: the command that writes its files, and what else is the user's to choose."""

import shlex

from planner.advice.offers import Offer
from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_pace, format_seconds
from planner.report.flags import flag_words, flags
from planner.report.layout_words import offload_words, sizes_text
from planner.report.values import Figure


def without_files(plan: Plan) -> tuple[Figure, ...]:
    """Return that no files can be written, and why; nothing where some can."""
    launch = plan.launch
    if launch.targets:
        return ()
    return (Figure(label="Files", amount="none:", rest=launch.reason),)


def how_to_run(
    plan: Plan, command: str, *, is_brief: bool = False, most_offers: int | None = None
) -> tuple[Figure, ...]:
    """Return the command that writes the plan's files, and what else can be had for a flag.

    Args:
        plan: what is to run.
        command: the command line that asked; "" where it wrote files already.
        is_brief: whether another command is told by its difference from the one that asked.
        most_offers: of all that there are; None shows each.
    """
    if not command:
        return ()
    shown = plan.offers[:most_offers]
    offered = tuple(_offered(plan, each, command, is_brief=is_brief) for each in shown)
    if plan.launch.targets:
        rest = "" if is_brief else "(writes the launch files and a README)"
        return (Figure(label="Run it", amount=f"{command} --out DIR", rest=rest), *offered)
    nothing = Figure(
        label="Instead", amount="", rest="no change of recipe or layout that was tried gives files"
    )
    return offered or (nothing,)


def _offered(plan: Plan, offer: Offer, command: str, *, is_brief: bool) -> Figure:
    amount = f"{command_with(command, offer)} --out DIR"
    # Of a flag that is said twice the last one counts.
    if is_brief and not offer.dropped:
        words = shlex.join(_words(offer))
        files = "" if plan.launch.targets else " --out DIR"
        amount = f"the same with {words}{files}"
    label = "Or" if offer.reason else "Instead"
    return Figure(label=label, amount=amount, rest=f"({offer_words(plan, offer)})")


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
