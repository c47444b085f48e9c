"""Template -> HTML, with the planner's own formats as filters."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from planner.catalog.records import read
from planner.core.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_rate,
    format_seconds,
)
from web.form import control_of
from web.packed import is_json
from web.wording import coded, in_labels, in_links, with_detail, without_field

STATIC = Path(__file__).parent / "static"
_INDENTATION = re.compile(r"\n\s+(?=<)")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[A-Za-z/]{1,5}\b)")
_TEMPLATES = Path(__file__).parent / "templates"


TERMS: Mapping[str, str] = read("pages", "words")["terms"]
"""What a page says, in lower case, and the entry of the glossary that explains it."""
_WORDS = re.compile(
    rf"(?<![\w-])({'|'.join(sorted(map(re.escape, TERMS), key=len, reverse=True))})(?![\w-])",
    re.IGNORECASE,
)
_LINK = Markup('<a class="term" href="/terms/{name}">{word}</a>')


def render(template: str, **context: Any) -> str:
    """Return a page; every text in it is escaped, so that only tags begin with "<" and need no indentation."""
    return _INDENTATION.sub("\n", _environment().get_template(template).render(context))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {}
    environment.filters |= {
        "bytes": format_bytes,
        "count": format_count,
        "fraction": format_fraction,
        "rate": format_rate,
        "seconds": format_seconds,
        "control": control_of,
        "is_json": is_json,
        "with_detail": with_detail,
        "without_field": without_field,
        "coded": coded,
        "in_labels": in_labels,
        "in_links": in_links,
        "explained": explained,
        "capitalized": capitalized,
        "without_title": _without_title,
        "unbroken": _unbroken,
    }
    return environment


def _without_title(message: str, title: str) -> str:
    return capitalized(in_labels(message.removeprefix(f"{title.lower()}: ")))


def _unbroken(text: str) -> str:
    return _BEFORE_UNIT.sub("\u00a0", text)


def capitalized(text: str) -> str:
    """Return a sentence with a capital, unless it begins with a name, as a GPU's or a setting's."""
    first, *_ = text.split(" ", 1)
    is_name = any(letter.isdigit() or letter in "_." for letter in first)
    return text if is_name else text[:1].upper() + text[1:]


def explained(text: str) -> Markup:
    """Return a text in which each term leads to its explanation where it stands first."""
    parts, seen, end = [], set(), 0
    for found in _WORDS.finditer(text):
        name = TERMS[found[0].lower()]
        if name in seen:
            continue
        seen.add(name)
        parts += [escape(text[end : found.start()]), _LINK.format(name=name, word=found[0])]
        end = found.end()
    return Markup().join((*parts, escape(text[end:])))
