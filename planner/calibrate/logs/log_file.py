"""A file of any kind -> the lines of a log: unpacked, without colours, one line per carriage return."""

import gzip
import re
import zlib
from io import BytesIO
from pathlib import Path

from planner.core.errors import InvalidInputError
from planner.core.files import decode_log, open_file
from planner.core.frozen import frozen

LARGEST_LOG = 2**27
"""Bytes that are read of a log, unpacked; of a longer one the rest is left out, and said."""
LONGEST_LINE = 2**12
"""Characters of a line that are looked at: no step's line is as long."""
_GZIP = b"\x1f\x8b"
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@frozen
class LogText:
    """What a log file holds."""

    name: str
    """As it was given."""
    lines: tuple[str, ...]
    """Those that are not empty."""
    is_cut: bool
    """Whether more followed than is read."""


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, at most one more than are read of a log.

    Raises:
        InvalidInputError: the file cannot be read.
    """
    name = shown(str(path))
    try:
        if path.is_dir():
            raise InvalidInputError(f"{name} is a folder", hint="give a log file", field="LOG")
        with open_file(path) as stream:
            return stream.read(LARGEST_LOG + 1)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"cannot read {name}: {said}", field="LOG") from None


def unpacked(name: str, raw: bytes) -> bytes:
    """Return the bytes that gzip packed, or bytes that it did not; a file that breaks off gives what came before.

    Raises:
        InvalidInputError: nothing of it can be unpacked.
    """
    if not raw.startswith(_GZIP):
        return raw
    parts, size = [], 0
    with gzip.GzipFile(fileobj=BytesIO(raw)) as stream:
        try:
            while size <= LARGEST_LOG and (part := stream.read1(2**20)):
                parts.append(part)
                size += len(part)
        except (OSError, EOFError, zlib.error) as error:
            if not parts:
                raise InvalidInputError(
                    f"{shown(name)} is damaged gzip: {shown(str(error))}",
                    hint="pack the log again",
                    field="LOG",
                ) from None
    return b"".join(parts)


def text_of(name: str, raw: bytes) -> LogText:
    """Return the lines that bytes hold, of too many the first.

    Raises:
        InvalidInputError: they are empty or no text.
    """
    is_cut, raw = len(raw) > LARGEST_LOG, raw[:LARGEST_LOG]
    hint = "give what the run printed, as text or packed with gzip"
    text = decode_log(raw, shown(name), hint=hint, field="LOG")
    lines = (_clean(line) for line in re.split(r"[\r\n]+", text))
    kept = tuple(line for line in lines if line)
    if not kept:
        raise InvalidInputError(
            f"{shown(name)} is empty", hint="give what the run printed", field="LOG"
        )
    return LogText(name=name, lines=kept, is_cut=is_cut)


def _clean(line: str) -> str:
    cut = line[:LONGEST_LINE]
    if not cut.isprintable():
        cut = _UNPRINTED.sub("", _ESCAPES.sub("", cut))
    return cut.rstrip()


def shown(text: str, most: int = 100) -> str:
    """Return text out of a file as it can be printed: one line, not too long."""
    printed = (
        sign if sign.isprintable() else " " for sign in _ESCAPES.sub("", text[:LONGEST_LINE])
    )
    line = " ".join("".join(printed).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
