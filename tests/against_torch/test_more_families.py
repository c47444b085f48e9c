"""Families that are a record, or a mixer of their own: what transformers builds and keeps, beside what is read."""

from typing import Any

import pytest
import torch
import transformers
from test_hybrids import NUMERICS, kept_bytes, saved_bytes

from planner.domain.kept import Numerics
from planner.models.architectures import read_model

SIZES: dict[str, Any] = {
    "vocab_size": 500,
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 208,
    "max_position_embeddings": 72,
}
MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 24,
    "mamba_d_state": 20,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 64,
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 40}
WIDE = {**SIZES, "head_dim": 24}
OLD = {"vocab_size": 500, "num_layers": 3, "attention_heads": 6, "ffn_dim": 208, "d_model": 96}
TINY: dict[str, dict[str, Any]] = {
    "glm": WIDE,
    "glm4": WIDE,
    "ministral": WIDE,
    "ministral3": WIDE,
    "ernie4_5": WIDE | {"use_bias": True},
    "ernie4_5_moe": SIZES | {"moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 40},
    "hunyuan_v1_dense": WIDE,
    "cwm": WIDE,
    "jais2": WIDE,
    "phimoe": SIZES | {"num_local_experts": 5, "lm_head_bias": True},
    "flex_olmo": SIZES | {"num_experts": 5, "num_experts_per_tok": 2},
    "dots1": WIDE | EXPERTS | {"n_routed_experts": 5, "n_shared_experts": 2},
    "exaone_moe": SIZES | EXPERTS | {"num_experts": 5},
    "youtu": SIZES | {"num_key_value_heads": 6, "q_lora_rank": 40, "kv_lora_rank": 32},
    "minicpm3": SIZES
    | {"num_key_value_heads": 6, "q_lora_rank": 40, "kv_lora_rank": 32, "v_head_dim": 20},
    "persimmon": SIZES | {"num_key_value_heads": 6},
    "codegen": {"vocab_size": 500, "n_embd": 96, "n_layer": 3, "n_head": 4, "rotary_dim": 8},
    "biogpt": SIZES | {"num_key_value_heads": None},
    "xglm": OLD,
    "mamba": {"vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 3, "state_size": 12},
    "falcon_mamba": {"vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 3, "expand": 3},
    "mamba2": {
        "vocab_size": 500,
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_heads": 8,
        "head_dim": 24,
        "state_size": 20,
        "n_groups": 2,
    },
    "bamba": SIZES | MAMBA2 | {"attn_layer_indices": [1]},
    "falcon_h1": SIZES | MAMBA2 | {"mamba_d_ssm": 192, "mamba_rms_norm": True},
    "granitemoehybrid": SIZES
    | MAMBA2
    | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "jamba": SIZES | {"num_experts": 5, "attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": SIZES | {"layer_types": ["conv", "full_attention", "conv"]},
    "lfm2_moe": SIZES
    | EXPERTS
    | {"num_experts": 5, "num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv"]},
}


def _parameters(model_type: str, sizes: dict[str, Any]) -> int:
    padding = {"pad_token_id": 0} if sizes else {}
    wanted = transformers.AutoConfig.for_model(model_type, **sizes, **padding)
    auto: Any = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(wanted)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("model_type", TINY)
def test_a_family_has_the_parameters_that_transformers_builds(model_type: str) -> None:
    sizes = TINY[model_type]
    model = read_model("tiny", {"model_type": model_type, **sizes})
    assert model.parameters == _parameters(model_type, sizes)


DEFAULTS = sorted(TINY.keys() - {"ministral", "hunyuan_v1_dense", "dots1", "lfm2_moe"})
"""Those whose own defaults transformers can build."""


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_what_a_config_leaves_out_is_as_transformers_takes_it(model_type: str) -> None:
    assert read_model("bare", {"model_type": model_type}).parameters == _parameters(model_type, {})


LAYERED: dict[str, tuple[str, str]] = {
    "lfm2": ("conv", "full_attention"),
    "granitemoehybrid": ("linear_attention", "full_attention"),
}
MORE: dict[str, dict[str, Any]] = {
    "lfm2": {},
    "granitemoehybrid": {"num_local_experts": 0, "shared_intermediate_size": 128},
}


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("model_type", LAYERED)
def test_one_more_layer_without_attention_keeps_what_is_read(
    model_type: str, numerics: Numerics
) -> None:
    own, other = LAYERED[model_type]
    base = TINY[model_type] | MORE[model_type] | {"model_type": model_type, "pad_token_id": 0}

    def of(*kinds: str) -> dict[str, Any]:
        return base | {"layer_types": list(kinds), "num_hidden_layers": len(kinds)}

    dtype, is_autocast = NUMERICS[numerics]
    two, three = (
        saved_bytes(of(*kinds), dtype, is_autocast=is_autocast)
        for kinds in ((own, own, other), (own, own, own, other))
    )
    model = read_model("tiny", of(own, own, own, other))
    assert three - two == pytest.approx(kept_bytes(model, numerics), rel=0.03)
