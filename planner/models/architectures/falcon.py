"""Falcon: one family with three attention shapes, told apart by flags."""

from dataclasses import replace

from planner.domain.model import Model
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import read_as
from planner.models.architectures.decoder_family import DecoderFamily, size
from planner.models.architectures.family import family_of


def read(name: str, config: Config) -> Model:
    """Return the Model of a falcon config.json.

    The new decoder has `num_kv_heads` groups; the old one has a single key-value head where
    `multi_query` is true, whatever `num_kv_heads` says. Blocks have one norm where attention and
    MLP run in parallel and share it, two otherwise.
    """
    family = family_of(DecoderFamily, config)
    heads = size(family, config, "heads")
    is_new = config.flag("new_decoder_architecture", default=False)
    if is_new:
        groups = config.size("num_kv_heads", heads)
    else:
        groups = 1 if config.flag("multi_query", default=True) else heads
    is_parallel = config.flag("parallel_attn", default=True)
    shares_norm = is_parallel and config.size("num_ln_in_parallel_attn", 2 if is_new else 1) == 1
    norms = ("input_layernorm",) if shares_norm else ("input_layernorm", "mlp_layernorm")
    values = {**config.values, "num_key_value_heads": groups, "multi_query": True}
    family = replace(family, norms=norms, is_parallel=is_parallel)
    model = read_as(family, name, Config(name, values))
    return replace(model, config=config.values)
