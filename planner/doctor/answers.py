"""What is wrong with a run, a script or a log -> JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict

from planner.answers.envelope import SCHEMA_VERSION
from planner.answers.shapes import Fields
from planner.catalog.symptoms import Symptom
from planner.doctor.diagnosis import Diagnosis
from planner.doctor.memory_numbers import MemoryNumbers, compare_with_plan, number_lines
from planner.doctor.messages import LogDiagnosis, Sighting
from planner.doctor.scripts import Fault


class TimingsAnswer(TypedDict):
    """What times of a run on several numbers of GPUs mean."""

    schema_version: str
    kind: Literal["timings"]
    code: str
    """Of the diagnosis; "" where nothing stands out."""
    name: str
    message: str
    arithmetic: list[str]
    ceiling: float | None
    """The best speed-up that more GPUs can give; null for no limit seen."""
    next: str
    batches: str


class ScriptAnswer(TypedDict):
    """What is wrong with a script, from its top to its end."""

    file: str
    faults: list[Annotated[Fields, Fault]]


class ScriptsAnswer(TypedDict):
    """What is wrong with scripts; ok where none of it is an error."""

    schema_version: str
    kind: Literal["scripts"]
    ok: bool
    files: list[ScriptAnswer]


class SymptomAnswer(TypedDict):
    """A message that people meet: what causes it, and what to do."""

    code: str
    name: str
    title: str
    cause: str
    first: str
    confirm: str
    page: str
    source: str


class SightingAnswer(TypedDict):
    """A message in a log; null for a symptom that has no entry."""

    line: int
    text: str
    frame: str
    kind: Literal["cause", "consequence", "remark"]
    symptom: SymptomAnswer | None


class LogAnswer(TypedDict):
    """What a log says happened first, and what followed."""

    schema_version: str
    kind: Literal["log"]
    lines: int
    cause: SightingAnswer | None
    besides: list[SightingAnswer]
    numbers: Annotated[Fields, MemoryNumbers] | None
    more: list[str]


def answer_timings(found: Diagnosis) -> TimingsAnswer:
    """Return a diagnosis of timings."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "timings",
        "code": found.code,
        "name": found.name,
        "message": found.message,
        "arithmetic": list(found.arithmetic),
        "ceiling": found.ceiling,
        "next": found.next,
        "batches": found.batches,
    }


def answer_faults(faults: Mapping[str, Sequence[Fault]]) -> ScriptsAnswer:
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


def said_lines(found: LogDiagnosis, plan: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return what the numbers of a message say, and of an out-of-memory one how a plan's stand to them.

    Raises:
        InvalidInputError: the plan has no ledger of memory.
    """
    if found.numbers is None:
        return found.worked
    compared = () if plan is None else compare_with_plan(found.numbers, plan)
    return (*found.worked, *number_lines(found.numbers), *compared)


def answer_log(found: LogDiagnosis, more: Sequence[str]) -> LogAnswer:
    """Return what a log says happened first, and what followed; `more` is what its numbers say.

    Where only remarks are found there is no cause: they all stand besides.
    """
    remarks = (found.main,) if found.main and not found.cause else ()
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "log",
        "lines": found.lines,
        "cause": _sighting(found.cause) if found.cause else None,
        "besides": [_sighting(each) for each in (*remarks, *found.others)],
        "numbers": asdict(found.numbers) if found.numbers else None,
        "more": list(more),
    }


def _sighting(each: Sighting) -> SightingAnswer:
    return {
        "line": each.line,
        "text": each.text,
        "frame": each.frame,
        "kind": each.kind,
        "symptom": _symptom(each.symptom) if each.symptom else None,
    }


def _symptom(known: Symptom) -> SymptomAnswer:
    return {
        "code": known.code,
        "name": known.name,
        "title": known.title,
        "cause": known.cause,
        "first": known.first,
        "confirm": known.confirm,
        "page": known.page,
        "source": known.source,
    }
