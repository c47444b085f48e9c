"""How plans stand after a race -> the winner, a table for a terminal, JSON."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal, TypedDict

from planner.answers.envelope import SCHEMA_VERSION
from planner.core.errors import InvalidInputError
from planner.core.units import format_bytes, format_pace, format_percent, format_seconds
from planner.race.entrants import Entrant
from planner.race.rounds import BEHIND, FAILED, KNOWN, OPEN, Standing
from planner.report.values import Heading, ReportRow, ReportTable, Terminal, table_text

_HEADINGS = (
    Heading(name="plan", is_key=True),
    Heading(name="planned step", is_number=True),
    Heading(name="measured", is_number=True),
    Heading(name="memory planned", is_number=True),
    Heading(name="measured", is_number=True),
    Heading(name="result"),
)


def race_answer(
    standings: Sequence[Standing], *, is_stopped: bool, is_comparable: bool
) -> dict[str, Any]:
    """Return a race as an object, amounts in base units.

    Args:
        standings: the plans.
        is_stopped: whether it was ended before its time.
        is_comparable: whether it was on what the plans are for.
    """
    plans = [_plan(each) for each in standings]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "race",
        "winner": winner_of(plans),
        "is_stopped": is_stopped,
        "is_on_planned_gpus": is_comparable,
        "plans": plans,
    }


def winner_of(plans: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the name of the plan with the shortest median step of those that did not fail; None where there is none."""
    ran = [each for each in plans if each["state"] in {KNOWN, BEHIND, OPEN} and each["step"]]
    return str(min(ran, key=lambda each: each["step"]["seconds"])["name"]) if ran else None


def _plan(standing: Standing) -> dict[str, Any]:
    planned, step = standing.entrant.planned, standing.step
    logs = [each.log for each in standing.readings if each.log]
    return {
        "name": standing.entrant.name,
        "target": standing.entrant.target,
        "state": standing.state,
        "why": standing.why,
        "steps": len(standing.seconds),
        "starts": len(standing.starts),
        "step": {
            "seconds": step.median,
            "low": step.low,
            "high": step.high if step.low else None,  # few steps say nothing of it
        }
        if step
        else None,
        "peak_bytes": max((log.peak_bytes or 0.0 for log in logs), default=0.0) or None,
        "reserved_bytes": max((log.reserved_bytes or 0.0 for log in logs), default=0.0) or None,
        "planned_step_seconds": planned.step_seconds.likely,
        "planned_peak_bytes": planned.peak_bytes.likely,
        "planned_reserved_bytes": planned.reserved_bytes.likely,
    }


def race_text(answer: Mapping[str, Any], terminal: Terminal) -> str:
    """Return a race for a terminal."""
    return table_text(race_table(answer), terminal)


def race_table(answer: Mapping[str, Any]) -> ReportTable:
    """Return who won by how much, and a row for each plan, the fastest first."""
    plans = sorted(answer["plans"], key=_order)
    return ReportTable(
        title=_sentence(answer, plans),
        headings=_HEADINGS,
        rows=tuple(
            ReportRow(cells=_cells(each, plans), is_chosen=each["name"] == answer["winner"])
            for each in plans
        ),
        has_choice=answer["winner"] is not None,
    )


class RaceTableAnswer(TypedDict):
    """Who won a race by how much, and a row for each plan, the fastest first."""

    schema_version: str
    kind: Literal["race"]
    winner: str | None
    said: str
    headings: list[str]
    rows: list[list[str]]


def answer_race(posted: Mapping[str, Any]) -> RaceTableAnswer:
    """Return the table of what `planner race --json` printed; see `posted_table`."""
    table = posted_table(posted)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "race",
        "winner": winner_of(posted["plans"]),
        "said": table.title,
        "headings": [each.name for each in table.headings],
        "rows": [list(row.cells) for row in table.rows],
    }


def posted_table(posted: Mapping[str, Any]) -> ReportTable:
    """Return the table of what `planner race --json` printed; who won is worked out again.

    Raises:
        InvalidInputError: two plans have one name.
    """
    plans = posted["plans"]
    if len({each["name"] for each in plans}) < len(plans):
        raise InvalidInputError("two plans of one name", hint="a name for each", field="plans")
    return race_table({**posted, "winner": winner_of(plans)})


def _order(plan: Mapping[str, Any]) -> tuple[bool, float]:
    return plan["step"] is None, plan["step"]["seconds"] if plan["step"] else 0.0


def _sentence(answer: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> str:
    """Say who won, and whether that is certain."""
    early = "Stopped early: " if answer["is_stopped"] else ""
    if answer["winner"] is None:
        why = _why_all(plans)
        return f"{early}{'no' if early else 'No'} plan took a step{f', for one reason: {why}' if why else ''}"
    best, *others = [each for each in plans if each["step"]]
    said = f"{early}{best['name']} is the fastest"
    if not others:
        return said
    pace = format_pace(best["step"]["seconds"], others[0]["step"]["seconds"])
    top = best["step"]["high"]
    near = [each for each in others if each["state"] != BEHIND]
    unsure = [each["name"] for each in near if top is None or each["step"]["low"] <= top]
    if others[0]["name"] in unsure:
        names = f"{', '.join((best['name'], *unsure[:-1]))} and {unsure[-1]}"
        return f"{early}{names} are too close to tell; {best['name']} had the least median step"
    said += (
        f", {pace} than {others[0]['name']}"
        if " as " not in pace
        else f", {others[0]['name']} {pace}"
    )
    return f"{said}; not told from {' and '.join(unsure)}" if unsure else said


def _why_all(plans: Sequence[Mapping[str, Any]]) -> str:
    """Return why all plans failed; "" where one did not, or each for a reason of its own."""
    whys = {each["why"] if each["state"] == FAILED else "" for each in plans}
    return whys.pop() if len(whys) == 1 < len(plans) else ""


def _cells(plan: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    step, memory = plan["step"], plan["reserved_bytes"] or plan["peak_bytes"]
    planned = plan["planned_reserved_bytes" if plan["reserved_bytes"] else "planned_peak_bytes"]
    best = min((each["step"]["seconds"] for each in plans if each["step"]), default=0.0)
    result = FAILED if _why_all(plans) else _result(plan, best)
    return (
        plan["name"],
        format_seconds(plan["planned_step_seconds"]),
        format_seconds(step["seconds"]) if step else "",
        format_bytes(planned),
        format_bytes(memory) if memory else "",
        result,
    )


def _result(plan: Mapping[str, Any], best: float) -> str:
    step = plan["step"]
    if plan["why"]:
        return plan["why"] if plan["state"] == OPEN else f"{plan['state']}: {plan['why']}"
    if step is None:
        return "not run"
    is_again = bool(plan["starts"] > 1)
    said = f"{plan['steps']} steps" + f" in {plan['starts']} starts" * is_again
    if plan["state"] == OPEN and not is_again:
        return f"{said}: not known to 2 %"
    if step["seconds"] > best:
        said = f"{format_percent(step['seconds'] / best - 1)} slower, {said}"
    if not step["high"]:
        return said
    if is_again:
        return f"{said}, {format_percent(step['high'] / step['low'] - 1)} apart"
    width = max(step["high"] - step["seconds"], step["seconds"] - step["low"]) / step["seconds"]
    return f"{said}, within {100 * width:.1f} %"


def progress_line(standing: Standing, seconds: Sequence[float]) -> str:
    """Return what is known of a plan that runs."""
    return f"{standing.entrant.name}: {len(seconds)} steps, {format_seconds(median(seconds))} each"


def left_out_lines(entrants: Sequence[Entrant]) -> list[str]:
    """Return a line for each plan that cannot be run here."""
    return [
        f"{each.name} is left out: {', '.join(each.missing)} {'is' if len(each.missing) == 1 else 'are'} not installed here"
        for each in entrants
        if each.missing
    ]
