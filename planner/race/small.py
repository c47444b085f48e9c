"""A request for a machine of cores -> a smaller copy of its model, which cores train in the time there is."""

from collections.abc import Mapping
from typing import Any

from planner.core.errors import InvalidInputError
from planner.machine.own_gpu import CORES
from planner.request.model import load_model
from planner.request.schema import Request

_MOST_PARAMETERS = 10_000_000
"""Of a model that cores train as it is."""
_HEADS, _HEAD_SIZE, _LAYERS, _VOCABULARY, _TOKENS, _SEQUENCES = 4, 32, 4, 512, 128, 4
_WIDTH = _HEADS * _HEAD_SIZE
_SIZES: Mapping[str, int] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), _LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), _WIDTH),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff"), 4 * _WIDTH),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head"), _HEADS),
    "head_dim": _HEAD_SIZE,
    "vocab_size": _VOCABULARY,
}
"""Of a copy, by the names that a config.json has for them; those that are smaller stay."""
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def smaller(request: Request) -> tuple[Request, tuple[str, ...]]:
    """Return a request for a machine of cores with a model, a batch and sequences that they train, and what is said of it.

    A small model stays as it is.

    Raises:
        PlannerError: its machine is none of cores, or there is no such model.
    """
    machine = request.machine if isinstance(request.machine, Mapping) else {}
    if not str(machine.get("cluster", {}).get("gpu", "")).startswith(CORES):
        raise InvalidInputError(
            "--cpu plans for cores, which a machine file describes",
            hint=f"planner calibrate --measure --cpu --gpus {max(2, request.cluster.gpus_per_node)} -o cores.json,"
            " then race with --machine cores.json",
            field="--machine",
        )
    model, _ = load_model(request.model, allow_paths=True)
    if model.parameters <= _MOST_PARAMETERS:
        return request, ()
    config: dict[str, Any] = dict(model.config)
    config |= {name: min(size, config[name]) for name, size in _SIZES.items() if config.get(name)}
    config |= {name: 0 for name in _TOKEN_IDS if config.get(name)}
    config |= {"layer_types": config["layer_types"][:_LAYERS]} if config.get("layer_types") else {}
    ranks = max(1, int(machine["cluster"].get("gpus_per_node") or 1))
    recipe = request.recipe.model_copy(
        update={
            "job": "pretrain",
            "sequence_length": _TOKENS,
            "global_batch_size": _SEQUENCES * ranks,
            "global_batch_tokens": None,
            "precision": "fp32",
        }
    )
    said = f"{model.name} is too large for cores: a copy of {_LAYERS} layers, {_WIDTH} wide, is run on {_TOKENS} tokens"
    return request.model_copy(update={"model": config, "recipe": recipe}), (said,)
