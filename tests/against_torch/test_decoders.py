"""What the planner says a decoder's block keeps, against what autograd really saves."""

from typing import Any

import pytest
import torch
import transformers

from planner.domain.kept import Numerics
from planner.models.architectures import read_model

BATCH, TOKENS, HIDDEN, HEADS, INNER = 2, 32, 64, 4, 160

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), HIDDEN),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_key_value_heads"), HEADS),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner"), INNER),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop", "dropout"), 0.0),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "residual_dropout"), 0.0),
    "head_dim": HIDDEN // HEADS,
    "sliding_window": None,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
DTYPES = {Numerics.FP32: torch.float32, Numerics.HALF: torch.bfloat16}

BOTH = (
    *("arcee", "cohere", "gemma", "gpt2", "granite", "llama", "mistral", "olmo", "olmo2", "opt"),
    *("qwen2", "qwen3", "seed_oss", "smollm3", "starcoder2"),
    "exaone4",
)
CASES = [
    *((model_type, implementation) for model_type in BOTH for implementation in ("sdpa", "eager")),
    ("gpt_neox", "sdpa"),
    *((model_type, "eager") for model_type in ("bloom", "gpt_bigcode", "mpt", "phi", "phi3")),
]
"""Families with modelling code that runs on a CPU in that implementation as it does on CUDA."""


def configuration(model_type: str, layers: int, implementation: str) -> Any:
    """Return a tiny config of the family, without dropout."""
    defaults = transformers.AutoConfig.for_model(model_type).to_dict()
    sizes = {name: value for name, value in SIZES.items() if name in defaults}
    sizes |= {name: layers for name in LAYERS if name in defaults}
    if "layer_types" in defaults:
        sizes["layer_types"] = ["full_attention"] * layers
    return transformers.AutoConfig.for_model(
        model_type, attn_implementation=implementation, use_cache=False, **sizes
    )


def saved_bytes(config: Any, dtype: torch.dtype) -> int:
    """Return the bytes that autograd saves in forward, parameters and buffers left out."""
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_config(config, dtype=dtype).train()
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    # Holding the tensors keeps their addresses from being used again.
    held: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(torch.randint(2, 100, (BATCH, TOKENS)))
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    return sum(size for address, size in sizes.items() if address not in known)


@pytest.mark.parametrize("numerics", DTYPES)
@pytest.mark.parametrize(("model_type", "implementation"), CASES)
def test_one_more_block_keeps_what_the_planner_says(
    model_type: str, implementation: str, numerics: Numerics
) -> None:
    two, three = (configuration(model_type, layers, implementation) for layers in (2, 3))
    saved = saved_bytes(three, DTYPES[numerics]) - saved_bytes(two, DTYPES[numerics])
    block = read_model("tiny", {**three.to_dict(), "model_type": model_type}).blocks[0]
    attention = block.attention
    assert attention
    kept = block.kept_bytes_per_token(numerics)
    element_bytes = 4 if numerics is Numerics.FP32 else 2
    if implementation == "sdpa":
        kept += 4 * attention.num_heads + element_bytes * attention.retained_size
    else:
        expanded = 2 * (attention.query_size - attention.key_value_size)
        scores = attention.num_heads * TOKENS
        kept += attention.eager_bytes_per_score[numerics] * scores + element_bytes * expanded
    # A CPU keeps the statistics of 16-bit layer norms in 16 bit: half a percent at this size.
    assert saved == pytest.approx(kept * BATCH * TOKENS, rel=0.01)
