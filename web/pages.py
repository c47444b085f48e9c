"""Template -> HTML, with the planner's own formats as filters."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from planner.core.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_rate,
    format_seconds,
)
from web.explained import explained
from web.form import control_of
from web.wording import coded, in_labels, in_links, with_detail, without_field

STATIC = Path(__file__).parent / "static"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[A-Za-z/]{1,5}\b)")
_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **context: Any) -> str:
    """Return a page; every text in it is escaped."""
    return _environment().get_template(template).render(context)


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
    """Return a text in which no figure ends a line without its unit."""
    return _BEFORE_UNIT.sub("\u00a0", text)


def capitalized(text: str) -> str:
    """Return a sentence with a capital, unless it begins with a name, as a GPU's or a setting's."""
    first, *_ = text.split(" ", 1)
    is_name = any(letter.isdigit() or letter in "_." for letter in first)
    return text if is_name else text[:1].upper() + text[1:]
