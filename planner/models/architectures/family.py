"""`data/families`: what the modelling code of a model_type fixes, and which module reads its config.json."""

from typing import Any, TypeVar

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.models.architectures.config import Config

Kind = TypeVar("Kind")

_ABOUT = {"reader", "classes", "tasks", "source", "experts", "config", "mixing"}
"""Keys that are of no reader alone."""


def record_of(config: Config) -> dict[str, Any]:
    """Return the record of a config's model_type."""
    return read("families", config.text("model_type", ""))


def family_of(kind: type[Kind], config: Config) -> Kind:
    """Return what is fixed of a config's model_type, as its reader has it."""
    record = record_of(config)
    fixed = {key: record[key] for key in record if key not in _ABOUT}
    return build(kind, fixed, f"families/{config.values['model_type']}")
