"""A plan held fast: the request, its answer, the versions and the files; does it all still hold?"""

import hashlib
import json
import math
import shlex
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from planner import __version__, answers
from planner.advice.plan import Plan
from planner.answers.rollout import refuse_rollout
from planner.catalog.findings import finding_names
from planner.core.errors import InvalidInputError
from planner.gate.differences import Change, differences
from planner.gate.documents import (
    LARGEST_FILE,
    LOCK_NAME,
    LOCK_VERSION,
    Document,
)
from planner.gate.facts import FIELDS, one_line, read_facts
from planner.gate.limits import Check
from planner.generate.write_bundle import bundle_files
from planner.report.command import request_words
from planner.request.schema import Request, parse_request

_MOST_FILES = 1000
_MOST_GONE = 3
"""Files that are said to be gone one by one."""
_SAME = 1e-6
"""As a fraction: the last digits of an amount are the machine's."""
_AGAIN = "write it again: `planner suggest ... --out DIR --lock --force`"


def lock_text(request: Request, answer: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Return the lock of a plan, as JSON.

    Args:
        request: what was asked.
        answer: the contract's JSON of the plan; its facts are kept, its ledgers are not.
        files: those of the launch folder, relative path to text.
    """
    lock = {
        "lock_version": LOCK_VERSION,
        "versions": {"planner": __version__, "schema": answers.SCHEMA_VERSION},
        "request": request.model_dump(mode="json", exclude_unset=True),
        "answer": _kept(answer),
        "files": {name: _digest(text.encode()) for name, text in sorted(files.items())},
    }
    return json.dumps(lock, indent=2) + "\n"


def write_lock(
    folder: Path | None, request: Request, plan: Plan, answer: Mapping[str, Any], *, force: bool
) -> Path:
    """Write the lock of a plan and return its path.

    Args:
        folder: of the plan's launch files; None for a lock without files, in this folder.
        request: what was asked.
        plan: what is locked.
        answer: the contract's JSON of the plan.
        force: whether a lock that is there is replaced. One beside launch files always is.

    Raises:
        InvalidInputError: it cannot be written, or is there.
    """
    refuse_rollout(request)
    path = (folder or Path()) / LOCK_NAME
    files = {} if folder is None else bundle_files(plan, answer, request.files)
    text = lock_text(request, answer, files)
    mode = "w" if force or folder is not None else "x"
    try:
        with path.open(mode, encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InvalidInputError(
            f"{path} exists", hint="replace it with --force", field="--lock"
        ) from None
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror}", field="--lock") from None
    return path


def _kept(answer: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in (each for each in FIELDS if not each.path.startswith("request.")):
        path = each.path if each.path.startswith("job.") else f"chosen.{each.path}"
        *parents, last = path.split(".")
        source, target = answer, found
        for key in parents:
            source = source.get(key) or {}
            target = target.setdefault(key, {})
        if last in source:
            target[last] = source[last]
    return found | {
        "launch": {"targets": answer["launch"]["targets"]},
        "findings": answer["findings"],
        "assumptions": answer["assumptions"],
    }


def check_lock(document: Document) -> tuple[tuple[Check, ...], tuple[Change, ...]]:
    """Return whether a lock's request is still planned so, and whether its folder still holds that.

    Raises:
        PlannerError: the document is no lock, or its request can no longer be planned.
    """
    if document.kind != "lock" or document.facts is None:
        raise InvalidInputError(
            f"{one_line(document.file)} is a {document.kind}, no lock",
            hint="--locked takes what `planner suggest ... --lock` wrote, or its folder",
            field="--locked",
        )
    request = parse_request(document.data["request"])
    resolved, plan = answers.suggest_layout(request, allow_paths=True)
    answer = answers.answer_plan(resolved, plan, request.id)
    changes = differences(document.facts, read_facts(answer))
    digests = _digests(document)
    again = _again(request, Path(document.file).parent if digests else None)
    checks = [_same_plan(document, changes, again)]
    if digests:
        checks += _check_files(
            document,
            digests,
            bundle_files(plan, answer, request.files) if plan.launch.targets else {},
            again,
        )
    return tuple(checks), changes


def _again(request: Request, folder: Path | None) -> str:
    words = request_words(request.model_dump(mode="json", exclude_unset=True))
    where = [] if folder is None else ["--out", str(folder)]
    command = shlex.join([*words, *where, "--lock", "--force"]) if words else ""
    return f"write it again: `{command}`" if command.isprintable() and command else _AGAIN


def _same_plan(document: Document, changes: tuple[Change, ...], again: str) -> Check:
    fields = ", ".join(dict.fromkeys(change.label for change in changes))
    ours, theirs = __version__, one_line(str(document.data["versions"].get("planner")))
    told = "" if ours == theirs else f"; locked by planner {theirs}, this is {ours}"
    said = f"planned otherwise now: {fields}" if changes else "planned as it was locked"
    return Check(
        code="CHK006",
        name=finding_names("check")["CHK006"],
        level="error" if changes else "pass",
        message=f"{said}{told}",
        hint=again if changes else "",
    )


def _digests(document: Document) -> dict[str, str]:
    """Return the digests of a lock's files by their path inside the folder.

    Raises:
        InvalidInputError: they are none, too many, or lead out of the folder.
    """
    digests = document.data["files"]
    for name, digest in digests.items():
        path = PurePosixPath(name)
        is_inside = not path.is_absolute() and ".." not in path.parts and name.isprintable()
        if not is_inside or not isinstance(digest, str) or len(digests) > _MOST_FILES:
            raise InvalidInputError(
                f"the lock {one_line(document.file)} has no file {one_line(name)[:60]!r} to hold",
                hint=_AGAIN,
                field="FILE",
            )
    return dict(digests)


def _check_files(
    document: Document, digests: Mapping[str, str], written: Mapping[str, str], again: str
) -> Iterator[Check]:
    """Yield which files the planner writes otherwise now, and which are edited or gone."""
    folder = Path(document.file).parent
    found = {name: _read(folder / name) for name in digests}
    edited = {name for name in digests if _digest(found[name]) != digests[name]}
    otherwise = {
        name
        for name in {*digests, *written}
        if not _is_same(digests.get(name), written.get(name), found.get(name))
    }
    for name in sorted(otherwise):
        if name not in written:
            said = "is no longer written"
        else:
            said = (
                "is written otherwise now" if name in digests else "is written now, and not locked"
            )
        yield _about("CHK007", folder / name, said, 1, again)
    if not otherwise:
        yield _pass("CHK007", f"{len(digests)} files are as the planner writes them")
    gone = [name for name in sorted(edited) if found[name] is None]
    if len(gone) > _MOST_GONE:
        is_alone = len(gone) == len(digests)
        named = (
            "a lock is checked in its folder"
            if is_alone
            else f"{', '.join(gone[:_MOST_GONE])}, ..."
        )
        yield _broken(
            "CHK008", Path(document.file), f"{len(gone)} files are gone: {named}", 1, again
        )
        edited -= {*gone}
    for name in sorted(edited):
        was = written.get(name, "") if name not in otherwise else ""
        yield _about("CHK008", folder / name, *_edit(was, found[name]), again)
    if not edited and not gone:
        yield _pass("CHK008", f"{len(digests)} files are as they were locked")


def _pass(code: str, said: str) -> Check:
    return Check(code=code, name=finding_names("check")[code], level="pass", message=said)


def _about(code: str, path: Path, said: str, line: int, again: str) -> Check:
    return _broken(code, path, f"{one_line(str(path))} {said}", line, again)


def _broken(code: str, path: Path, message: str, line: int, again: str) -> Check:
    return Check(
        code=code,
        name=finding_names("check")[code],
        level="error",
        message=message,
        hint=again,
        line=line,
        file=str(path),
    )


def _edit(was: str, found: bytes | None) -> tuple[str, int]:
    """Return what happened to a file, and the first line that is not the locked one's."""
    if found is None:
        return "is gone", 1
    if not was:
        return "is not what was locked", 1
    lines = zip_longest(was.split("\n"), found.decode(errors="replace").split("\n"))
    line = next((number for number, (one, other) in enumerate(lines, 1) if one != other), 1)
    return f"is not what was locked, from line {line} on", line


def _read(path: Path) -> bytes | None:
    """Return the bytes of a file with the ends of lines that were written; None where it is none."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            return stream.read(LARGEST_FILE + 1).replace(b"\r\n", b"\n")
    except OSError:
        return None


def _digest(raw: bytes | None) -> str:
    return "" if raw is None else f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _is_same(digest: str | None, text: str | None, found: bytes | None) -> bool:
    """Return whether what is written now is what was locked; of JSON, but for the last digits."""
    if digest is None or text is None:
        return False
    if _digest(text.encode()) == digest:
        return True
    if found is None or _digest(found) != digest:
        return False
    try:
        return _are_near(json.loads(text), json.loads(found))
    except (ValueError, RecursionError):
        return False


def _are_near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_SAME)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_near, one, other))
    return bool(one == other)
