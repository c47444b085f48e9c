"""What an earlier plan wrote into a folder, by the digests in its plan.json: what another may replace, and what is edited."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.files import open_file
from planner.generate import TARGETS
from planner.generate.plan_json import OWN, WRITTEN, digest, own_digest
from planner.targets import retired_targets

_LARGEST_BYTES = 2**26
_NAMED = 5
_MOST_KEPT = 1000
_FOLDERS = (*TARGETS, *retired_targets(), "launchers")
_BESIDE = ("README.md", OWN, ".dockerignore", "launcher.py")


def earlier_files(folder: Path) -> dict[str, str]:
    """Return the files that are in a folder and an earlier plan wrote: the digest it wrote of each path in it."""
    plan = _read_plan(folder)
    if plan is None:
        return {}
    return {name: text for name, text in plan[WRITTEN].items() if _is_of_a_plan(folder, name)}


def edited_files(folder: Path, earlier: Mapping[str, str]) -> set[str]:
    """Return those of an earlier plan's files that are not as it wrote them."""
    return {name for name, was in earlier.items() if _digest_of(folder, name) != was}


def refuse_others(folder: Path, files: Iterable[str], earlier: Collection[str]) -> None:
    """Refuse to overwrite what no plan wrote.

    Raises:
        InvalidInputError: names the first of those files.
    """
    others = [name for name in files if name not in earlier and _is_there(folder / name)]
    if not others:
        return
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    raise InvalidInputError(
        f"{', '.join(others[:_NAMED])}{more} in {str(folder)!r} would be overwritten, and no plan wrote"
        f" {'it' if len(others) == 1 else 'them'}",
        hint="choose another folder, or move them away: --force replaces the files of a plan alone",
        field="out",
    )


def keep_edited(folder: Path, names: Iterable[str]) -> list[str]:
    """Rename files to NAME.orig, or NAME.orig.1 and so on where that is there, and return those names."""
    kept = []
    for name in names:
        free = (f"{name}.orig", *(f"{name}.orig.{number}" for number in range(1, _MOST_KEPT)))
        kept.append(next(each for each in free if not _is_there(folder / each)))
        (folder / name).rename(folder / kept[-1])
    return kept


def remove_stale(folder: Path, names: Iterable[str]) -> None:
    """Remove files of an earlier plan, and the folders that are empty without them."""
    for name in names:
        path = folder / name
        path.unlink(missing_ok=True)
        if path.parent != folder and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _read_plan(folder: Path) -> dict[str, Any] | None:
    """Return a plan.json that says what was written beside it; None where there is none."""
    try:
        plan = json.loads(_read(folder / OWN))
        written = plan[WRITTEN]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
    is_plan = isinstance(written, dict) and "schema_version" in plan
    return plan if is_plan and all(isinstance(each, str) for each in written.values()) else None


def _digest_of(folder: Path, name: str) -> str:
    if name == OWN:
        plan = _read_plan(folder)
        return own_digest(plan) if plan else ""
    return digest(_read(folder / name))


def _read(file: Path) -> bytes:
    with open_file(file) as stream:
        return stream.read(_LARGEST_BYTES)


def _is_of_a_plan(folder: Path, name: str) -> bool:
    """Return whether a name is one that plans write, and a file inside the folder: plan.json may come from anybody."""
    above, _, last = name.rpartition("/")
    is_one = name in _BESIDE if not above else above in _FOLDERS and last not in {"", ".", ".."}
    path = folder / name
    return is_one and path.is_file() and (path.parent == folder or not path.parent.is_symlink())


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()
