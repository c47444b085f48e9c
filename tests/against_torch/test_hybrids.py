"""Layers that scan a sequence, and attention to picked keys: what they keep, beside what autograd saves."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import pytest
import torch
import transformers

from planner.domain.kept import Numerics
from planner.domain.model import Model
from planner.models.architectures import read_model

TOKENS = 1024
"""Sixteen chunks, so that what only the first has (a state of zeros) is little."""
COMMON: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "attention_dropout": 0.0,
}
NEXT: dict[str, Any] = COMMON | {
    "model_type": "qwen3_next",
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 20,
    "linear_value_head_dim": 28,
}
NEMOTRON: dict[str, Any] = COMMON | {
    "model_type": "nemotron_h",
    "mamba_num_heads": 6,
    "mamba_head_dim": 20,
    "ssm_state_size": 28,
    "n_groups": 2,
    "chunk_size": 64,
}
SPARSE: dict[str, Any] = COMMON | {
    "model_type": "glm_moe_dsa",
    "num_key_value_heads": 6,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 20,
    "index_topk": 64,
    "index_head_dim": 16,
    "index_n_heads": 2,
}
NUMERICS = {
    Numerics.FP32: (torch.float32, False),
    Numerics.AUTOCAST: (torch.float32, True),
    Numerics.HALF: (torch.bfloat16, False),
}


ConfigOf: TypeAlias = Callable[..., dict[str, Any]]


def next_of(*kinds: str) -> dict[str, Any]:
    layers = len(kinds)
    dense = list(range(layers))
    return NEXT | {
        "num_hidden_layers": layers,
        "layer_types": list(kinds),
        "mlp_only_layers": dense,
    }


def nemotron_of(*kinds: str) -> dict[str, Any]:
    return NEMOTRON | {"layers_block_type": list(kinds), "num_hidden_layers": len(kinds)}


def sparse_of(*kinds: str) -> dict[str, Any]:
    layers = len(kinds)
    return SPARSE | {
        "num_hidden_layers": layers,
        "first_k_dense_replace": layers,
        "indexer_types": list(kinds),
    }


def built(config: dict[str, Any], dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    fields = {key: value for key, value in config.items() if key != "model_type"}
    wanted = transformers.AutoConfig.for_model(config["model_type"], use_cache=False, **fields)
    auto: Any = transformers.AutoModelForCausalLM
    model: torch.nn.Module = auto.from_config(wanted, dtype=dtype, attn_implementation="sdpa")
    return model.train()


def saved_bytes(config: dict[str, Any], dtype: torch.dtype, *, is_autocast: bool) -> int:
    """Return the bytes that autograd saves in forward, parameters, their casts and buffers left out."""
    model = built(config, dtype)
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    shapes = {tuple(p.shape) for p in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    held: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor)
        return tensor

    casts: AbstractContextManager[object] = (
        torch.autocast("cpu", torch.bfloat16) if is_autocast else nullcontext()
    )
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), casts:
        model(torch.randint(2, 60, (1, TOKENS)))
    sizes = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in held
        if tuple(t.shape) not in shapes
    }
    return sum(size for address, size in sizes.items() if address not in known)


def kept_bytes(model: Model, numerics: Numerics) -> float:
    """Return what the planner says the last kind of block keeps for these tokens."""
    (block,) = (part for part in model.blocks if part.count > 1)
    kept = block.kept_bytes_per_token(numerics)
    if block.attention:
        mask = block.attention.mask_size("sdpa", TOKENS)
        # With a mask a CPU leaves the output in the order of heads, so that it is copied once more.
        copied = block.attention.query_size if block.attention.picks_keys else 0
        kept += 4 * block.attention.num_heads + 2 * (mask + copied)
    return kept * TOKENS


ALL, WIDE = tuple(NUMERICS), (Numerics.AUTOCAST, Numerics.HALF)
"""CUDA has no fused fp32 kernel for grouped queries, so attention is compared in 16 bit."""

CASES: list[tuple[str, Numerics, ConfigOf, str, str]] = [
    *(("delta rule", n, next_of, "linear_attention", "full_attention") for n in ALL),
    *(("state space", n, nemotron_of, "linear_attention", "mlp") for n in ALL),
    *(("gated attention", n, next_of, "full_attention", "linear_attention") for n in WIDE),
    ("squared MLP", Numerics.HALF, nemotron_of, "mlp", "full_attention"),
    ("picked keys", Numerics.HALF, sparse_of, "full", "full"),
]


@pytest.mark.parametrize(
    ("numerics", "config_of", "kind", "other"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]}-{case[1].name}" for case in CASES],
)
def test_one_more_layer_keeps_what_the_planner_says(
    numerics: Numerics, config_of: ConfigOf, kind: str, other: str
) -> None:
    dtype, is_autocast = NUMERICS[numerics]
    two, three = (config_of(other, *[kind] * layers) for layers in (2, 3))
    saved = saved_bytes(three, dtype, is_autocast=is_autocast) - saved_bytes(
        two, dtype, is_autocast=is_autocast
    )
    assert saved == pytest.approx(kept_bytes(read_model("tiny", two), numerics), rel=0.02)
