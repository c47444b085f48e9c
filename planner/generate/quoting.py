"""How a value becomes text of a generated file: every text is quoted for that file's language."""

import json
import re
import shlex
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_LINE_LENGTH = 100
_WRAPPED = re.compile(r"(?<=[^\n|])\n *(?=[^\s|#-]|-[^ -])")
"""Between two lines of a paragraph or of an item: no row of a table, no heading, nothing empty."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_NO_TEXTS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
"""Words that YAML 1.1 reads as something else."""
_TWO_BYTES = 0xFFFF
"""The last letter that JSON escapes as one."""


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return the text of a template, named without its `.j2`."""
    text = _environment().get_template(f"{template}.j2").render(context)
    return _unwrapped(text) if template.endswith(".md") else text


def _unwrapped(text: str) -> str:
    """Return Markdown in which a paragraph is a line: templates wrap theirs, by what a plan says or not."""
    parts = text.split("```")
    parts[::2] = (_WRAPPED.sub(" ", part) for part in parts[::2])
    return "```".join(parts)


@cache
def _environment() -> "Environment":
    # Imported here: it would slow the start of every command that writes no files.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 -- no template is HTML; each language has its own filter
    )
    environment.filters |= {
        "python": _python,
        "shell": shlex.quote,
        "tojson": _json,
        "yaml": _yaml,
        "comment": _one_line,
        "docstring": _docstring,
        "markdown": _markdown,
    }
    return environment


def _python(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:_}" if isinstance(value, int) else repr(float(value))
    literal = repr(value)
    if literal.startswith("'") and '"' not in literal and "\\'" not in literal:
        return f'"{literal[1:-1]}"'
    return literal


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str)


def _yaml(value: object) -> str:
    """Return a value as YAML 1.1 reads it, on one line.

    1e-06 is a text to it, and 1.0e-06 a number; JSON's pairs of escapes are two letters to it, not one.
    """
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXTS:
        return value
    if isinstance(value, str):
        letters = (
            json.dumps(c)[1:-1] if ord(c) <= _TWO_BYTES else f"\\U{ord(c):08x}" for c in value
        )
        return f'"{"".join(letters)}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_yaml(each)}" for name, each in value.items()) + "}"
    text = json.dumps(value)
    has_point = not isinstance(value, float) or "." in text
    return text if has_point else text.replace("e", ".0e")


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _docstring(text: str) -> str:
    r"""Return lines that can stand inside a docstring: no `\` escape and no closing quotes."""
    harmless = _one_line(text).replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.fill(harmless, _LINE_LENGTH, break_long_words=False, break_on_hyphens=False)


def _markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: no markup, HTML or links."""
    escaped = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = "".join(f"\\{c}" if c in "\\`*_[]|~$!#" else c for c in escaped)
    return escaped.replace("://", "&#58;//")
