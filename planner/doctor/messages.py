"""The log of a failed run, or one message -> what was the cause, line by line; not what followed from it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from operator import attrgetter
from string import ascii_lowercase
from typing import Literal

from planner.catalog.symptoms import Symptom, symptoms
from planner.core.errors import InvalidInputError
from planner.core.files import decode_log
from planner.core.frozen import frozen
from planner.doctor.crashes import crash_advice, crash_frame, line_end
from planner.doctor.memory_numbers import MemoryNumbers, read_numbers
from planner.doctor.refusals import refused
from planner.doctor.waiting import waiting_lines
from planner.doctor.worked import worked_lines

MOST_BYTES = 64 * 2**20
_LONGEST_LINE = 4000
"""Characters of a line that are kept."""
_LINES_BEFORE = 60
"""In which the context of a message is looked for."""
_MOST_HITS = 1000
"""Of one message that are looked at for its context."""
_EXCEPTION = re.compile(
    r"^(?:\[[\w :/]{1,40}\]:? ?|\d{1,5}: |\([\w ,=.]{1,60}\) )?(?P<name>[A-Za-z_][\w.]{0,150}(?:Error|Exception))(?:: .*)?$",
    re.MULTILINE,
)
_TOLD = re.compile(
    r"(?:NCCL WARN |Last error:[ \t]*(?:\n(?:\[[\w :]{1,20}\]:?)?[ \t]*)?)(?P<said>\S[^\n]{0,2000})"
)
"""Where NCCL itself says what failed."""
_MOST_TOLD, _LONGEST_TOLD = 3, 300
_XID = re.compile(
    r"\bxids?(?:[ _-]?(?:errors?|codes?|number))?[\s:=#]{0,3}(?:\((?:pci:)?[0-9a-f:.]{4,20}\))?[\s:=]{0,3}(?P<n>\d{1,3})(?!\d|\.\d|:)",
    re.IGNORECASE,
)
_RANK = re.compile(r"\brank ?(\d{1,6})\b", re.IGNORECASE)
_RANKS = re.compile(r"\bnranks (\d{1,6})\b", re.IGNORECASE)
_COLOR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,300})", line (?P<line>\d+)')
_TIME = re.compile(
    r"(?<!\d)(?:\d{4}-\d\d-\d\d[ T]|(?<=\[[EWIF])\d{4} )\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
_NEAR_CLOCK = 6000
_LETTERS = re.compile(r"[a-z]+")
_TO_WORDS = bytes(code if chr(code) in ascii_lowercase else 32 for code in range(256))
_Needle = tuple[tuple[str, ...], tuple[str, ...]]
_TRACEBACK = "Traceback (most recent call last)"
_CRASH = "process-crashed"
_GAVE_UP = "rendezvous-timeout"
_WARNING = re.compile(r"\[W[^\]\n]{0,80}\] ?\[c10d\]", re.IGNORECASE)
"""Of c10d, which then tries another address, or the same again."""
_OF_LAUNCHERS = ("ChildFailedError", "SignalException", "CalledProcessError")
_LIBRARIES = ("site-packages", "dist-packages", "lib/python", "<frozen")


@frozen
class Sighting:
    """A message in a log: where, what it says, and the symptom that it is, where it is a known one."""

    line: int
    text: str
    symptom: Symptom | None
    """None for an exception of the script itself, or one that has no entry."""
    frame: str = ""
    """Of an exception without an entry, or of a general kind, the last line of the user's own code; of a crash the library."""
    clock: str = ""
    """The time of the line, or of the nearest before it that has one."""
    kind: Literal["cause", "consequence", "remark"] = "cause"


@frozen
class LogDiagnosis:
    """What a log says happened first, and what followed."""

    main: Sighting | None
    others: tuple[Sighting, ...]
    """Each other message once, where it is first seen."""
    numbers: MemoryNumbers | None
    """Of an out-of-memory message, where the main one is."""
    worked: tuple[str, ...]
    """What the main message's numbers and names say, and what the log itself says of it."""
    lines: int
    """0 where nothing stands in them."""

    @property
    def cause(self) -> Sighting | None:
        """Return the main message; None where it is a remark, so that no error is in the log."""
        return self.main if self.main and self.main.kind != "remark" else None


def diagnose_log(content: bytes, name: str) -> LogDiagnosis:
    """Return the first cause in a log, and what followed from it.

    The first traceback or known cause of any rank is it; a launcher's summary and a watchdog of NCCL are
    only taken where nothing else is there.

    Raises:
        InvalidInputError: it is too large, or no text.
    """
    if len(content) > MOST_BYTES:
        raise InvalidInputError(
            f"{name} has {len(content):,} bytes",
            hint=f"a log is read up to {MOST_BYTES:,}: tail -c 60M {name} | planner doctor --error -",
            field="--error",
        )
    hint = "give the log or the message, as text"
    return diagnose_text(decode_log(content, name, hint=hint, field="--error"))


def diagnose_text(text: str) -> LogDiagnosis:
    """Return the first cause in a text, and what followed from it.

    A bar that is drawn again after a carriage return is a line of its own to what is looked for, not to the
    numbers of lines.
    """
    numbered = _COLOR.sub("", text).replace("\r\n", "\n")
    text = numbered.replace("\r", "\n")
    if len(text.lower()) != len(text):
        text = numbered = text.lower()
    seen = sorted((*_known(text, numbered), *_unlisted(text, numbered)), key=attrgetter("line"))
    by_name = {(each.symptom.code if each.symptom else each.text): each for each in seen[::-1]}
    once = _weighed(sorted(by_name.values(), key=attrgetter("line")))
    main = _main(once)
    return LogDiagnosis(
        main=main,
        others=tuple(each for each in once if each is not main),
        numbers=read_numbers(main.text) if main else None,
        worked=tuple(_worked(main, main.symptom, text)) if main and main.symptom else (),
        lines=numbered.removesuffix("\n").count("\n") + 1 if text.strip() else 0,
    )


def _weighed(sightings: list[Sighting]) -> list[Sighting]:
    """Return what a warning of c10d says as a remark, unless the processes did not find each other after it."""
    if any(each.symptom and each.symptom.name == _GAVE_UP for each in sightings):
        return sightings
    return [
        replace(each, kind="remark")
        if each.kind == "cause" and _WARNING.search(each.text)
        else each
        for each in sightings
    ]


def _main(sightings: list[Sighting]) -> Sighting | None:
    """Return the first cause; one that only says that something failed gives way to one that says what."""
    kinds = {each.kind for each in sightings}
    kind = next((each for each in ("cause", "consequence", "remark") if each in kinds), None)
    of_kind = [each for each in sightings if each.kind == kind]
    if not of_kind:
        return None
    first = _earliest(of_kind)
    if first.symptom is None or not first.symptom.is_general:
        return first
    precise = [each for each in of_kind if each.symptom and not each.symptom.is_general]
    return _earliest(precise) if kind == "cause" and precise else first


def _earliest(sightings: list[Sighting]) -> Sighting:
    """Return the first by the clock: logs of several ranks may stand one after the other; else by the line."""
    first = sightings[0]
    alike = [each for each in sightings if each.clock and each.clock[4:5] == first.clock[4:5]]
    return min(alike, key=attrgetter("clock"), default=first)


def _worked(main: Sighting, symptom: Symptom, text: str) -> Iterator[str]:
    """Yield what the numbers of a message say; of a general one also what NCCL printed beside it."""
    yield from worked_lines(symptom, main.text)
    if main.kind == "consequence":
        yield from waiting_lines(text)
    if main.frame and symptom.name == _CRASH:
        yield crash_advice(main.frame)
    elif symptom.is_general:
        told = dict.fromkeys(
            each["said"].strip() for each in islice(_TOLD.finditer(text), _MOST_TOLD)
        )
        yield from (
            f"the log says: {each[:_LONGEST_TOLD]}" for each in told if each not in main.text
        )


def _known(text: str, numbered: str) -> Iterator[Sighting]:
    """Yield the known messages of a text; of a line, the first symptom in the table's order."""
    lowered, taken = text.lower(), set[int]()
    words = _vocabulary(lowered)
    xids = _xids(text) if "xid" in lowered else {}
    for symptom in sorted(symptoms(), key=attrgetter("is_general")):
        of_numbers = (xids[number] for number in symptom.xid if number in xids)
        for start in (*of_numbers, *_hits(lowered, words, symptom)):
            if start not in taken:
                taken.add(start)
                end = min(line_end(text, start), start + _LONGEST_LINE)
                line, frame = text[start:end].strip(), ""
                if symptom.is_general:
                    frame = (crash_frame if symptom.name == _CRASH else _own_frame)(text, start)
                known = (symptom.is_general and refused(line)) or symptom
                yield Sighting(
                    line=numbered.count("\n", 0, start) + 1,
                    text=line,
                    symptom=known,
                    frame=frame,
                    clock=_clock(text, end),
                    kind=known.kind,
                )
                break


def _xids(text: str) -> dict[int, int]:
    """Return where the line begins that first has each Xid."""
    found = [*islice(_XID.finditer(text), _MOST_HITS)]
    return {int(each["n"]): text.rfind("\n", 0, each.start()) + 1 for each in found[::-1]}


def _vocabulary(lowered: str) -> str:
    """Return each word of a text once: most messages are ruled out by it, and the whole text is not searched for them."""
    return " ".join(set(lowered.encode("ascii", "replace").translate(_TO_WORDS).decode().split()))


@cache
def _needles(match: tuple[tuple[str, ...], ...]) -> tuple[_Needle, ...]:
    """Return the words of each of a symptom's messages in lower case, and the runs of letters in them."""
    lowered = (tuple(word.lower() for word in words) for words in match)
    return tuple((words, tuple(_LETTERS.findall(" ".join(words)))) for words in lowered)


def _hits(lowered: str, vocabulary: str, symptom: Symptom) -> Iterator[int]:
    """Yield where lines begin that hold a symptom's message, in its context."""
    near = [each.lower() for each in symptom.near]
    if not all(any(word.lower() in lowered for word in words) for words in symptom.beside):
        return
    for words, letters in _needles(symptom.match):
        if not all(each in vocabulary for each in letters):
            continue
        starts = (each for each in _lines(lowered, words) if _is_near(lowered, each, near))
        start = next(starts, None)
        if start is not None and (not symptom.is_of_all_ranks or _is_of_all(lowered, words)):
            yield start


def _lines(lowered: str, words: tuple[str, ...]) -> Iterator[int]:
    """Yield where lines begin that have all of the words, and are no prose."""
    first, *rest = words
    at = -1
    for _ in range(_MOST_HITS):
        at = lowered.find(first, at + 1)
        if at < 0:
            break
        start, end = lowered.rfind("\n", 0, at) + 1, line_end(lowered, at)
        line = lowered[max(start, at - _LONGEST_LINE) : min(end, at + _LONGEST_LINE)]
        if all(word in line for word in rest) and not _is_prose(line, first):
            yield start


def _is_of_all(lowered: str, words: tuple[str, ...]) -> bool:
    """Return whether as many ranks say it as the log's communicators have, and two at least."""
    saying = (lowered[start : line_end(lowered, start)] for start in _lines(lowered, words))
    ranks = {rank for line in saying for rank in _RANK.findall(line)}
    return len(ranks) >= max((2, *map(int, _RANKS.findall(lowered))))


_OF_ALLOCATOR = ("tried to allocate", "error", "failed", "failure", "warn", "exception")
"""One of these is in the line of an allocator, a library or an exception; prose has none before it."""


def _is_prose(line: str, words: str) -> bool:
    if words not in _OUT_OF_MEMORY:
        return False
    before = line.partition(words)[0].rpartition("]")[2].rpartition(":")[2].strip()
    return bool(before) and not any(word in line for word in _OF_ALLOCATOR)


_OUT_OF_MEMORY = ("cuda out of memory", "hip out of memory")


def _is_near(lowered: str, start: int, near: list[str]) -> bool:
    before = lowered[max(0, start - _LINES_BEFORE * _LONGEST_LINE) : start]
    lines = before.rsplit("\n", _LINES_BEFORE + 1)[-_LINES_BEFORE - 1 :]
    return not near or any(word in line for line in lines for word in near)


def _unlisted(text: str, numbered: str) -> Iterator[Sighting]:
    """Yield the first and the last exception of tracebacks that no symptom is about."""
    since = text.find(_TRACEBACK)
    if since < 0:  # an exception may stand in the last line without its traceback
        since = text.rfind("\n", 0, len(text.rstrip())) + 1
    unlisted = [
        found
        for found in islice(_EXCEPTION.finditer(text, since), _MOST_HITS)
        if not found["name"].endswith(_OF_LAUNCHERS) and not _is_known(found[0][:_LONGEST_LINE])
    ]
    for found in unlisted[:1] + unlisted[1:][-1:]:
        yield Sighting(
            line=numbered.count("\n", 0, found.start()) + 1,
            text=text[found.start() : min(found.end(), found.start() + _LONGEST_LINE)],
            symptom=refused(found[0]),
            frame=_own_frame(text, found.start()),
            clock=_clock(text, found.end()),
        )


def _clock(text: str, end: int) -> str:
    """Return the last time that stands before a place, near it; those of one form sort as they went by."""
    times = _TIME.findall(text, max(0, end - _NEAR_CLOCK), end)
    return times[-1].replace("T", " ").replace(",", ".") if times else ""


def _is_known(line: str) -> bool:
    lowered = line.lower()
    return any(
        all(word in lowered for word in words)
        for symptom in symptoms()
        for words, _ in _needles(symptom.match)
    )


def _own_frame(text: str, start: int) -> str:
    """Return the last frame of the user's own files in the traceback before; "" where all are of libraries."""
    before = text[max(0, start - _LINES_BEFORE * 200) : start]
    found = _FRAME.finditer(before[before.rfind(_TRACEBACK) :])
    frames = [each for each in found if not any(word in each["file"] for word in _LIBRARIES)]
    return f"{frames[-1]['file']}:{frames[-1]['line']}" if frames else ""
