"""Every price has its date and its source, or is left out."""

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import records

INSTANCES = Path(__file__).parents[2] / "data/instances"


def _raw(name: str) -> dict[str, Any]:
    return tomllib.loads((INSTANCES / f"{name.lower()}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", records.instance_names())
def test_a_price_has_the_day_that_its_source_read_it(name: str) -> None:
    raw = _raw(name)
    assert ("usd_per_hour" in raw) == ("price_date" in raw) == ("price_source" in raw)
    if "usd_per_hour" in raw:
        assert date.fromisoformat(raw["price_date"]) >= date(2025, 1, 1)
        assert raw["price_date"] in raw["price_source"]
        assert "without a date" not in raw["price_source"]


def test_most_instances_have_a_price() -> None:
    assert sum("usd_per_hour" in _raw(name) for name in records.instance_names()) >= 50
