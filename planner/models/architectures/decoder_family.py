"""What the modelling code of a family of decoders fixes, and the config.json's sizes beside it."""

from collections.abc import Mapping
from typing import TypeAlias

from planner.core.frozen import frozen
from planner.models.architectures.config import Config
from planner.models.architectures.fields import ratio
from planner.models.architectures.norms import Norm

Flag: TypeAlias = bool | tuple[str, bool]
"""A fact of the family, or the config's key with the value where it is missing."""

POST_NORM = "post_feedforward_layernorm"
"""A norm of what the MLP puts out, which reads it again in backward."""

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "vocabulary": ("vocab_size",),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "groups": ("num_key_value_heads", "num_kv_heads"),
    "inner": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
}
"""The names that families give to the same size."""


@frozen
class DecoderFamily:
    """What the modelling code of a family fixes."""

    defaults: Mapping[str, int]
    """Sizes of `SPELLINGS` that transformers takes where the config has none."""
    norm: Norm = Norm.RMS
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    """Norms of a block over the hidden size."""
    has_final_norm: bool = True
    has_embedding_norm: bool = False
    is_parallel: bool = False
    """Attention and MLP read the same normalised input."""
    is_gated: bool = True
    is_fused: bool = False
    """One matrix for query, key and value, and one for gate and up."""
    fuses_gate: bool = False
    """One matrix for gate and up, whatever there is for query, key and value."""
    keeps_fused_projection: bool = False
    """Values stay a view of that one matrix's output, while queries and keys are rotated copies."""
    qkv_bias: Flag = False
    output_bias: Flag = False
    mlp_bias: Flag = False
    head_bias: Flag = False
    query_key_norm: str = ""
    """"head": over each head's channels; "all": over all heads together; "" none."""
    query_key_norm_flag: str = ""
    """The config's key that turns those norms on; "" where they are always there."""
    is_tied: bool = False
    """Where the config does not say."""
    positions_offset: int | None = None
    """Extra rows of a learned position table; None without one."""
    is_rotated: bool = True
    """Queries and keys are rotated by their position, where positions are no table."""
    activation: str = "silu"
    dropouts: tuple[str, str, str] = ("", "", "attention_dropout")
    """The config's keys for embedding, residual and attention dropout."""
    default_dropout: float = 0.0
    upcasts_softmax: bool = True
    turns_part: bool = False
    """Positions turn a share of the channels, which leaves queries, and so fused kernels' output, in the order of heads."""
    default_window: int = 0
    """Of a config without the key; 0 for no window."""
    sliding_period: int = 0
    """Every n-th layer attends to everything, the others to a window; 0 all alike."""
    has_latent_attention: bool = False
    """Queries, keys and values grow out of small latent vectors."""
    has_sinks: bool = False
    """A parameter of each head that takes a share of its scores."""


def size(family: DecoderFamily, config: Config, name: str, default: int | None = None) -> int:
    """Return a size under any of its spellings, else the family's default."""
    for key in SPELLINGS[name]:
        if config.values.get(key) is not None:
            return config.size(key)
    return config.size(SPELLINGS[name][0], family.defaults.get(name, default))


def flag(config: Config, value: Flag) -> bool:
    """Return a fact of the family, or what the config says."""
    return value if isinstance(value, bool) else config.flag(value[0], default=value[1])


def rotated_share(family: DecoderFamily, config: Config) -> float:
    """Return of what share of their channels queries and keys are rotated."""
    if family.positions_offset is not None or not family.is_rotated:
        return 0.0
    return ratio(config, "partial_rotary_factor", ratio(config, "rotary_pct", 1.0))


def dropout(family: DecoderFamily, config: Config, index: int) -> float:
    """Return the dropout of embeddings (0), residuals (1) or attention (2)."""
    key = family.dropouts[index]
    return config.probability(key, family.default_dropout) if key else 0.0
