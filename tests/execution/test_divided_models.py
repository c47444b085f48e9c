"""Models beside llama and gpt2, divided over two processes: each has what sets its family apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from launched import BETA2, WEIGHT_DECAY, deep, launch_several
from reference import TOLERANCE, mean_distance, train
from torch import Tensor

from planner.generate import RunSpec
from planner.targets.families import families

pytestmark = pytest.mark.usefixtures("preloaded")

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
    "architectures": None,
}
WINDOW = {"sliding_window": 6}
DENSE: Mapping[str, Mapping[str, Any]] = {
    "arcee": {"head_dim": 8},
    "cohere": {"use_qk_norm": True},
    "cohere2": WINDOW | {"head_dim": 8},
    "exaone4": WINDOW | {"sliding_window_pattern": 2},
    "gemma": {"head_dim": 16},
    "gemma2": WINDOW | {"head_dim": 16, "query_pre_attn_scalar": 16},
    "gemma3_text": WINDOW
    | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window_pattern": 2},
    "gpt_neox": {"hidden_act": "gelu"},
    "granite": {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "attention_multiplier": 0.2},
    "helium": {"head_dim": 8},
    "mistral": WINDOW,
    "nemotron": {"head_dim": 8},
    "olmo": {},
    "olmo2": {},
    "olmo3": WINDOW,
    "phi": {"qk_layernorm": True},
    "phi3": {},
    "seed_oss": {"head_dim": 8, "residual_dropout": 0.0, "attention_dropout": 0.0},
    "smollm3": {"no_rope_layers": [1, 0, 1, 0]},
    "starcoder2": WINDOW,
}
LATENT: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
EXPERTS: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "glm4_moe": {
        "head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
    },
    "granitemoe": {
        "num_local_experts": 4,
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "attention_multiplier": 0.2,
    },
    "minimax_m2": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "moe_intermediate_size": 32},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
}
CONTEXT = {"context_parallel_size": 2}
PIPELINE = {"pipeline_parallel_size": 2}
TENSOR = {"tensor_parallel_size": 2}
SEQUENCE = TENSOR | {"sequence_parallel": True}
SHARDS = SEQUENCE | {"data_parallel_size": 2, "zero_stage": 3}
UNDIVIDED = ("deepseek_v2", "deepseek_v3", "granitemoe")
"""Mixtures whose attention transformers does not divide."""
MIXTURES = sorted({*EXPERTS} - {*UNDIVIDED})
PLAIN_NORMS = ("cohere", "gemma2", "olmo2", "phi", "phi3")
"""Kinds whose divided layers differ in more than names, without the sequence divided too."""
OWN_STAGES = ("gemma3_text", "gpt_neox", "granite", "phi", "starcoder2", *EXPERTS)
"""Kinds whose stages compute more than their layers, or experts."""


def plan(kind: str, layout: Mapping[str, Any]) -> RunSpec:
    own = {**DENSE, **EXPERTS}[kind]
    attention = "eager" if kind == "gemma2" else "sdpa"
    return deep({"model_type": kind, **SMALL, **own}, attention=attention, **layout)


def loaded(folder: Path) -> dict[str, Tensor]:
    """Return the weights under the names that transformers has for them once they are loaded."""
    auto: Any = transformers.AutoModelForCausalLM
    return {name: value.detach() for name, value in auto.from_pretrained(folder).named_parameters()}


def by_dimension(model: Any) -> torch.optim.AdamW:
    """Return AdamW as the scripts have it: what decays has two dimensions, as some of Cohere's norms."""
    apart: dict[bool, list[Tensor]] = {False: [], True: []}
    for parameter in model.parameters():
        apart[parameter.ndim > 1].append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": apart[True]},
        {"params": apart[False], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, BETA2), weight_decay=WEIGHT_DECAY)


def assert_all(folder: Path, specs: Mapping[str, RunSpec]) -> None:
    """Compare with one process; biases of keys have gradients of rounding alone: means."""
    runs = launch_several(folder, specs, "--no-dropout")
    for name, spec in specs.items():
        reference = train(spec.model_config, attention=spec.attention, step_with=by_dimension)
        weights = loaded(runs[name].folder / "model")
        assert runs[name].losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0), name
        assert weights.keys() == reference.weights.keys(), name
        assert mean_distance(weights, reference.weights) < TOLERANCE, name


def test_divided_matrices_and_sequences_train_like_one_process(tmp_path: Path) -> None:
    assert_all(tmp_path, {kind: plan(kind, SEQUENCE) for kind in DENSE})


def test_divided_matrices_alone_train_like_one_process(tmp_path: Path) -> None:
    assert_all(tmp_path, {kind: plan(kind, TENSOR) for kind in PLAIN_NORMS})


def test_divided_experts_train_like_one_process(tmp_path: Path) -> None:
    assert_all(tmp_path / "whole", {kind: plan(kind, TENSOR) for kind in MIXTURES})
    assert_all(tmp_path / "apart", {kind: plan(kind, SEQUENCE) for kind in MIXTURES})


def test_shards_of_divided_experts_train_like_one_process(tmp_path: Path) -> None:
    layout = SHARDS | {"recompute": "full"}
    assert_all(tmp_path, {kind: plan(kind, layout) for kind in ("mixtral", "qwen2_moe")})


def test_stages_train_like_one_process(tmp_path: Path) -> None:
    assert_all(tmp_path, {kind: plan(kind, PIPELINE) for kind in OWN_STAGES})


def test_sequences_of_mixtures_train_like_one_process(tmp_path: Path) -> None:
    assert_all(tmp_path, {kind: plan(kind, CONTEXT) for kind in EXPERTS})


def test_shards_of_divided_matrices_train_like_one_process(tmp_path: Path) -> None:
    assert_all(tmp_path, {kind: plan(kind, SHARDS) for kind in ("olmo2", "phi3")})


def test_every_family_is_tried() -> None:
    assert {"gpt2", "llama", "qwen2", "qwen3", *DENSE, *EXPERTS} == set(families())
