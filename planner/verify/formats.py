"""A verdict -> text for a terminal, markdown, JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from planner.answers import SCHEMA_VERSION
from planner.calibrate.logs.reading import Reading
from planner.core.units import (
    format_bytes,
    format_pace,
    format_percent,
    format_seconds,
)
from planner.gate.formats import escaped
from planner.report.values import Terminal, columns_text
from planner.verify.judge import Check, Verdict


def _rate(amount: float) -> str:
    return f"{amount:,.0f}"


def _nothing(_: float) -> str:
    return ""


_UNSAID = {"memory": "ran out", "loss": "no number"}
"""Of a check without an amount; of all others, that the log does not say it."""
_SHOWN: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {"seconds": format_seconds, "tokens/s": _rate, "bytes": format_bytes, "": _nothing}
)
_MARKS: Mapping[bool | None, str] = MappingProxyType({True: "pass", False: "FAIL", None: ""})
_HEAD = ("", "measured", "planned", "range", "")


def as_text(verdict: Verdict, terminal: Terminal) -> str:
    """Return a verdict for a terminal: the answer, the figures, why, what to try."""
    lines = [terminal.bold(_sentence(verdict)), columns_text(_rows(verdict), terminal.width - 2)]
    lines.append(terminal.paragraph(_read(verdict.reading), first="Read    ", rest=" " * 8))
    lines += [terminal.paragraph(note, first="Note    ", rest=" " * 8) for note in verdict.notes]
    for reason in verdict.reasons:
        lines.append(terminal.paragraph(reason.text, first="Why     ", rest=" " * 8))
        lines.append(terminal.paragraph(reason.attempt, first="Try     ", rest=" " * 8))
    return "\n".join(lines)


def as_markdown(verdict: Verdict) -> str:
    """Return a verdict for a comment or a step summary."""
    rows = _rows(verdict)
    table = [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows]
    lines = [
        f"### {escaped(_sentence(verdict))}",
        "",
        table[0],
        "| --- | ---: | ---: | --- | --- |",
    ]
    lines += [*table[1:], "", f"{escaped(_read(verdict.reading))}."]
    lines += [f"- {escaped(note)}" for note in verdict.notes]
    lines += [f"- {escaped(each.text)}. Try: {escaped(each.attempt)}" for each in verdict.reasons]
    return "\n".join(lines)


def as_json(verdict: Verdict) -> str:
    """Return a verdict as JSON, amounts in base units."""
    return json.dumps(verdict_answer(verdict), indent=2)


def verdict_answer(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as an object; `ok` is null where nothing could be judged."""
    reading, steady = verdict.reading, verdict.reading.steady
    run = verdict.run
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": verdict.passed,
        "plan": verdict.planned.name,
        "log": {
            "file": reading.file,
            "kind": reading.kind,
            "steps": steady.steps if steady else 0,
            "warm_up_steps": steady.left_out if steady else 0,
            "spread": steady.spread if steady else None,
            "lines": reading.lines,
            "unread_lines": reading.unread,
            "damaged_lines": list(reading.damaged),
        },
        "step_seconds": run.step_seconds if run else None,
        "peak_bytes": run.peak_bytes if run else None,
        "reserved_bytes": reading.log.reserved_bytes if reading.log else None,
        "checks": [
            {
                "name": check.name,
                "unit": check.unit,
                "ok": check.passed,
                "measured": check.measured,
                "planned": check.planned.likely,
                "low": check.planned.low,
                "high": check.planned.high,
                "note": check.note,
            }
            for check in verdict.checks
        ],
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "notes": list(verdict.notes),
    }


def _sentence(verdict: Verdict) -> str:
    if verdict.passed is None:
        return "RAN: the plan's figures could not be judged"
    failed = [_failure(check) for check in verdict.checks if check.passed is False]
    if failed:
        return f"FAIL: {'; '.join(each for each in failed if each)}"
    judged = [check.name for check in verdict.checks if check.passed]
    words = "as fast as planned" if "step" in judged else "ran"
    memory = f", {_memory_words(verdict)}" if {"allocated", "reserved"} & {*judged} else ""
    return f"PASS: {words}{memory}"


def _memory_words(verdict: Verdict) -> str:
    below = any(
        check.unit == "bytes" and check.passed and (check.measured or 0.0) < check.planned.low
        for check in verdict.checks
    )
    return "with less memory than planned" if below else "its memory in the planned range"


def _failure(check: Check) -> str:
    if check.measured is None:
        return check.note
    if check.name == "step":
        pace = format_pace(check.measured, check.planned.likely)
        return f"a step is {pace} than planned" if " as " not in pace else f"a step takes {pace}"
    if check.unit != "bytes":
        return ""  # the step says it
    return f"more memory {check.name} than planned"


def _rows(verdict: Verdict) -> list[tuple[str, ...]]:
    return [_HEAD, *map(_cells, verdict.checks)]


def _cells(check: Check) -> tuple[str, ...]:
    show, planned = _SHOWN[check.unit], check.planned
    unsaid = _UNSAID.get(check.name, "not in the log")
    measured = unsaid if check.measured is None else show(check.measured)
    name = f"{check.name} {check.note}" if check.note and check.measured is not None else check.name
    reach = f"{show(planned.low)} to {show(planned.high)}" if planned.low < planned.high else ""
    return name, measured, show(planned.likely), reach, _MARKS[check.passed]


def _read(reading: Reading) -> str:
    """Say what was read, and of how many steps."""
    steady = reading.steady
    if steady is None:
        return f"{reading.file}: {reading.kind}"
    if reading.log is not None and reading.log.is_mean:
        return f"{reading.file} ({reading.kind}): the mean of a run"
    of = reading.log.counted if reading.log is not None and steady.steps > 1 else "step"
    steps = f"median of {steady.steps:,} {of}, {steady.left_out} of the warm-up left out"
    return f"{reading.file} ({reading.kind}): {steps}, the middle half within {format_percent(steady.spread)}"
