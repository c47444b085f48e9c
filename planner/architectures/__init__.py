"""config.json -> Model: one reader per family, in one table."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from planner.architectures import bert, gpt2, llama
from planner.architectures.config import Config
from planner.errors import InvalidInputError, UnsupportedError, did_you_mean
from planner.model import Model

Reader: TypeAlias = Callable[[str, Config], Model]

READERS: Mapping[str, Reader] = {
    "bert": bert.read,
    "gpt2": gpt2.read,
    "llama": llama.read,
    "mistral": llama.read,
    "qwen2": llama.read,
}


def read_model(name: str, config: Mapping[str, Any]) -> Model:
    """Return the Model that a config.json describes.

    Raises:
        InvalidInputError: the config has no model_type, or a field that cannot be.
        UnsupportedError: no reader knows this model_type.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise InvalidInputError(
            f"config.json of {name!r} has no model_type",
            hint=f"known model types: {', '.join(sorted(READERS))}",
            field="model",
        )
    reader = READERS.get(model_type)
    if reader is None:
        hint = did_you_mean(model_type, READERS) or f"known: {', '.join(sorted(READERS))}"
        raise UnsupportedError(
            f"model_type {model_type[:60]!r} is not known yet", hint=hint, field="model"
        )
    return reader(name, Config(name, config))
