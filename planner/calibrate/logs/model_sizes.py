"""What a log says of its model's sizes -> whether the layout's model has them."""

from collections.abc import Mapping
from typing import Any

from planner.core.errors import PlannerError
from planner.domain.model import Model
from planner.request.model import load_model

_APART = 0.02
"""Of all parameters."""
_OF_CONFIG = ("intermediate_size", "ffn_dim", "n_inner")


def other_model(said: Mapping[str, int], wanted: Any) -> tuple[str, str] | None:
    """Return what a log says of a size, and what the layout's model has, where these differ.

    Leaves out: vocabularies, which are padded, and which count in the parameters up to twice or not at all;
    models that are not decoders alone.

    Args:
        said: num_layers, hidden_size, ffn_hidden_size, parameters; as many as the log says.
        wanted: the layout's model, as a request has it.
    """
    try:
        model, _ = load_model(wanted, allow_paths=True)
    except PlannerError:
        return None
    if not model.is_decoder:
        return None
    for name, size in _sizes(model).items():
        if said.get(name, size) != size:
            return f"{name} {said[name]}", f"{model.name} with {size}"
    parameters, table = said.get("parameters"), model.vocab_size * model.hidden_size
    least, most = model.parameters - 2 * table, model.parameters + table
    if parameters is None or least * (1 - _APART) <= parameters <= most * (1 + _APART):
        return None
    return f"{parameters:,} parameters", f"{model.name} with {model.parameters:,}"


def _sizes(model: Model) -> dict[str, int]:
    """Return the sizes that Megatron's arguments name too; with experts its width is of another layer."""
    sizes = {"num_layers": model.num_blocks, "hidden_size": model.hidden_size}
    widths = (model.config.get(name) for name in _OF_CONFIG)
    width = next((each for each in widths if isinstance(each, int)), None)
    return sizes if width is None or model.has_experts else {**sizes, "ffn_hidden_size": width}
