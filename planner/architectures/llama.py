"""Llama and its like (mistral, qwen2): RMSNorm, rotary positions, grouped queries, gated MLP."""

from planner.architectures import kept
from planner.architectures.config import Config
from planner.model import Attention, Linear, Model, Part

_HIDDEN = 4096
_DEFAULT_VOCABULARY = {"llama": 32000, "mistral": 32000, "qwen2": 151936}
_DEFAULT_INTERMEDIATE = {"llama": 11008, "mistral": 14336, "qwen2": 22016}
_DEFAULT_POSITIONS = {"llama": 2048, "mistral": 131072, "qwen2": 32768}
_DEFAULT_GROUPS = {"mistral": 8, "qwen2": 32}
"""Key-value heads where the field is missing; a null, and llama, mean one per attention head."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a llama, mistral or qwen2 config.json."""
    family = config.text("model_type", "llama")
    hidden = config.size("hidden_size", _HIDDEN)
    vocabulary = config.size("vocab_size", _DEFAULT_VOCABULARY[family])
    is_tied = config.flag("tie_word_embeddings", default=False)
    embeddings = Part(name="embeddings", tables={"embed_tokens": vocabulary * hidden})
    head = Part(
        name="head",
        linears=(
            Linear(name="lm_head", in_features=hidden, out_features=vocabulary, is_tied=is_tied),
        ),
        vectors={"norm": hidden},
        kept=(kept.rms_norm("norm", hidden), kept.operand("lm_head_input", hidden)),
    )
    return Model(
        name=name,
        model_type=family,
        task="causal-lm",
        parts=(embeddings, _block(config, family, hidden), head),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=config.size("max_position_embeddings", _DEFAULT_POSITIONS[family]),
        config=config.values,
    )


def _attention(config: Config, family: str, hidden: int) -> Attention:
    heads = config.size("num_attention_heads", 32)
    is_given = "num_key_value_heads" in config.values
    default_groups = heads if is_given else _DEFAULT_GROUPS.get(family, heads)
    groups = config.size("num_key_value_heads", default_groups)
    config.divided("num_attention_heads", heads, "num_key_value_heads", groups)
    if config.values.get("head_dim") is None:
        head_dim = config.divided("hidden_size", hidden, "num_attention_heads", heads)
    else:
        head_dim = config.size("head_dim")
    return Attention(
        num_heads=heads,
        num_key_value_heads=groups,
        head_dim=head_dim,
        is_causal=True,
        eager_bytes_per_score=kept.scores(config.probability("attention_dropout"), is_upcast=True),
    )


def _linears(config: Config, family: str, attention: Attention) -> tuple[Linear, ...]:
    hidden = config.size("hidden_size", _HIDDEN)
    inner = config.size("intermediate_size", _DEFAULT_INTERMEDIATE[family])
    has_bias = config.flag("attention_bias", default=False) and family == "llama"
    has_qkv_bias = has_bias or family == "qwen2"
    has_mlp_bias = config.flag("mlp_bias", default=False) and family == "llama"
    shapes = (
        ("q_proj", hidden, attention.query_size, has_qkv_bias),
        ("k_proj", hidden, attention.key_value_size, has_qkv_bias),
        ("v_proj", hidden, attention.key_value_size, has_qkv_bias),
        ("o_proj", attention.query_size, hidden, has_bias),
        ("gate_proj", hidden, inner, has_mlp_bias),
        ("up_proj", hidden, inner, has_mlp_bias),
        ("down_proj", inner, hidden, has_mlp_bias),
    )
    return tuple(
        Linear(name=name, in_features=rows, out_features=columns, has_bias=bias)
        for name, rows, columns, bias in shapes
    )


def _block(config: Config, family: str, hidden: int) -> Part:
    attention = _attention(config, family, hidden)
    inner = config.size("intermediate_size", _DEFAULT_INTERMEDIATE[family])
    return Part(
        name="block",
        is_block=True,
        count=config.size("num_hidden_layers", 32),
        linears=_linears(config, family, attention),
        vectors={"input_layernorm": hidden, "post_attention_layernorm": hidden},
        attention=attention,
        kept=(
            kept.rms_norm("input_layernorm", hidden),
            kept.operand("qkv_proj_input", hidden, copies=3),
            kept.operand("query", attention.query_size),
            kept.operand("key_value", 2 * attention.key_value_size),
            kept.operand("attention_output", attention.query_size),
            kept.rms_norm("post_attention_layernorm", hidden),
            kept.operand("gate_up_input", hidden, copies=2),
            *kept.activation(config.text("hidden_act", "silu"), inner),
            kept.operand("activated_gate", inner),
            kept.operand("up", inner),
            kept.operand("down_proj_input", inner),
        ),
    )
