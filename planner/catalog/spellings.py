"""What people type for a value -> the value: `data/request/spellings.toml`."""

import re
from collections.abc import Collection

from planner.catalog.records import read


def plain(text: str) -> str:
    """Return a text as spellings are compared: in lower case, spaces and underscores as dashes."""
    return re.sub(r"[\s_]+", "-", text.strip().lower())


def spelled(path: str, text: str, known: Collection[str] = ()) -> str:
    """Return the value that a text means in a field; one that means none is returned as it came.

    Args:
        path: of the field, such as recipe.precision.
        text: as it was typed.
        known: the values that the field may have; without any, a text in any case is one.
    """
    meant = {plain(name): name for name in known} | read("request", "spellings").get(path, {})
    return str(meant.get(plain(text), text if known else plain(text)))


def unplanned(path: str, text: str) -> str:
    """Return what is said of a field's value that tools have and no plan is made for; "" of any other."""
    known = read("request", "unplanned").get(path, ())
    return next((str(each["says"]) for each in known if plain(text) in each["names"]), "")
