"""Multi-head latent attention: queries, keys and values grow out of small latent vectors."""

from dataclasses import replace

from planner.domain.kept import Kept, Share
from planner.domain.model import Attention, Linear
from planner.domain.recompute_modules import LATENT_UP_PROJECTION
from planner.models.architectures import kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import DecoderFamily, size
from planner.models.architectures.pieces import Piece, module


def latent_attention(family: DecoderFamily, config: Config, hidden: int) -> tuple[Attention, Piece]:
    """Return DeepSeek's attention.

    Queries come from the hidden state, or from a latent of `q_lora_rank` where that is not null;
    keys and values from a latent of `kv_lora_rank`, with one rotary key shared by all heads.
    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """
    heads = size(family, config, "heads")
    rotary = config.size("qk_rope_head_dim", 64)
    plain = config.size("qk_nope_head_dim", 128)
    value = config.size("v_head_dim", 128)
    latent = config.size("kv_lora_rank", 512)
    has_bias = config.flag("attention_bias", default=False)
    query_linears, query_kept, vectors = _queries(config, hidden, heads, plain + rotary)
    linears = (
        *query_linears,
        _linear("kv_a_proj_with_mqa", hidden, latent + rotary, has_bias=has_bias),
        _linear("kv_b_proj", latent, heads * (plain + value), splits=heads),
        replace(
            _linear("o_proj", heads * value, hidden, has_bias=has_bias, splits=heads),
            cuts_inputs=True,
        ),
    )
    attention = Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        # Scores are as wide as queries, the weighted sum as values: their mean gives the FLOPs.
        head_dim=(plain + rotary + value) // 2,
        is_causal=True,
        **kept.scores(config.probability("attention_dropout"), is_upcast=True),
    )
    read = kept.operand("attention_input", hidden, copies=2, share=Share.INPUT)
    projected = (
        *query_kept[1:],
        kept.operand("kv_b_proj_input", latent),
        kept.operand(
            "query_key",
            2 * heads * (plain + rotary),
            share=Share.SPLIT,
            does=work.rotated(2 * heads * rotary),
        ),
    )
    values = _values(heads, plain, value)
    again = module(
        LATENT_UP_PROJECTION,
        (query_linears[-1], linears[-2]),
        (*projected, kept.operand("values", heads * value, share=Share.SPLIT)),
    )
    output = kept.operand("attention_output", heads * value, share=Share.SPLIT)
    return attention, Piece(
        linears=linears,
        vectors=vectors | {"kv_a_layernorm": latent},
        kept=(
            read,
            *query_kept[:1],
            kept.rms_norm("kv_a_layernorm", latent),
            *projected,
            values,
        ),
        normalised=(read,),
        modules={
            LATENT_UP_PROJECTION: replace(again, freed=(*projected, values), checkpoint=(output,))
        },
    )


def _values(heads: int, plain: int, value: int) -> Kept:
    """Return what values and attention's output keep.

    Values stay a view of the projection that the keys grow out of too; fused kernels copy them out.
    """
    alone, shared = 2 * heads * value, heads * (2 * value + plain)
    return replace(
        kept.counted("value_and_output", 1, (4 * shared, 2 * shared, 2 * shared, 2 * alone)),
        share=Share.SPLIT,
    )


def _queries(
    config: Config, hidden: int, heads: int, head_size: int
) -> tuple[tuple[Linear, ...], tuple[Kept, ...], dict[str, int]]:
    """Return the matrices that make queries, what they keep, and their norm's parameters."""
    width = heads * head_size
    if "q_lora_rank" in config.values and config.values["q_lora_rank"] is None:
        return (_linear("q_proj", hidden, width, splits=heads),), (), {}
    rank = config.size("q_lora_rank", 1536)
    has_bias = config.flag("attention_bias", default=False)
    linears = (
        _linear("q_a_proj", hidden, rank, has_bias=has_bias),
        _linear("q_b_proj", rank, width, splits=heads),
    )
    entries = (kept.rms_norm("q_a_layernorm", rank), kept.operand("q_b_proj_input", rank))
    return linears, entries, {"q_a_layernorm": rank}


def sparse_latent_attention(
    family: DecoderFamily, config: Config, hidden: int
) -> tuple[Attention, Piece]:
    """Return DeepSeek-V3.2's attention: latent, with an indexer that picks the keys.

    The indexer runs without gradients, so it keeps nothing; a mask hides what it did not pick.
    Source: DeepSeek-V3.2-Exp (2025), section 2.1; transformers 5.23, DeepseekV32Indexer.
    Leaves out: the indexer's own scores; keys beyond `index_topk` still count as FLOPs, since PyTorch's
    attention computes them too.
    """
    attention, piece = reused_keys_attention(family, config, hidden)
    heads, channels = config.size("index_n_heads", 64), config.size("index_head_dim", 128)
    indexer = (
        _linear("index_query", config.size("q_lora_rank", 1536), heads * channels),
        _linear("index_key", hidden, channels),
        _linear("index_weights", hidden, heads),
    )
    return attention, replace(
        piece,
        linears=(*piece.linears, *indexer),
        vectors={**piece.vectors, "index_key_norm": 2 * channels},
    )


def reused_keys_attention(
    family: DecoderFamily, config: Config, hidden: int
) -> tuple[Attention, Piece]:
    """Return latent attention to the keys that an earlier layer's indexer picked."""
    attention, piece = latent_attention(family, config, hidden)
    return replace(attention, picks_keys=True), piece


def _linear(
    name: str, rows: int, columns: int, *, has_bias: bool = False, splits: int = 1
) -> Linear:
    return Linear(
        name=name,
        in_features=rows,
        out_features=columns,
        has_bias=has_bias,
        most_splits=splits,
    )
