"""A user's file, which may be any: read no further than it may be large, and as text only where it is text."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from planner.core.errors import InvalidInputError

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How a text begins that was written in it, as PowerShell writes what a command printed."""
_CONTROLS = bytes(range(9)) + bytes(range(14, 27)) + bytes(range(28, 32))
"""What no text has: all but tabs, ends of lines and the escape of colours."""
_BINARY_SHARE = 0.1
"""Of the first bytes; a log has a few strange ones where a process was killed."""
_LOOKED_AT = 4096
_OF_THE_SHELL = ("/dev/fd/", "/dev/stdin", "/proc/")
"""Where a pipe is that somebody writes to already: stdin, and <(a command)."""


def open_file(path: Path) -> BinaryIO:
    """Open a file to read its bytes; a pipe that lies in a folder has no end, and nobody may write to it.

    Raises:
        OSError: it cannot be opened, or is such a pipe.
    """
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_pipe(number, path)
        os.set_blocking(number, True)
        return os.fdopen(number, "rb")
    except OSError:
        os.close(number)
        raise


def _refuse_pipe(number: int, path: Path) -> None:
    is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
    if is_pipe and not str(path).startswith(_OF_THE_SHELL):
        raise OSError(0, "it is a named pipe, no file")


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
            with open_file(source) as stream:
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


def decode_text(raw: bytes, name: str, *, hint: str, field: str) -> str:
    """Return the text that a file holds.

    Raises:
        InvalidInputError: it is none in UTF-8.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInputError(f"{name} is not a text file in UTF-8", hint=hint, field=field)
    return text


def decode_log(raw: bytes, name: str, *, hint: str, field: str) -> str:
    """Return what programs printed, in UTF-8 or UTF-16; a few bytes may be neither.

    Raises:
        InvalidInputError: it begins with what no text has.
    """
    if raw.startswith(_UTF_16):
        return raw.decode("utf-16", errors="replace")
    if looks_binary(raw):
        raise InvalidInputError(f"{name} is binary, no log", hint=hint, field=field)
    return raw.decode("utf-8-sig", errors="replace")


def looks_binary(raw: bytes) -> bool:
    """Return whether a file begins with control characters as no text does."""
    start = raw[:_LOOKED_AT]
    strange = len(start) - len(start.translate(None, _CONTROLS))
    return strange > _BINARY_SHARE * len(start)
