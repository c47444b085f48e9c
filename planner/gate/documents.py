"""A file of a pull request -> what it is (a plan, an estimate, a request, a lock) and its facts."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from planner import answers
from planner.core.errors import (
    InvalidInputError,
    InvalidRequestError,
    NothingFitsError,
    PlannerError,
    Problem,
)
from planner.core.files import decode_text, read_limited
from planner.core.frozen import frozen
from planner.core.strict_json import parse_json
from planner.gate.facts import Facts, one_line, read_facts
from planner.request.schema import parse_request

LOCK_NAME = "plan.lock.json"
LOCK_VERSION = 1
LARGEST_FILE = 2**25
"""Bytes of a file that are read: several times those of the largest plan."""
_GIVE = "give a plan (`planner suggest --json`), a request, a lock or another tool's configuration (ds_config.json)"
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
_IN_A_FOLDER = (LOCK_NAME, "plan.json")


@frozen
class Document:
    """What was given to be checked or compared."""

    file: str
    """As it was typed, or the file of a folder that was."""
    kind: str
    """"plan", "estimate", "request", "lock" or "configuration"."""
    facts: Facts | None
    """None where nothing fits."""
    refusal: str = ""
    """Why there is no plan for a request."""
    hint: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    """What it is, where it has no facts."""
    first: str = ""
    """Of several files of one run, where what is said of all is shown."""

    @property
    def place(self) -> str:
        """Return the one file at which something is shown."""
        return self.first or self.file


def read_document(file: str, stdin: BinaryIO) -> Document:
    """Return what a file, a folder with a plan or a lock in it, or stdin (-) holds.

    A request is planned as `planner suggest` plans it.

    Raises:
        PlannerError: it cannot be read, is none of these, or is a request that cannot be planned.
    """
    path = Path(file)
    if file != "-" and _is_folder(path):
        found = [path / name for name in _IN_A_FOLDER if (path / name).is_file()]
        if not found:
            raise InvalidInputError(
                f"{one_line(file)} is a folder without a plan",
                hint="write one with `planner suggest ... --out DIR`, with --lock to hold it fast",
                field="FILE",
            )
        path, file = found[0], str(found[0])
    return _document(file, read_json(stdin if file == "-" else path, file))


def _is_folder(path: Path) -> bool:
    """Return whether a path is a folder; one that nothing can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_json(source: Path | BinaryIO, file: str) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Raises:
        InvalidInputError: it cannot be read, is too large, or holds none.
    """
    name = one_line(file)
    hint = "give one plan, request or lock"
    raw = read_limited(source, name, LARGEST_FILE, hint=hint, field="FILE")
    text = decode_text(raw, name, hint=_GIVE, field="FILE")
    try:
        value = parse_json(text)
    except ValueError as error:
        said = f"is not JSON: {one_line(str(error))}" if text.strip() else "is empty"
        raise InvalidInputError(f"{name} {said}", hint=_GIVE, field="FILE") from None
    if not isinstance(value, dict):
        raise InvalidInputError(
            f"{name} holds no JSON object",
            hint="a plan, a request and a lock are objects: one in a file",
            field="FILE",
        )
    return value


def locked_parts(data: Mapping[str, Any], file: str) -> None:
    """Refuse a lock of another version, or without its parts.

    Raises:
        InvalidInputError: says which, and how to write it again.
    """
    version = data.get("lock_version")
    again = "write it again: `planner suggest ... --out DIR --lock`"
    if version != LOCK_VERSION or isinstance(version, bool):
        raise InvalidInputError(
            f"{one_line(file)} is a lock of version {one_line(repr(version)[:40])}, not {LOCK_VERSION}",
            hint=again,
            field="FILE",
        )
    for part in ("request", "answer", "versions", "files"):
        if not isinstance(data.get(part), Mapping):
            raise InvalidInputError(
                f"the lock {one_line(file)} has no {part}", hint=again, field="FILE"
            )


def _document(file: str, data: dict[str, Any]) -> Document:
    if "lock_version" in data:
        locked_parts(data, file)
        facts = read_facts(data["answer"], data["request"])
        return Document(file=file, kind="lock", facts=facts, data=data)
    if data.get("ok") is False:
        raise InvalidInputError(
            f"{one_line(file)} is an answer without a plan",
            hint="its error says why there is none",
            field="FILE",
        )
    if "chosen" in data:
        return Document(file=file, kind="plan", facts=read_facts(data), data=data)
    if "memory" in data and "time" in data:
        return Document(file=file, kind="estimate", facts=read_facts(data), data=data)
    if "model" in data:
        return _planned(file, data)
    raise InvalidInputError(
        f"{one_line(file)} is no plan, no request and no lock",
        hint='a plan has "chosen", a request "model", a lock "lock_version"',
        field="FILE",
    )


def _planned(file: str, data: dict[str, Any]) -> Document:
    try:
        request = parse_request(data)
        resolved, plan = answers.suggest_layout(request, allow_paths=True)
    except NothingFitsError as error:
        return Document(
            file=file,
            kind="request",
            facts=None,
            refusal=one_line(error.message),
            hint=one_line(error.hint),
            data=data,
        )
    except PlannerError as error:
        raise _of_file(error, file) from None
    answer = answers.answer_plan(resolved, plan, request.id)
    return Document(file=file, kind="request", facts=read_facts(answer, data), data=data)


def _of_file(error: PlannerError, file: str) -> PlannerError:
    """Return what is wrong with a request, with its file and field: no flag sets what a file says."""
    if isinstance(error, InvalidRequestError):
        return InvalidRequestError(
            tuple(
                Problem(field="FILE", message=f"{one_line(file)}: {each.message}", hint=each.hint)
                for each in error.problems
            )
        )
    place = "" if error.field in error.message else f" ({error.field})"
    return type(error)(f"{one_line(file)}: {error.message}{place}", hint=error.hint, field="FILE")


@frozen
class OwnPlan:
    """The plan that files were written with."""

    folder: str
    """The launch folder, as it is named beside the files."""
    model_ranks: int
    """GPUs that share one copy of the model."""


def own_plan(files: Iterable[str]) -> OwnPlan | None:
    """Return the plan above the folder of the first of these files; None where there is none."""
    file = next(iter(files), None)
    if file is None:
        return None
    folder = Path(os.path.normpath(Path(file).parent / ".."))
    try:
        strategy = read_json(folder / "plan.json", "plan.json")["chosen"]["strategy"]
        return OwnPlan(folder=str(folder), model_ranks=_model_ranks(strategy))
    except (PlannerError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _model_ranks(strategy: Mapping[str, Any]) -> int:
    return math.prod(max(1, int(strategy.get(size) or 1)) for size in _SIZES)
