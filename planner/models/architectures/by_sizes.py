"""Decoders of a type that is not known: by the sizes that their config.json says, as Llama's structure has them."""

from collections.abc import Mapping
from typing import Any

from planner.domain.model import Model
from planner.models.architectures import decoder
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import SPELLINGS, DecoderFamily, Flag
from planner.models.architectures.fields import said
from planner.models.architectures.norms import Norm

_NEEDED = ("vocabulary", "hidden", "layers", "heads", "inner")
_OTHER_STRUCTURE = (
    *("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"),
    *("kv_lora_rank", "text_config", "vision_config", "encoder_layers", "mamba_expand", "ssm_cfg"),
    *("state_size", "linear_num_value_heads", "is_encoder_decoder", "multi_query_attention"),
)
"""Fields of mixtures, latent attention, towers, encoders and scans."""
_PLAIN_WIDTH = 4
"""An MLP without a gate is so many times as wide as the hidden size."""
_QKV, _OUTPUT = (
    ("qkv_bias", "attention_bias", "use_bias", "bias"),
    ("attention_bias", "use_bias", "bias"),
)
_MLP = ("mlp_bias", "use_bias")
_ATTENDING = {"full_attention", "sliding_attention"}


def has_llamas_sizes(config: Mapping[str, Any]) -> bool:
    """Return whether a config names a causal language model, all of its sizes, and nothing that Llama has not."""
    classes = config.get("architectures")
    is_causal = (
        isinstance(classes, list) and bool(classes) and str(classes[0]).endswith("ForCausalLM")
    )
    has_sizes = all(
        any(type(config.get(key)) is int for key in SPELLINGS[name]) for name in _NEEDED
    )
    kinds = config.get("layer_types") or []
    attends = isinstance(kinds, list) and all(
        kind in _ATTENDING for kind in kinds if isinstance(kind, str)
    )
    return (
        is_causal and has_sizes and attends and not any(config.get(key) for key in _OTHER_STRUCTURE)
    )


def read(name: str, config: Config) -> Model:
    """Return the Model of such a config: norms before attention and MLP, rotary positions, biases as its flags say.

    The MLP has a gate unless it is four times as wide as the hidden size. Leaves out: norms of queries and keys,
    biases that the modelling code has whatever the config says, and whatever else its type does.
    """
    hidden = config.size(said(config, SPELLINGS["hidden"]))
    inner = config.size(said(config, SPELLINGS["inner"]))
    family = DecoderFamily(
        defaults={},
        norm=Norm.RMS if "rms_norm_eps" in config.values else Norm.LAYER,
        is_gated=inner != _PLAIN_WIDTH * hidden,
        qkv_bias=_flag(config, _QKV),
        output_bias=_flag(config, _OUTPUT),
        mlp_bias=_flag(config, _MLP),
        activation=config.text("hidden_act", "silu"),
    )
    return decoder.read_as(family, name, config)


def _flag(config: Config, keys: tuple[str, ...]) -> Flag:
    return (said(config, keys), False)
