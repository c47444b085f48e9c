"""What is wrong with a run, a script or a log -> JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from planner.answers.envelope import SCHEMA_VERSION
from planner.doctor.messages import LogDiagnosis, Sighting
from planner.doctor.scripts import Fault
from planner.doctor.timing_rules import Diagnosis


def answer_timings(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis of timings."""
    return {"schema_version": SCHEMA_VERSION, "kind": "timings", **asdict(found)}


def answer_faults(faults: Mapping[str, Sequence[Fault]]) -> dict[str, Any]:
    """Return what is wrong with scripts, by file."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "scripts",
        "ok": not any(fault.level == "error" for each in faults.values() for fault in each),
        "files": [
            {"file": file, "faults": [asdict(fault) for fault in each]}
            for file, each in faults.items()
        ],
    }


def answer_log(found: LogDiagnosis, more: Sequence[str]) -> dict[str, Any]:
    """Return what a log says happened first, and what followed; `more` is what its numbers say."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "log",
        "lines": found.lines,
        "cause": _sighting(found.main) if found.main else None,
        "besides": [_sighting(each) for each in found.others],
        "numbers": asdict(found.numbers) if found.numbers else None,
        "more": list(more),
    }


def _sighting(each: Sighting) -> dict[str, Any]:
    known = each.symptom
    return {
        "line": each.line,
        "text": each.text,
        "frame": each.frame,
        "kind": each.kind,
        "symptom": None
        if known is None
        else {
            key: getattr(known, key)
            for key in ("code", "name", "title", "cause", "first", "confirm", "page", "source")
        },
    }
