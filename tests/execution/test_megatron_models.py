"""What Megatron-LM's arguments build is the model: the same logits as transformers', of the same weights."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from launched import TINY
from megatron_cpu import gpt_model, on_cpu, options, parallel_layer
from megatron_weights import megatron_weights
from run_specs import with_layout
from torch import Tensor, distributed
from transformers import AutoConfig, AutoModelForCausalLM

from planner.generate import generate
from planner.models.architectures import read_model
from planner.targets.megatron_models import megatron_models, unsaid

with warnings.catch_warnings():  # it misses Transformer Engine and Apex, which need a GPU
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state

pytestmark = pytest.mark.filterwarnings("ignore")  # megatron-core's, of its own defaults

GPT = {"vocab_size": 96, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}
NARROW = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}
NEOX = NARROW | {"intermediate_size": 64}
SMALL = NEOX | {"num_key_value_heads": 2}
WINDOW = {"sliding_window": 5}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = EXPERTS | {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "first_k_dense_replace": 1,
}


def yarn(**more: Any) -> dict[str, Any]:
    said = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, **more}
    return {"rope_scaling": said}


DEEP_YARN = {
    "max_position_embeddings": 163840,
    **yarn(factor=40.0, original_max_position_embeddings=4096, mscale=0.7, mscale_all_dim=0.7),
}
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    "gpt_bigcode": GPT | {"multi_query": True},
    "gpt_neox": NEOX,
    "gpt_neox, in turn": NEOX | {"use_parallel_residual": False},
    "falcon": NARROW | {"multi_query": True, "tie_word_embeddings": True},
    "falcon, two norms": NARROW | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "starcoder2": SMALL | WINDOW,
    "stablelm": SMALL,
    "nemotron": SMALL,
    "llama": SMALL,
    "llama, tied": SMALL | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    "llama, 3": SMALL | {"max_position_embeddings": 131072, "rope_scaling": LLAMA_3},
    "llama, linear": SMALL | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama, yarn": SMALL | yarn(),
    "arcee": SMALL,
    "mistral": SMALL | WINDOW | {"head_dim": 16},
    "phi3": SMALL | {"partial_rotary_factor": 0.5},
    "qwen2": SMALL | WINDOW | {"use_sliding_window": True, "max_window_layers": 2},
    "qwen3": SMALL | {"head_dim": 16},
    "seed_oss": SMALL | {"head_dim": 16},
    "smollm3": SMALL,
    "mixtral": SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": SMALL
    | EXPERTS
    | {"num_experts": 4, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2},
    "qwen3_moe": SMALL
    | EXPERTS
    | {"num_experts": 4, "norm_topk_prob": True, "mlp_only_layers": [1]},
    "gpt_oss": SMALL
    | WINDOW
    | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}
    | yarn(beta_fast=16.0, beta_slow=1.0, truncate=False),
    "glm4_moe": SMALL
    | EXPERTS
    | {
        "head_dim": 8,
        "n_routed_experts": 4,
        "attention_bias": True,
        "use_qk_norm": True,
        "routed_scaling_factor": 2.5,
    },
    "deepseek_v2": SMALL | LATENT | {"topk_method": "greedy", "routed_scaling_factor": 2.0},
    "deepseek_v2, yarn": SMALL | LATENT | DEEP_YARN,
    "deepseek_v3": SMALL | LATENT | {"num_experts_per_tok": 4, "n_group": 4, "topk_group": 2},
    "deepseek_v3, yarn": SMALL | LATENT | DEEP_YARN | {"n_group": 1, "topk_group": 1},
}
TOKENS = torch.arange(2 * 16).reshape(2, 16) * 7 % 95


def config_of(name: str) -> dict[str, Any]:
    return {"model_type": name.partition(",")[0], **MODELS[name]}


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    with on_cpu({}):
        parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    distributed.destroy_process_group()


def theirs(config: dict[str, Any]) -> Any:
    """Return transformers' model, with weights large enough that all of them are seen in the logits."""
    torch.manual_seed(0)
    auto: Any = AutoModelForCausalLM
    model = auto.from_config(AutoConfig.for_model(**config), attn_implementation="eager").eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight + 0.2 * torch.randn_like(weight))
        for name, bias in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                bias.copy_(0.2 * torch.randn_like(bias))
    return model


def logits(config: dict[str, Any], model: Any, without: tuple[str, ...] = ()) -> Tensor:
    """Return Megatron's, of the plan's arguments, but for some of them."""
    spec = with_layout(TINY, model_config=config)
    given = {name: text for name, text in options(spec).items() if name not in without}
    layer = None
    with on_cpu(given):
        if "--spec" in given:
            layer = parallel_layer(
                generate(spec, ["megatron"])["megatron/parallel_layer.py"], given
            )
        built = gpt_model(given, layer, config["vocab_size"]).eval()
        weights = megatron_weights(model, given)
        found = built.load_state_dict(weights, strict=False)
        left = [name for name in found.missing_keys if "_extra_state" not in name]
        assert not left or without, left
        assert (
            all(
                "rotary" in name or name.endswith((".attn.bias", "inv_freq"))
                for name in found.unexpected_keys
            )
            or without
        )
        positions = torch.arange(16)[None].expand(2, 16)
        mask = torch.triu(torch.ones(16, 16, dtype=torch.bool), 1)[None, None]
        with torch.no_grad():
            output: Tensor = built(TOKENS, positions, mask)
    return output


def test_every_model_that_has_arguments_is_tried() -> None:
    assert {config_of(name)["model_type"] for name in MODELS} == megatron_models().keys()


@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_those_of_transformers(name: str) -> None:
    config = config_of(name)
    assert not unsaid(read_model("tiny", config))
    model = theirs(config)
    with torch.no_grad():
        expected = model(TOKENS).logits
    torch.testing.assert_close(logits(config, model), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("mistral", "--window-size"),
        ("qwen2", "--window-attn-skip-freq"),
        ("gpt_neox", "--rotary-percent"),
        ("gpt_neox", "--no-bias-gelu-fusion"),
        ("llama, 3", "--use-rope-scaling"),
        ("llama, linear", "--rotary-seq-len-interpolation-factor"),
        ("smollm3", "--no-rope-freq"),
        ("gpt_oss", "--glu-linear-offset"),
        ("qwen2_moe", "--moe-router-pre-softmax"),
        ("deepseek_v3", "--moe-router-group-topk"),
        ("deepseek_v3", "--moe-router-topk-scaling-factor"),
    ],
)
def test_an_argument_that_is_left_out_is_seen(name: str, option: str) -> None:
    config = config_of(name)
    model = theirs(config)
    with torch.no_grad():
        expected = model(TOKENS).logits
    assert (logits(config, model, without=(option,)) - expected).abs().max() > 1e-3
