"""How to run a plan: the command that writes its files, or what can be written in its place."""

import shlex

from planner.advice.launch import Instead
from planner.advice.plan import Plan
from planner.core.units import format_seconds
from planner.report.text import FLAGS, flag_words, sizes_text
from planner.report.values import Figure


def without_files(plan: Plan) -> tuple[Figure, ...]:
    """Return that no files can be written, and why; nothing where some can."""
    launch = plan.launch
    if launch.targets:
        return ()
    return (Figure(label="Files", amount="none:", rest=launch.reason),)


def how_to_run(plan: Plan, command: str) -> tuple[Figure, ...]:
    """Return the command that writes the plan's files, or those of the fastest that has any.

    Args:
        plan: what is to run.
        command: the command line that asked; "" where it wrote files already.
    """
    if not command:
        return ()
    if plan.launch.targets:
        rest = "(writes the launch files and a README)"
        return (Figure(label="Run it", amount=f"{command} --out DIR", rest=rest),)
    instead = plan.instead
    if instead is None:
        return ()
    s, step_time = instead.candidate.strategy, instead.candidate.step_time
    framework = instead.changes.get("recipe.framework", plan.job.framework.name)
    return (
        Figure(
            label="Instead",
            amount=f"{command_instead(command, instead)} --out DIR",
            rest=f"(the fastest with launch files: {s.family}, {sizes_text(s)}, in {framework},"
            f" {format_seconds(step_time.step_seconds)} per step)",
        ),
    )


def command_instead(command: str, instead: Instead) -> str:
    """Return the command line with what has to change, and without what may not be held fixed."""
    words, kept = shlex.split(command), []
    changed = {_flag(name) for name in instead.changes}
    if instead.drops_pins:
        changed |= {"--pin", *(_flag(name) for name in FLAGS if name.startswith("strategy"))}
    while words:
        word = words.pop(0)
        name, is_joined, _ = word.partition("=")
        if name not in changed:
            kept.append(word)
        elif not is_joined and words and not words[0].startswith("--"):
            words.pop(0)
    new = (flag_words(name, value=value) for name, value in instead.changes.items())
    return shlex.join([*kept, *(word for words in new for word in words)])


def _flag(field: str) -> str:
    return FLAGS[field].partition(" ")[0]
