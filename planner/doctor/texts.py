"""What is wrong with a run, a script or a log -> text for a terminal: the answer, why, and what to do."""

from collections.abc import Sequence

from planner.catalog.symptoms import Symptom
from planner.doctor.diagnosis import Diagnosis
from planner.doctor.messages import LogDiagnosis, Sighting
from planner.doctor.scripts import Fault
from planner.report.values import Terminal

_LABEL = 9
_LONGEST = 300
"""Characters of a message that are shown."""
_WHOLE_LOG = "Give it from the start, of every rank (torchrun --log-dir logs --tee 3)."


def timings_text(found: Diagnosis, terminal: Terminal) -> str:
    """Return a diagnosis of timings."""
    code = f"  ({found.code})" if found.code else ""
    lines = [terminal.paragraph(f"{found.message[:1].upper()}{found.message[1:]}{code}")]
    lines += _labelled("How", found.arithmetic, terminal)
    if found.ceiling is not None:
        said = f"{found.ceiling:.2f} times as fast at the most, on any number of GPUs"
        lines += _labelled("Ceiling", [said], terminal)
    lines += _labelled("Batch", [found.batches] if found.batches else [], terminal)
    lines += _labelled("Next", [found.next], terminal)
    return "\n".join(_bold_first(lines, terminal))


def faults_text(file: str, faults: Sequence[Fault], terminal: Terminal) -> str:
    """Return what is wrong with a script, line by line."""
    if not faults:
        return f"{terminal.bold(file)}: nothing found"
    lines = [f"{terminal.bold(file)}: {len(faults)} {'fault' if len(faults) == 1 else 'faults'}"]
    for fault in faults:
        first = f"  line {fault.line:<4} {fault.code}  "
        rest = " " * len(first)
        lines.append(terminal.paragraph(f"{fault.level}: {fault.message}", first=first, rest=rest))
        lines.append(terminal.paragraph(f"fix: {fault.fix}", first=rest, rest=rest))
    lines.append(f"planner explain {faults[0].code} says more")
    return "\n".join(lines)


def log_text(found: LogDiagnosis, more: Sequence[str], terminal: Terminal) -> str:
    """Return what a log says happened first, and what followed; `more` is what its numbers say."""
    main = found.main
    if not found.lines:
        return terminal.paragraph(f"The log is empty. {_WHOLE_LOG}")
    if main is None:
        return terminal.paragraph(
            f"Nothing known in {'1 line' if found.lines == 1 else f'{found.lines:,} lines'}: no traceback and none of the messages that"
            f" `planner explain` lists. {_WHOLE_LOG}"
        )
    lines = [] if found.cause else [terminal.paragraph("No error is in the log, only remarks:")]
    lines += [*_main_lines(main, terminal), *_labelled("Numbers", more, terminal)]
    if main.symptom:
        lines += _advice(main.symptom, terminal)
    else:
        said = "an exception of the script itself, or of a library that has no entry here: mend it first"
        lines += _labelled("Next", [said], terminal)
    followed = [_followed(each) for each in found.others]
    lines += _labelled("Besides", followed, terminal)
    return "\n".join(_bold_first(lines, terminal))


def plain(text: str) -> str:
    """Return a text of others on one line, without what a terminal would obey."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _main_lines(main: Sighting, terminal: Terminal) -> list[str]:
    if main.symptom:
        head = f"{main.symptom.title}, line {main.line:,}  ({main.symptom.code})"
    else:
        head = f"The first error is on line {main.line:,}"
    lines = [terminal.paragraph(head), *_labelled("Message", [plain(main.text)], terminal)]
    return lines + _labelled("Where", [plain(main.frame)] if main.frame else [], terminal)


def _advice(symptom: Symptom, terminal: Terminal) -> list[str]:
    lines = _labelled("Why", [symptom.cause], terminal)
    lines += _labelled("First", [symptom.first], terminal)
    lines += _labelled("Confirm", [symptom.confirm], terminal)
    return lines + _labelled("More", [f"planner explain {symptom.page}"], terminal)


def _followed(each: Sighting) -> str:
    if each.symptom is None:
        return f"line {each.line:,}: {plain(each.text)}"
    what = {"consequence": "followed from it", "remark": "a remark"}.get(
        each.kind, "a cause as well"
    )
    return f"line {each.line:,} {each.symptom.code} {each.symptom.title} ({what})"


def _labelled(label: str, texts: Sequence[str], terminal: Terminal) -> list[str]:
    indent = " " * _LABEL
    return [
        terminal.paragraph(text, first=f"{label:<{_LABEL}}" if number == 0 else indent, rest=indent)
        for number, text in enumerate(texts)
    ]


def _bold_first(lines: list[str], terminal: Terminal) -> list[str]:
    return ["\n".join(map(terminal.bold, lines[0].split("\n"))), *lines[1:]]
