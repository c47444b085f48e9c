"""What an earlier plan wrote into a folder: the files that another one may replace or remove."""

import json
import posixpath
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.files import open_file
from planner.generate import TARGETS
from planner.generate.launchers import launchers

_OF_SOME_PLANS = ("answers.py", "ds_config.json", "division.py", "gradients.py", "stages.py")
"""Files beside a train.py that only some plans need (`more_templates` of the targets)."""

_LARGEST_PLAN_BYTES = 2**26
_NAMED = 5


def earlier_files(folder: Path) -> set[str]:
    """Return the files in a folder that an earlier plan wrote, by their paths in it; none without its plan.json."""
    plan = _read_plan(folder / "plan.json")
    if plan is None:
        return set()
    targets = {name for name in TARGETS if name in plan or _has_settings(folder / name)}
    names = {"README.md", "plan.json", "launchers/README.md"}
    for name in targets:
        names |= {f"{name}/{each}" for each in (*TARGETS[name].templates, *_OF_SOME_PLANS)}
    for launcher in launchers().values():
        if not launcher.targets or targets & set(launcher.targets):
            names |= {posixpath.normpath(f"launchers/{each}") for each in launcher.templates}
    return {each for each in names if _is_within(folder, each)}


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


def remove_stale(folder: Path, names: Iterable[str]) -> None:
    """Remove files of an earlier plan, and the folders that are empty without them."""
    for name in names:
        path = folder / name
        path.unlink()
        if path.parent != folder and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _read_plan(file: Path) -> Collection[Any] | None:
    """Return the targets that a plan.json says were written; None where it is no plan."""
    try:
        with open_file(file) as stream:
            plan = json.loads(stream.read(_LARGEST_PLAN_BYTES))
        targets = plan["launch"]["targets"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
    return targets if isinstance(targets, list) and "schema_version" in plan else None


def _has_settings(folder: Path) -> bool:
    try:
        with open_file(folder / "settings.py") as stream:
            return b"EXPECTED_PEAK_GIB = " in stream.read(2**16)
    except OSError:
        return False


def _is_within(folder: Path, name: str) -> bool:
    path = folder / name
    return path.is_file() and (path.parent == folder or not path.parent.is_symlink())


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()
