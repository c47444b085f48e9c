"""What rules say, from `data/sentences/rules.toml`: a sentence changes there, without code."""

from planner.catalog.records import read
from planner.core.units import UnitFormatter

_FORMATTER = UnitFormatter()


def said(key: str, **numbers: object) -> str:
    """Return a sentence of a rule with its numbers in, by its code and name: "ONE002.fits"."""
    code, _, name = key.partition(".")
    return _FORMATTER.vformat(read("sentences", "rules")[code][name], (), numbers)
