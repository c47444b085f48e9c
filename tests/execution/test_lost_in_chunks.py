"""The loss in chunks is the model's own, of every type that scripts with it are written for."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from launched import ACCUMULATED, write
from several import load

from planner.catalog.configs import model_support

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "ffn_dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "n_positions", "max_position_embeddings"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_local_experts", "num_experts"), 4),
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 1),
}
DERIVED = {
    **dict.fromkeys(("deepseek_v3", "falcon"), ("head_dim",)),
    "gpt_neo": ("num_hidden_layers",),
}
"""Sizes that a config has none of, or derives."""
MORE: dict[str, dict[str, Any]] = {
    "gptj": {"rotary_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
}
TOKENS = (2, 16)
torch.set_num_threads(1)  # several would only wait for each other on models this small


def small(kind: str) -> Any:
    """Return a small model of the type, with random weights and without dropout."""
    sizes = {name: size for name, size in SIZES.items() if name not in DERIVED.get(kind, ())}
    config = transformers.AutoConfig.for_model(kind, **sizes, **MORE.get(kind, {}))
    torch.manual_seed(0)
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Any:
    spec = replace(ACCUMULATED, loss="chunked", loss_chunk_tokens=7)
    return load(write(tmp_path_factory.mktemp("plan"), spec, "torchrun") / "torchrun" / "train.py")


def learned(model: Any, tokens: torch.Tensor) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss of tokens, and the gradients of what has some."""
    torch.manual_seed(0)  # some drop without a module
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    parameters = model.named_parameters()
    return loss.item(), {name: each.grad for name, each in parameters if each.grad is not None}


def in_chunks(kind: str, script: Any) -> tuple[float, float]:
    """Return how far the loss in chunks, and the worst of its gradients, are from the model's own."""
    own = small(kind)
    other = copy.deepcopy(own)
    other.tie_weights()
    script.lose_in_chunks(other)
    tokens = torch.randint(2, 96, TOKENS, generator=torch.Generator().manual_seed(0))
    (loss, gradients), (its_loss, its_gradients) = learned(own, tokens), learned(other, tokens)
    assert gradients.keys() == its_gradients.keys()
    apart = ((gradients[name] - its_gradients[name]).abs().max() for name in gradients)
    return abs(loss - its_loss), max(apart).item()


@pytest.mark.parametrize("kind", sorted(model_support().chunked_loss))
def test_the_loss_in_chunks_is_the_models_own(kind: str, script: Any) -> None:
    assert in_chunks(kind, script) == pytest.approx((0.0, 0.0), abs=1e-5)


def test_a_model_that_caps_its_logits_has_another_loss_in_chunks(script: Any) -> None:
    assert "gemma2" not in model_support().chunked_loss
    _, apart = in_chunks("gemma2", script)
    assert apart > 1e-4
