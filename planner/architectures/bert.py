"""BERT: learned positions and token types, post-norm blocks, tied masked-LM head or pooler."""

from planner.architectures import kept
from planner.architectures.config import Config
from planner.model import Attention, Linear, Model, Part


def read(name: str, config: Config) -> Model:
    """Return the Model of a bert config.json, with the head that `architectures` names.

    `BertModel` keeps its pooler and has no head; anything else is read as `BertForMaskedLM`.
    """
    hidden = config.size("hidden_size", 768)
    vocabulary = config.size("vocab_size", 30522)
    positions = config.size("max_position_embeddings", 512)
    hidden_dropout = config.probability("hidden_dropout_prob", 0.1)
    embeddings = Part(
        name="embeddings",
        tables={
            "word_embeddings": vocabulary * hidden,
            "position_embeddings": positions * hidden,
            "token_type_embeddings": config.size("type_vocab_size", 2) * hidden,
        },
        vectors={"LayerNorm": 2 * hidden},
        kept=(
            kept.layer_norm("LayerNorm", hidden),
            *kept.dropout("dropout_mask", hidden, hidden_dropout),
        ),
    )
    is_bare = config.head_class() == "BertModel"
    head = _pooler(hidden) if is_bare else _masked_lm_head(config, hidden, vocabulary)
    return Model(
        name=name,
        model_type="bert",
        task="none" if is_bare else "masked-lm",
        parts=(embeddings, _block(config, hidden, hidden_dropout), head),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=positions,
        has_learned_positions=True,
        config=config.values,
    )


def _pooler(hidden: int) -> Part:
    """Build the pooler; it sees one token per sequence, so it keeps next to nothing."""
    dense = Linear(name="pooler", in_features=hidden, out_features=hidden, has_bias=True)
    return Part(name="head", linears=(dense,))


def _masked_lm_head(config: Config, hidden: int, vocabulary: int) -> Part:
    is_tied = config.flag("tie_word_embeddings", default=True)
    # The head's own bias is tied to the decoder's together with the weight.
    second_bias = {} if is_tied else {"bias": vocabulary}
    return Part(
        name="head",
        linears=(
            Linear(name="transform", in_features=hidden, out_features=hidden, has_bias=True),
            Linear(
                name="decoder",
                in_features=hidden,
                out_features=vocabulary,
                has_bias=True,
                is_tied=is_tied,
            ),
        ),
        vectors={"LayerNorm": 2 * hidden} | second_bias,
        kept=(
            kept.operand("transform_input", hidden),
            *kept.activation(config.text("hidden_act", "gelu"), hidden),
            kept.layer_norm("LayerNorm", hidden),
            kept.operand("decoder_input", hidden),
        ),
    )


def _block(config: Config, hidden: int, hidden_dropout: float) -> Part:
    heads = config.size("num_attention_heads", 12)
    inner = config.size("intermediate_size", 3072)
    attention_dropout = config.probability("attention_probs_dropout_prob", 0.1)
    attention = Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=config.divided("hidden_size", hidden, "num_attention_heads", heads),
        is_causal=False,
        eager_bytes_per_score=kept.scores(attention_dropout, is_upcast=False),
    )
    shapes = (
        ("query", hidden, hidden),
        ("key", hidden, hidden),
        ("value", hidden, hidden),
        ("attention_output", hidden, hidden),
        ("intermediate", hidden, inner),
        ("output", inner, hidden),
    )
    return Part(
        name="block",
        is_block=True,
        count=config.size("num_hidden_layers", 12),
        linears=tuple(
            Linear(name=name, in_features=rows, out_features=columns, has_bias=True)
            for name, rows, columns in shapes
        ),
        vectors={"attention_LayerNorm": 2 * hidden, "output_LayerNorm": 2 * hidden},
        attention=attention,
        kept=(
            kept.operand("query_key_value_input", hidden, copies=3),
            kept.operand("query_key_value", 3 * hidden),
            kept.operand("attention_output", hidden),
            *kept.dropout("attention_dropout_mask", hidden, hidden_dropout),
            kept.layer_norm("attention_LayerNorm", hidden),
            kept.operand("intermediate_input", hidden),
            *kept.activation(config.text("hidden_act", "gelu"), inner),
            kept.operand("output_input", inner),
            *kept.dropout("output_dropout_mask", hidden, hidden_dropout),
            kept.layer_norm("output_LayerNorm", hidden),
        ),
    )
