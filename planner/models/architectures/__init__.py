"""config.json -> Model: one reader per family, found by model_type and imported when needed."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from planner.catalog.records import model_types
from planner.core.errors import InvalidInputError, UnsupportedError, did_you_mean
from planner.domain.model import Model
from planner.models.architectures.config import Config
from planner.models.architectures.family import record_of

LARGEST_MODEL = 10**15
"""Parameters; a thousand times the largest published model."""


def read_model(name: str, config: Mapping[str, Any]) -> Model:
    """Return the Model that a config.json describes.

    Raises:
        InvalidInputError: the config has no model_type, a field that cannot be, or absurd sizes.
        UnsupportedError: no reader knows this model_type, or the model attends to an encoder.
    """
    reading = Config(name, config)
    model_type, known = config.get("model_type"), model_types()
    if not isinstance(model_type, str):
        said = "a model_type that is no text" if "model_type" in config else "no model_type"
        raise InvalidInputError(
            f"{reading.where} has {said}",
            hint=f"known model types: {', '.join(known)}",
            field="model",
        )
    if model_type not in known:
        hint = did_you_mean(model_type, known) or f"known: {', '.join(known)}"
        raise UnsupportedError(
            f"model_type {model_type[:60]!r} is not known yet", hint=hint, field="model"
        )
    if reading.flag("add_cross_attention", default=False):
        raise UnsupportedError("cross attention is not known yet", field="model")
    record = record_of(reading)
    module = import_module(f"planner.models.architectures.{record['reader']}")
    unsaid = {
        key: size for key, size in record.get("config", {}).items() if config.get(key) is None
    }
    model: Model = replace(module.read(name, Config(name, {**config, **unsaid})), config=config)
    if model.parameters > LARGEST_MODEL:
        raise InvalidInputError(
            f"{reading.where} describes a model of {model.parameters:.1e} parameters",
            hint="is one of its sizes too large?",
            field="model",
        )
    return model
