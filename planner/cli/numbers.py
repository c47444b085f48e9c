"""Values of flags, of which click takes too many, or refuses without saying what was meant."""

import math
import os
import re
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, cast

import click

from planner.core.files import open_file

_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)
_DIGITS = re.compile(r"\d+(?:[,_]\d{3})*(?:\.\d+)?")


class FiniteRange(click.FloatRange):
    """A float within bounds; click's own range lets nan pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or end the command where it is nan or infinite."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


class WholeNumber(click.types.IntParamType):
    """A whole number; another word is answered with the number that it most likely means."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or end the command with the nearest one."""
        try:
            return int(value)
        except ValueError:
            near = _nearest(str(value))
            flag = param.opts[0] if param else ""
            meant = "such as 8" if near is None else f"write {flag} {near}"
            self.fail(f"{value!r} is no whole number: {meant}.", param, ctx)


def _nearest(text: str) -> int | None:
    """Return the number that a text names, in a word or in digits with more beside them; None without any."""
    digits = _DIGITS.search(text)
    if digits:
        return round(float(re.sub("[,_]", "", digits[0])))
    words = (word for word in re.findall(r"[a-z]+", text.lower()) if word in _NUMBERS)
    return next(map(_NUMBERS.index, words), None)


class GpuNumber(WholeNumber):
    """How many GPUs; a number with their name is another flag's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or end the command with what was meant."""
        from planner.hardware.mixed_gpus import is_list

        if isinstance(value, str) and not _DIGITS.fullmatch(value) and is_list(value):
            self.fail(f"{value!r} names the GPUs too: write --gpu {value}.", param, ctx)
        return super().convert(value, param, ctx)


class TextFile(click.File):
    """A text file; click's own waits for ever where nobody writes to a named pipe."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the file, or end the command where it cannot be read."""
        if value == "-":
            return super().convert(value, param, ctx)
        try:
            stream = _begun(cast(BufferedReader, open_file(Path(value))))
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            self.fail(f"'{os.fsdecode(value)}': {said}", param, ctx)
        opened = TextIOWrapper(stream, encoding=self.encoding, errors=self.errors)
        if ctx is not None:
            ctx.call_on_close(opened.close)
        return opened


def _begun(stream: BufferedReader) -> BufferedReader:
    """Return a file whose first bytes can be read: what cannot be read at all says so, with its name."""
    try:
        stream.peek(1)
    except OSError:
        stream.close()
        raise
    return stream


class NamedPath(click.Path):
    """A path of what is written; click's own takes an empty one, which is the folder that one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or end the command where it has no name."""
        if not str(value).strip():
            self.fail("it is empty; name what is to be written, such as plan.", param, ctx)
        return super().convert(value, param, ctx)
