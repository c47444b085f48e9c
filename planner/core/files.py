"""A user's file, which may be any: read no further than it may be large."""

from pathlib import Path
from typing import BinaryIO

from planner.core.errors import InvalidInputError


def read_limited(
    source: Path | BinaryIO, name: str, largest_bytes: int, *, hint: str, field: str
) -> bytes:
    """Return the bytes of a file.

    Args:
        source: the file, or what it was opened as.
        name: what messages call it.
        largest_bytes: that it may have, whole KiB.
        hint: what should have been given.
        field: what the file was given as.

    Raises:
        InvalidInputError: it cannot be read, or is too large.
    """
    try:
        if isinstance(source, Path):
            with source.open("rb") as stream:
                raw = stream.read(largest_bytes + 1)
        else:
            raw = source.read(largest_bytes + 1)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"cannot read {name}: {said}", field=field) from None
    if len(raw) > largest_bytes:
        mib, kib = largest_bytes >> 20, largest_bytes >> 10
        size = f"{mib} MiB" if mib else f"{kib} KiB"
        raise InvalidInputError(f"{name} is larger than {size}", hint=hint, field=field)
    return raw
