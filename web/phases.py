"""A step of GRPO, whose phases follow each other: its tiles, and a bar of what each takes."""

from string import ascii_uppercase
from typing import Any

from markupsafe import Markup

from planner.advice.plan import Plan
from planner.advice.rollout_setup import RolloutPlan, RolloutSetup
from planner.core.units import format_bytes, format_seconds
from planner.report.rollout import PHASES, phases_table, rollout_tiles
from web.chart import COLOURS, TermRow, Total, meter, stacked_bar


def of_rollout(plan: Plan) -> dict[str, Any]:
    """Return the tiles and the phases of GRPO in place of those of its training; nothing of other jobs."""
    found = plan.rollout
    if found is None:
        return {"phases": None}
    parts, step = _rows(found), found.chosen.step
    total = Total(
        amount=step.step_seconds,
        low=step.low_seconds,
        high=step.high_seconds,
        full=step.step_seconds,
    )
    pictures = (_memory_meter(found.chosen), stacked_bar(parts, total, is_slim=True), Markup())
    table = phases_table(found)
    return {
        "tiles": tuple(zip(rollout_tiles(found), pictures, strict=True)),
        "phases": {
            "table": table,
            "bar": stacked_bar(parts, total),
            "rows": parts,
            "total": format_seconds(step.step_seconds),
            "asleep": format_bytes(found.chosen.asleep_bytes) if found.chosen.asleep_bytes else "",
        },
    }


def _rows(found: RolloutPlan) -> tuple[TermRow, ...]:
    seconds = {name: found.chosen.step.seconds_of(name) for name in found.chosen.step.phases}
    taken = {name: each for name, each in seconds.items() if each}
    return tuple(
        TermRow(
            letter=letter,
            css=f"part-{COLOURS[name]}",
            name=PHASES[name],
            amount=each,
            shown=format_seconds(each),
            how="",
            source="",
        )
        for letter, (name, each) in zip(ascii_uppercase, taken.items(), strict=False)
    )


def _memory_meter(setup: RolloutSetup) -> Markup:
    """Return the phase that holds the most of a GPU; what training holds has a range."""
    memory, generating = setup.candidate.memory, setup.generating_bytes
    held = max(setup.training_bytes, generating)
    low, high = (
        max(setup.asleep_bytes + float(each), generating)
        for each in (memory.low_bytes, memory.high_bytes)
    )
    full = max(setup.job.cluster.gpu.memory_bytes, high)
    total = Total(amount=held, low=low, high=high, full=full, limit=setup.job.usable_bytes)
    return meter(total, format_bytes(held))
