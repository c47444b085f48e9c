"""A crash in compiled code -> the library in which it was: the first frame that is not the system's own."""

import re
from collections.abc import Iterator

from planner.catalog.symptoms import owners

_LINES = 80
"""After the crash, and before, in which its frames are looked for."""
_SYSTEM = re.compile(
    r"(?:libc|libpthread|libdl|libm)(?:-2[\d.]*)?|(?:ld-linux|libgcc_s|libstdc|linux-vdso|libpython|libasan)[\w.+-]*"
)
_FRAME = re.compile(r"\[ ?\d+\]|#\d+|File \"|segfault at|\(\+0x|\[0x|\+ 0x")
_SHARED = re.compile(
    r"(?<![\w.+-])(?P<library>[A-Za-z_][\w+.-]{0,80}?)\.so(?:\.\d{1,9}){0,4}(?![\w.])"
)
_PACKAGE = re.compile(r"(?:site|dist)-packages/(?P<library>\w{1,60})[/.]")


def crash_frame(text: str, start: int) -> str:
    """Return the library of the first frame after the line that starts there, else before it; "" for none."""
    after = text[start:].split("\n", _LINES + 1)[: _LINES + 1]
    before = text[:start].rsplit("\n", _LINES)[-_LINES:]
    return next(_libraries([*after, *before]), "")


def _libraries(lines: list[str]) -> Iterator[str]:
    for line in filter(_FRAME.search, lines):
        for pattern in (_SHARED, _PACKAGE):
            for found in pattern.finditer(line[:2000]):
                if not _SYSTEM.fullmatch(found["library"]):
                    yield found[0].rpartition("-packages/")[2].rstrip("/.")


def line_end(text: str, start: int) -> int:
    """Return where the line ends that a place is in."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def crash_advice(frame: str) -> str:
    """Return what to do about a crash in a library."""
    of = (told for name, told in owners().items() if frame.startswith(name))
    return f"it was in {frame}: {next(of, 'begin with that')}"
