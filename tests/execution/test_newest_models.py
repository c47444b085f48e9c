"""Models that scan, and those with an indexer: PyTorch's own path runs on two processes as on one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trainer_runs
from launched import ACCUMULATED, launch, launch_several
from reference import train
from run_specs import refusal, with_layout

pytestmark = pytest.mark.usefixtures("preloaded")

_COMMON: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 16,
    "moe_intermediate_size": 16,
    "num_experts_per_tok": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
MODELS: Mapping[str, dict[str, Any]] = {
    "qwen3_next": _COMMON
    | {
        "architectures": ["Qwen3NextForCausalLM"],
        "num_experts": 4,
        "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
    "nemotron_h": _COMMON
    | {
        "architectures": ["NemotronHForCausalLM"],
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "num_hidden_layers": 4,
        "n_routed_experts": 4,
        "moe_shared_expert_intermediate_size": 16,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 2,
        "chunk_size": 8,
    },
    "minimax_m2": _COMMON | {"architectures": ["MiniMaxM2ForCausalLM"], "num_local_experts": 4},
}
PICKING: dict[str, Any] = _COMMON | {
    "model_type": "glm_moe_dsa",
    "architectures": ["GlmMoeDsaForCausalLM"],
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "index_topk": 8,
    "index_head_dim": 16,
    "index_n_heads": 2,
}


def test_replicas_and_shards_of_them_step_like_one(tmp_path: Path) -> None:
    specs = {
        f"{name}-{stage}": with_layout(
            ACCUMULATED, model_config=config | {"model_type": name}, zero_stage=stage
        )
        for name, config in MODELS.items()
        for stage in (0, 3)
    }
    for name, run in launch_several(tmp_path, specs, "--no-dropout").items():
        reference = train(specs[name].model_config)
        assert run.losses == pytest.approx(reference.losses, abs=1e-5)


def test_what_an_indexer_does_not_learn_stops_replicas_alone(tmp_path: Path) -> None:
    """Its parameters have no gradients: DDP waits for them, FSDP and Trainer's DDP do not."""
    replicas = with_layout(ACCUMULATED, model_config=PICKING)
    shards = with_layout(replicas, zero_stage=3)
    assert "indexer" in refusal(replicas, "torchrun")
    assert not refusal(shards, "torchrun")
    assert not refusal(replicas, "trainer")
    alone = train(PICKING).losses
    run = launch(tmp_path / "shards", shards, "--no-dropout").finish()
    assert run.losses == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_trainers_replicas_look_for_what_an_indexer_does_not_learn(
    tmp_path: Path, recompute: str
) -> None:
    replicas = with_layout(ACCUMULATED, model_config=PICKING, recompute=recompute)
    run = trainer_runs.train(tmp_path, replicas, *trainer_runs.tokens(tmp_path)).finish()
    alone = train(PICKING, rate=trainer_runs.rate)
    assert run.losses == pytest.approx(alone.losses, abs=1e-5)
