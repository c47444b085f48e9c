"""Why a run is slow, fails or is wrong, as a page: from timings, a message, a script."""

from collections.abc import Mapping
from typing import Literal

from planner.core.errors import InvalidInputError
from planner.doctor.diagnosis import diagnose
from planner.doctor.memory_numbers import number_lines
from planner.doctor.messages import LogDiagnosis, Sighting, diagnose_log
from planner.doctor.scripts import look_at
from planner.doctor.texts import plain
from planner.doctor.timings import Timings, read_times
from web.sheet import Cell, facts
from web.tool import Item, Told, read_tool

DOCTOR = read_tool("doctor")


def diagnosed(values: Mapping[str, str]) -> Told | None:
    """Return what is said of the one thing that was sent; None of nothing.

    Raises:
        PlannerError: it cannot be read.
    """
    kinds = [name for name in ("times", "log", "script") if name in values]
    if len(kinds) > 1:
        raise InvalidInputError("one thing at a time", hint="send one form", field=kinds[0])
    if not kinds:
        if values:
            raise InvalidInputError("no times are given", hint="two or more", field="times")
        return None
    text = values[kinds[0]]
    if kinds == ["log"]:
        return _log(diagnose_log(text.encode("utf-8", "replace"), "what was pasted"))
    return _script(text) if kinds == ["script"] else _times(text, values)


def _times(text: str, values: Mapping[str, str]) -> Told:
    numbers = DOCTOR.read_numbers(values)
    counts = {name: int(numbers[name]) for name in ("batch_per_gpu",) if name in numbers}
    fixed: Literal["", "epochs", "steps"]
    match values.get("fixed", ""):
        case "epochs":
            fixed = "epochs"
        case "steps":
            fixed = "steps"
        case "":
            fixed = ""
        case other:
            said = f"{other[:40]!r} is neither epochs nor steps"
            raise InvalidInputError(said, field="fixed")
    batch = numbers.get("global_batch_size")
    found = diagnose(
        Timings(
            seconds=read_times(text),
            fixed=fixed,
            global_batch=None if batch is None else int(batch),
            start_up_seconds=numbers.get("start_up_seconds"),
            loader_seconds=numbers.get("loader_seconds"),
            **counts,
        )
    )
    ceiling = found.ceiling
    most = f"{ceiling:.2f} times as fast, on any number of GPUs" if ceiling is not None else ""
    title, _, why = DOCTOR.labelled(found.message).partition(": ")
    return Told(
        title=_sentence(title),
        lead=f"{_sentence(why)}." if why else "",
        facts=facts(
            [
                ("Next", found.next),
                ("At the most", most),
                ("Batch", found.batches),
                ("Rule", Cell(text=found.code, href=f"/rules/{found.code}" if found.code else "")),
            ]
        ),
        blocks=(("How", "\n".join(found.arithmetic)),) if found.arithmetic else (),
    )


def _log(found: LogDiagnosis) -> Told:
    main = found.main
    if not found.lines:
        return Told(title="The log is empty", notes=("Paste it from the start, of every rank.",))
    if main is None:
        return Told(
            title=f"Nothing known in {found.lines:,} line{'s'[: found.lines > 1]}",
            notes=("No traceback, and none of the messages that are listed under Rules.",),
        )
    known = main.symptom
    lines: list[tuple[str, str | Cell]] = [
        ("Message", f"line {main.line:,}: {plain(main.text)}"),
        ("Where", plain(main.frame) if main.frame else ""),
    ]
    if known:
        lines += [
            ("Why", known.cause),
            ("First", known.first),
            ("Confirm", known.confirm),
            ("More", Cell(text=known.page, href=f"/terms/{known.page}")),
        ]
    numbers = number_lines(found.numbers) if found.numbers else ()
    lines += [("Numbers", line) for line in numbers]
    title = known.title if known else "An exception of the script, or of a library: mend it first"
    return Told(
        title=_sentence(title) if found.cause else f"No error is in the log; a remark: {title}",
        facts=facts(lines),
        items=tuple(map(_besides, found.others)),
    )


def _besides(each: Sighting) -> Item:
    kind = {"consequence": "followed from it", "remark": "a remark"}.get(each.kind, "a cause too")
    title = each.symptom.title if each.symptom else plain(each.text)
    code = each.symptom.code if each.symptom else ""
    return Item(text=title, code=code, note=f"line {each.line:,}: {kind}")


def _script(text: str) -> Told:
    faults = look_at(text.encode("utf-8", "replace"), "the script")
    if not faults:
        return Told(title="Nothing found in the script")
    return Told(
        title=f"{len(faults)} fault{'s'[: len(faults) > 1]} in the script",
        items=tuple(
            Item(
                text=f"Line {fault.line}: {fault.message}",
                code=fault.code,
                level={"error": "blocker"}.get(fault.level, fault.level),
                note=f"{fault.level}; {fault.fix}",
            )
            for fault in faults
        ),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
