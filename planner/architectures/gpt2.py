"""GPT-2: learned positions, pre-norm blocks with a fused qkv projection, tied head."""

from planner.architectures import kept
from planner.architectures.config import Config
from planner.model import Attention, Linear, Model, Part


def read(name: str, config: Config) -> Model:
    """Return the Model of a gpt2 config.json, whose sizes may go by their common names too."""
    hidden = config.size("n_embd", config.size("hidden_size", 768))
    vocabulary = config.size("vocab_size", 50257)
    positions = config.size("n_positions", config.size("max_position_embeddings", 1024))
    is_tied = config.flag("tie_word_embeddings", default=True)
    embeddings = Part(
        name="embeddings",
        tables={"wte": vocabulary * hidden, "wpe": positions * hidden},
        kept=kept.dropout("dropout_mask", hidden, config.probability("embd_pdrop", 0.1)),
    )
    head = Part(
        name="head",
        linears=(
            Linear(name="lm_head", in_features=hidden, out_features=vocabulary, is_tied=is_tied),
        ),
        vectors={"ln_f": 2 * hidden},
        kept=(kept.layer_norm("ln_f", hidden), kept.operand("lm_head_input", hidden)),
    )
    return Model(
        name=name,
        model_type="gpt2",
        task="causal-lm",
        parts=(embeddings, _block(config, hidden), head),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=positions,
        has_learned_positions=True,
        config=config.values,
    )


def _block(config: Config, hidden: int) -> Part:
    heads = config.size("n_head", config.size("num_attention_heads", 12))
    inner = config.size("n_inner", 4 * hidden)
    resid_dropout = config.probability("resid_pdrop", 0.1)
    attention = Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=config.divided("n_embd", hidden, "n_head", heads),
        is_causal=True,
        eager_bytes_per_score=kept.scores(config.probability("attn_pdrop", 0.1), is_upcast=False),
    )
    return Part(
        name="block",
        is_block=True,
        count=config.size("n_layer", config.size("num_hidden_layers", 12)),
        linears=(
            Linear(name="c_attn", in_features=hidden, out_features=3 * hidden, has_bias=True),
            Linear(name="attn_c_proj", in_features=hidden, out_features=hidden, has_bias=True),
            Linear(name="c_fc", in_features=hidden, out_features=inner, has_bias=True),
            Linear(name="mlp_c_proj", in_features=inner, out_features=hidden, has_bias=True),
        ),
        vectors={"ln_1": 2 * hidden, "ln_2": 2 * hidden},
        attention=attention,
        kept=(
            kept.layer_norm("ln_1", hidden),
            kept.operand("c_attn_input", hidden),
            kept.operand("query_key_value", 3 * hidden),
            kept.operand("attention_output", hidden),
            *kept.dropout("attention_dropout_mask", hidden, resid_dropout),
            kept.layer_norm("ln_2", hidden),
            kept.operand("c_fc_input", hidden),
            *kept.activation(config.text("activation_function", "gelu_new"), inner),
            kept.operand("mlp_c_proj_input", inner),
            *kept.dropout("mlp_dropout_mask", hidden, resid_dropout),
        ),
    )
