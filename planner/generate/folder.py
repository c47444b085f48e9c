"""Files of a plan -> a folder on disk: all of them or none, and nothing of the user's is lost."""

import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from planner.core.errors import InvalidInputError
from planner.generate.earlier_plan import (
    earlier_files,
    edited_files,
    keep_edited,
    refuse_others,
    remove_stale,
)


def write_files(folder: Path, files: Mapping[str, str], *, force: bool) -> tuple[str, ...]:
    """Write files of a plan into a folder, and return the names under which edited ones are kept.

    A new folder appears whole or not at all. With `force`, the files of an earlier plan in an
    existing folder are replaced one by one, each atomically, and those that this plan does not
    write are removed; what was edited since is kept beside, and what no plan wrote stays.

    Raises:
        InvalidInputError: the folder exists and `force` is not given, a file that no plan wrote
            would be overwritten, or the folder cannot be written.
    """
    try:
        refuse_filled(folder, force=force)
        earlier = earlier_files(folder)
        refuse_others(folder, files, earlier)
        edited = sorted(edited_files(folder, earlier))
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside the folder: a rename is atomic within one file system.
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            _write_all(staging, files)
            kept = keep_edited(folder, edited)
            _publish(staging, folder, files)
            remove_stale(folder, sorted(earlier.keys() - files.keys()))
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return tuple(kept)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {str(folder)!r}: {error.strerror}", field="out"
        ) from None


def refuse_filled(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is not empty, unless `force` is given.

    Raises:
        InvalidInputError: it is.
    """
    if _is_filled(folder) and not force:
        raise InvalidInputError(
            f"{str(folder)!r} exists and is not empty",
            hint="choose another folder, or replace the plan in it with --force",
            field="out",
        )


def refuse_unwritable(folder: Path) -> None:
    """Refuse a folder that cannot be made: what takes minutes asks before it starts.

    Raises:
        InvalidInputError: the nearest folder above it that exists is none, or cannot be written.
    """
    try:
        above = next((each for each in folder.absolute().parents if each.exists()), folder)
        why = "" if above.is_dir() else os.strerror(errno.ENOTDIR)
        why = why or ("" if os.access(above, os.W_OK) else os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise InvalidInputError(f"cannot write {str(folder)!r}: {why}", field="out")


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _write_all(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)


def _publish(staging: Path, folder: Path, files: Mapping[str, str]) -> None:
    if not _is_filled(folder):
        umask = os.umask(0)
        os.umask(umask)
        staging.chmod(0o777 & ~umask)
        staging.replace(folder)
        return
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).replace(folder / name)
