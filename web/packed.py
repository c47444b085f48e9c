"""A long text of a question <-> what of it goes into a link."""

import base64
import binascii
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache

from planner.core.errors import InvalidInputError
from planner.hardware.topology import parse_topology

LONG = ("model", "topology", "machine")
"""Parameters that may be pasted: a page has dozens of links, and each carries them."""
_MARK = "z1."
"""Begins what is packed; neither a topology nor JSON begins so."""
_PACKED = re.compile(r"z1\.[A-Za-z0-9_-]{1,65536}={0,2}")
_ADAPTERS = "\nNIC Legend:"
"""What stands above the names that a driver's numbers stand for."""
_LEAST = 200
"""Characters that no name has."""
_MOST_BYTES = 2**22
"""Of an unpacked text: more is left as it is, and refused by who reads it."""


def packed(values: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters as links carry them."""
    short = {name: _pack(values[name]) for name in LONG if _is_pasted(name, values.get(name, ""))}
    return {**values, **short}


def _is_pasted(name: str, text: str) -> bool:
    return bool(text) and (name != "model" or is_json(text))


def is_json(text: str) -> bool:
    """Return whether a text was meant as a file of JSON: no name begins so."""
    return text.startswith(("{", "["))


def has_pasted(values: Mapping[str, str]) -> bool:
    """Return whether one of the parameters is a pasted text."""
    return any(len(values.get(name, "")) > _LEAST for name in LONG)


def unpacked(text: str) -> str:
    """Return what a link carries as it was pasted; what cannot be unpacked stays as it is."""
    if not _PACKED.fullmatch(text.strip()):
        return text
    try:
        raw = base64.b64decode(text.strip().removeprefix(_MARK), altchars=b"-_", validate=True)
        inflate = zlib.decompressobj()
        content = inflate.decompress(raw, _MOST_BYTES)
        return text if inflate.unconsumed_tail or not inflate.eof else content.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError):
        return text


@lru_cache(maxsize=16)
def _pack(text: str) -> str:
    text = _without_legend(text)
    raw = zlib.compress(text.encode("utf-8", "replace"), 9)
    short = _MARK + base64.urlsafe_b64encode(raw).decode()
    return short if len(short) < len(text) else text


def _without_legend(text: str) -> str:
    shown, legend, explained = text.partition("\nLegend:")
    if not legend:
        return text
    shown = shown.rstrip("\n")
    _, names, adapters = explained.partition(_ADAPTERS)
    return next((each for each in (shown, shown + names + adapters) if _is_same(each, text)), text)


def _is_same(one: str, other: str) -> bool:
    try:
        return parse_topology(one) == parse_topology(other)
    except InvalidInputError:
        return False
