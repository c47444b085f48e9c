"""How to run a plan: the command that writes its files, or what can be written in its place."""

import shlex

from planner.advice.launch import Instead, gives_up_weights
from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_pace, format_seconds
from planner.domain.optimizer import ADAMW
from planner.report.flags import flag_words, flags
from planner.report.layout_words import offload_words, sizes_text
from planner.report.values import Figure


def without_files(plan: Plan) -> tuple[Figure, ...]:
    """Return that no files can be written, and why; nothing where some can."""
    launch = plan.launch
    if launch.targets:
        return ()
    return (Figure(label="Files", amount="none:", rest=launch.reason),)


def how_to_run(plan: Plan, command: str, *, is_brief: bool = False) -> tuple[Figure, ...]:
    """Return the command that writes the plan's files, or those of the fastest that has any.

    Args:
        plan: what is to run.
        command: the command line that asked; "" where it wrote files already.
        is_brief: whether another command is told by its difference from the one that asked.
    """
    if not command:
        return ()
    instead = _instead(plan, command, is_brief=is_brief)
    if not plan.launch.targets:
        return instead
    rest = "" if is_brief else "(writes the launch files and a README)"
    return (Figure(label="Run it", amount=f"{command} --out DIR", rest=rest), *instead)


def _instead(plan: Plan, command: str, *, is_brief: bool) -> tuple[Figure, ...]:
    instead = plan.instead
    if instead is None:
        rest = (
            ""
            if plan.launch.targets
            else "no change of recipe or layout that was tried gives files"
        )
        return (Figure(label="Instead", amount="", rest=rest),) if rest else ()
    amount = f"{command_instead(command, instead)} --out DIR"
    # Of a flag that is said twice the last one counts.
    if is_brief and not (instead.drops_pins or instead.unsaid):
        words = shlex.join(_words(instead))
        amount = (
            f"the same with {words}"
            if plan.launch.targets
            else f"this command with {words} --out DIR"
        )
    return (Figure(label="Instead", amount=amount, rest=f"({instead_words(plan, instead)})"),)


def instead_words(plan: Plan, instead: Instead) -> str:
    """Say what there is in place of a plan, or beside it: how fast, which layout, what is other than asked."""
    s, seconds = instead.candidate.strategy, float(instead.candidate.step_time.step_seconds)
    framework = instead.changes.get("recipe.framework", plan.job.framework.name)
    offloaded = f" with {offload_words(s)}" if s.offloads_optimizer else ""
    is_alone = plan.job.cluster.world_size == 1
    layout = f"one GPU{offloaded}" if is_alone else f"{s.family}, {sizes_text(s)}"
    pace = format_pace(seconds, plan.chosen.step_time.step_seconds)
    loss = instead.changes.get("recipe.loss", "")
    changed = f"a {loss} loss" if loss else framework
    is_beside = instead.is_faster or instead.has_room
    named_for = f"{changed} is {pace}" if instead.is_faster else f"{changed} has room"
    best = "smallest" if instead.is_smallest else "fastest"
    lead = named_for if is_beside else f"the {best} with launch files"
    named = "" if is_beside else f", in {framework}"
    tight = "" if instead.candidate.is_comfortable else "; memory is tight"
    other = _otherwise(plan, instead)
    room = (
        f", {format_bytes(instead.candidate.memory.reserved_bytes)}" if instead.is_smallest else ""
    )
    return f"{lead}: {layout}{named}{room}, {format_seconds(seconds)} per step{tight}{other}"


def _otherwise(plan: Plan, instead: Instead) -> str:
    """Say what trains in another way than was asked for."""
    asked, new = plan.job.recipe.optimizer, instead.changes.get("recipe.optimizer", "")
    is_alike = not new or {asked, new} <= set(ADAMW)
    shorter = "recipe.sequence_length" in instead.changes
    optimizer = "" if is_alike else f"; with another optimizer than {asked}"
    weights = "; its files start from random weights" if gives_up_weights(plan.job, instead) else ""
    return optimizer + ("; with shorter sequences" if shorter else "") + weights


def command_instead(command: str, instead: Instead) -> str:
    """Return the command line with what has to change, and without what may not be held fixed."""
    words, kept = shlex.split(command), []
    changed = {_flag(name) for name in (*instead.changes, *instead.unsaid)}
    if instead.drops_pins:
        changed |= {"--pin", *(_flag(name) for name in flags() if name.startswith("strategy"))}
    while words:
        word = words.pop(0)
        name, is_joined, _ = word.partition("=")
        if name not in changed:
            kept.append(word)
        elif not is_joined and words and not words[0].startswith("--"):
            words.pop(0)
    return shlex.join([*kept, *_words(instead)])


def _words(instead: Instead) -> list[str]:
    new = (flag_words(name, value=value) for name, value in instead.changes.items())
    return [word for words in new for word in words]


def _flag(field: str) -> str:
    return flags()[field].partition(" ")[0]
