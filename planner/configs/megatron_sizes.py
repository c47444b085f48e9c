"""The model that Megatron's flags describe, as a config.json: its sizes are all that names it."""

from typing import Any

from planner.configs.found import MEGATRON, Found, Setup

_MOST = 1_000_000
_SIZES = ("num_layers", "hidden_size", "num_attention_heads")
_GPT2_TOKENS = 50_257
"""Of GPT2BPETokenizer, whose files say it to nobody else."""
_PADDED_TO = 128


def model_config(setup: Setup) -> dict[str, Any] | None:
    """Return the decoder that is built; None where a size, or the vocabulary, is not said.

    Source: Megatron-LM, megatron/training/arguments.py, validate_args and core_transformer_config_from_args.
    """
    for found in setup.of(MEGATRON):
        sizes = [found.whole(name) for name in _SIZES]
        tokens = _vocabulary(found)
        if all(each and 0 < each < _MOST for each in (*sizes, tokens)):
            return _config(found, sizes[1] or 1, tokens or 1)
    return None


def _vocabulary(found: Found) -> int | None:
    tokens = found.whole("vocab_size")
    tokenizer = found.get("tokenizer_type")
    is_gpt2 = found.get("merge_file") is not None or (
        tokenizer is not None and tokenizer.text == "GPT2BPETokenizer"
    )
    if tokens is None and is_gpt2:
        tokens = _GPT2_TOKENS
    to = max(1, found.whole("make_vocab_size_divisible_by") or _PADDED_TO)
    to *= max(1, found.whole("tensor_model_parallel_size") or 1)
    return None if tokens is None else -(-tokens // to) * to


def _config(found: Found, width: int, tokens: int) -> dict[str, Any]:
    heads = found.whole("num_attention_heads")
    inner = found.whole("ffn_hidden_size") or 4 * width
    positions = found.whole("max_position_embeddings") or found.whole("seq_length") or 2048
    common: dict[str, Any] = {
        "vocab_size": tokens,
        "tie_word_embeddings": not found.truth("untie_embeddings_and_output_weights"),
        "torch_dtype": "bfloat16",
    }
    experts = found.whole("num_experts")
    if not experts and not found.truth("swiglu"):
        sizes = {"n_embd": width, "n_layer": found.whole("num_layers"), "n_head": heads}
        return {
            "model_type": "gpt2",
            **common,
            **sizes,
            "n_inner": inner,
            "n_positions": positions,
        }
    common |= {
        "hidden_size": width,
        "num_hidden_layers": found.whole("num_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": found.whole("num_query_groups") or heads,
        "head_dim": found.whole("kv_channels") or width // (heads or 1),
        "intermediate_size": inner,
        "max_position_embeddings": positions,
    }
    if not experts:
        return {"model_type": "llama", **common}
    each = found.whole("moe_ffn_hidden_size") or inner
    return {
        "model_type": "mixtral",
        **common,
        "intermediate_size": each,
        "num_local_experts": experts,
        "num_experts_per_tok": found.whole("moe_router_topk") or 2,
    }
