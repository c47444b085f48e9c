"""The model part of a request, a name or a config.json no deeper than models have, and its way to a Model."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator

from planner.catalog.records import model_types
from planner.core.errors import UnsupportedError
from planner.core.remembered import remembered
from planner.domain.model import Model
from planner.models import hub
from planner.models.architectures import by_sizes, read_model
from planner.models.architectures.config import Config
from planner.models.architectures.heads import classifying

_Reader = Callable[[str, Mapping[str, Any]], Model]

_LIKE_LLAMA = 0.02
"""How far the Hub's count may be from that of Llama's structure: biases and norms that a config does not name."""
_DEEPEST_CONFIG = 64
"""Levels of a config.json; real ones have three or four, and what copies them walks down by recursion."""


def _shallow(model: str | dict[str, Any]) -> str | dict[str, Any]:
    """Refuse a config that no model has."""
    level: list[Any] = [model] if isinstance(model, dict) else []
    depth = 0
    while level:
        if depth > _DEEPEST_CONFIG:
            raise ValueError(f"is nested deeper than {_DEEPEST_CONFIG} levels")
        nested = (value.values() if isinstance(value, dict) else value for value in level)
        level = [inner for values in nested for inner in values if isinstance(inner, dict | list)]
        depth += 1
    return model


ModelRequest = Annotated[str | dict[str, Any], AfterValidator(_shallow)]
"""Hub id, catalogue name or path, or the config.json itself."""


def load_model(
    wanted: str | Mapping[str, Any], *, allow_paths: bool, task: str | None = None
) -> tuple[Model, tuple[str, ...]]:
    """Return a model by name, path or config.json, and what the user should know about it.

    Args:
        wanted: catalogue name, Hub id, path, or the config.json itself.
        allow_paths: whether the caller sits at this machine: only then may files be read, and a
            model type without a reader be built by transformers.
        task: "sequence-classification" or "token-classification" for that head in place of the one that the config names.

    Raises:
        PlannerError: the model cannot be found, or not be read.
    """
    if isinstance(wanted, Mapping):
        name = wanted.get("_name_or_path")
        name = name if isinstance(name, str) and name else "config.json"
        model, is_guessed = _read(name, _for_task(wanted, task), may_build=allow_paths)
        return replace(model, is_pretrained=False), _by_sizes(model, None) if is_guessed else ()
    source = hub.find_model(wanted, allow_paths=allow_paths)
    model, is_guessed = _read(
        source.name, _for_task(source.config, task), may_build=allow_paths, read=_read_once
    )
    notes = [source.note] if source.note else []
    if is_guessed:
        notes += _by_sizes(model, source.safetensors_parameters)
    if task is None and source.safetensors_parameters not in (None, model.parameters):
        notes.append(
            f"the weights on the Hub hold {source.safetensors_parameters:,} elements,"
            f" the config gives {model.parameters:,} parameters"
        )
    if source.is_pretrained and model.stored_in:
        notes.append(
            f"the weights are stored in {model.stored_in[:40]}, which is not trained:"
            " they are planned in 16 or 32 bit, as what trains them holds them"
        )
    found = (source.is_pretrained, source.revision, source.folder)
    if found != (model.is_pretrained, model.revision, model.folder):
        model = replace(model, is_pretrained=found[0], revision=found[1], folder=found[2])
    return model, tuple(notes)


def _for_task(config: Mapping[str, Any], task: str | None) -> Mapping[str, Any]:
    return config if task is None else classifying(config, task)


_read_once = remembered(8)(read_model)
"""Of the configs that ship, which are the same objects whoever asks, so that what is known of a model stays known."""


def _read(
    name: str, config: Mapping[str, Any], *, may_build: bool, read: _Reader = read_model
) -> tuple[Model, bool]:
    """Return the Model, and whether it was read by its sizes alone."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type in model_types():
        return read(name, config), False
    try:
        if not may_build:
            return read(name, config), False
        from planner.models.meta import read_with_transformers

        return read_with_transformers(name, config), False
    except UnsupportedError:
        if not by_sizes.has_llamas_sizes(config):
            raise
        return by_sizes.read(name, Config(name, config)), True


def _by_sizes(model: Model, counted: int | None) -> tuple[str, ...]:
    """Return what to know of a model that was read by its sizes.

    Raises:
        UnsupportedError: the Hub counts other parameters, so that it is another structure.
    """
    about = f"model_type {model.model_type[:60]!r} is not known"
    if counted and abs(model.parameters / counted - 1) > _LIKE_LLAMA:
        raise UnsupportedError(
            f"{about}: with Llama's structure its sizes make {model.parameters:,} parameters,"
            f" and the Hub counts {counted:,}",
            hint="pip install 'trainplan[torch]', and transformers may know it",
            field="model",
        )
    note = (
        f"{about}: its sizes are taken to be of a model like Llama, of {model.parameters:,}"
        " parameters; compare these with the model's page"
    )
    return (note,)
