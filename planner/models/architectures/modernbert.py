"""ModernBERT: rotary positions, pre-norm blocks with a gated MLP, most of which look nearby only."""

from collections import Counter
from dataclasses import replace

from planner.core.errors import InvalidInputError
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import MASKED_LM, OF_TEXTS, task_of

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_MASKED_SHARE = 0.15
"""Of the tokens, those that the written scripts hide and ask for; Devlin et al., arXiv:1810.04805, section 3.1."""
_TASKS = {**MASKED_LM, **OF_TEXTS}


def read(name: str, config: Config) -> Model:
    """Return the Model of a modernbert config.json, with the head that `architectures` names.

    `ModernBertModel` has no head; where no class is named it is read as `ModernBertForMaskedLM`. With `sparse_prediction` its head sees the masked tokens alone
    (transformers 5.23 modeling_modernbert.py).

    Raises:
        InvalidInputError: layer_types is no list of known kinds, or there are too many layers.
        UnsupportedError: the class has another head.
    """
    hidden = config.size("hidden_size", 768)
    vocabulary = config.size("vocab_size", 50368)
    norm = _norm_parameters(config, hidden)
    task = task_of(config, _TASKS, "masked-lm")
    embeddings = Part(
        name="embeddings",
        tables={"tok_embeddings": vocabulary * hidden},
        vectors={"norm": norm},
        kept=(
            kept.layer_norm("norm", hidden),
            *kept.dropout("dropout_mask", hidden, config.probability("embedding_dropout")),
        ),
    )
    final = replace(encoders.norm_part("final_norm", hidden), vectors={"final_norm": norm})
    return Model(
        name=name,
        model_type="modernbert",
        task=task,
        parts=(
            embeddings,
            *_blocks(config, hidden, norm),
            final,
            *_head(config, task, hidden, vocabulary),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=config.size("max_position_embeddings", 8192),
        config=config.values,
    )


def _norm_parameters(config: Config, hidden: int) -> int:
    return hidden * (2 if config.flag("norm_bias", default=False) else 1)


def _kinds(config: Config) -> list[str]:
    """Return each layer's kind: listed, or every n-th global as in configs on the Hub."""
    layers = config.size("num_hidden_layers", 22)
    kinds = config.values.get("layer_types")
    if kinds is None:
        interval = config.size("global_attn_every_n_layers", 3)
        return [_LOCAL if index % interval else _GLOBAL for index in range(layers)]
    if (
        not isinstance(kinds, list)
        or len(kinds) != layers
        or any(kind not in {_GLOBAL, _LOCAL} for kind in kinds if isinstance(kind, str))
        or not all(isinstance(kind, str) for kind in kinds)
    ):
        raise InvalidInputError(
            f"{config.where}: layer_types must list {_GLOBAL} or {_LOCAL} for each of num_hidden_layers",
            field="model",
        )
    return kinds


def _blocks(config: Config, hidden: int, norm: int) -> tuple[Part, ...]:
    """Build one part per kind of layer; the first layer has no norm before its attention."""
    first, *others = _kinds(config)
    block = _block(config, hidden, norm)
    without_norm = replace(
        block,
        name="first_block",
        vectors={"mlp_norm": norm},
        kept=tuple(entry for entry in block.kept if entry.name != "attn_norm"),
    )
    counts = Counter(others)
    kinds = ((without_norm, first, 1), *((block, kind, counts[kind]) for kind in counts))
    return tuple(
        replace(
            part,
            name=part.name if part is without_norm else f"{kind}_block",
            count=count,
            attention=_attention(config, hidden, is_local=kind == _LOCAL),
        )
        for part, kind, count in kinds
    )


def _attention(config: Config, hidden: int, *, is_local: bool) -> Attention:
    heads = config.size("num_attention_heads", 12)
    dropout = config.probability("attention_dropout")
    return Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=config.divided("hidden_size", hidden, "num_attention_heads", heads),
        is_causal=False,
        **kept.scores(dropout, is_upcast=True),
        window=config.size("local_attention", 128) if is_local else None,
    )


def _block(config: Config, hidden: int, norm: int) -> Part:
    inner = config.size("intermediate_size", 1152)
    has_bias = config.flag("attention_bias", default=False)
    has_mlp_bias = config.flag("mlp_bias", default=False)
    mlp_dropout = config.probability("mlp_dropout")
    shapes = (
        ("Wqkv", hidden, 3 * hidden, has_bias),
        ("attn_Wo", hidden, hidden, has_bias),
        ("Wi", hidden, 2 * inner, has_mlp_bias),
        ("mlp_Wo", inner, hidden, has_mlp_bias),
    )
    return Part(
        name="block",
        is_block=True,
        linears=tuple(
            Linear(name=name, in_features=rows, out_features=columns, has_bias=bias)
            for name, rows, columns, bias in shapes
        ),
        vectors={"attn_norm": norm, "mlp_norm": norm},
        kept=(
            kept.layer_norm("attn_norm", hidden),
            kept.operand("Wqkv_input", hidden),
            # The value is a view, which keeps all of the fused projection alive.
            kept.operand("query_key_value", 3 * hidden, does=work.NONE),
            kept.operand("rotated_query_key", 2 * hidden, does=work.rotated(2 * hidden)),
            kept.operand("attention_output", hidden, does=work.NONE),
            *kept.dropout("out_drop_mask", hidden, config.probability("attention_dropout")),
            kept.layer_norm("mlp_norm", hidden),
            kept.operand("Wi_input", hidden),
            *kept.activation(config.text("hidden_activation", "gelu"), inner),
            kept.operand("activated_input", inner, does=work.product(inner)),
            kept.operand("gate", inner, does=work.NONE),
            *kept.dropout("mlp_dropout_mask", inner, mlp_dropout),
            kept.operand("mlp_Wo_input", inner, does=work.NONE),
        ),
    )


def _head(config: Config, task: str, hidden: int, vocabulary: int) -> tuple[Part, ...]:
    if task == "none":
        return ()
    if task == "masked-lm":
        return (_masked_lm_head(config, hidden, vocabulary),)
    if task in {"token-classification", "question-answering"}:
        return (_token_head(config, hidden),)
    has_bias = config.flag("classifier_bias", default=False)
    logits = labels(config) if task == "sequence-classification" else 1
    pooled, head = encoders.sequence_head(hidden, logits, has_dense_bias=has_bias)
    return pooled, replace(head, vectors={"norm": _norm_parameters(config, hidden)})


def _token_head(config: Config, hidden: int) -> Part:
    """Build the head of few logits a token: the dense layer and norm of masked-language models before them."""
    masked = _masked_lm_head(config, hidden, labels(config))
    transform, decoder = masked.linears
    few = replace(decoder, name="classifier", has_bias=True, is_tied=False)
    dropped = kept.dropout("drop_mask", hidden, config.probability("classifier_dropout"))
    return replace(
        masked, share_of_tokens=1.0, linears=(transform, few), kept=(*masked.kept, *dropped)
    )


def _masked_lm_head(config: Config, hidden: int, vocabulary: int) -> Part:
    has_bias = config.flag("classifier_bias", default=False)
    head = encoders.masked_lm_head(
        hidden,
        hidden,
        vocabulary,
        config.text("classifier_activation", "gelu"),
        is_tied=config.flag("tie_word_embeddings", default=True),
        second_bias={},
    )
    transform, decoder = head.linears
    is_sparse = config.flag("sparse_prediction", default=False)
    return replace(
        head,
        share_of_tokens=_MASKED_SHARE if is_sparse else 1.0,
        linears=(
            replace(transform, has_bias=has_bias),
            replace(decoder, has_bias=config.flag("decoder_bias", default=True)),
        ),
        vectors={"norm": _norm_parameters(config, hidden)},
    )
