"""The first loss of random weights is what a README says it is, of the types that it says it of."""

import math
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from planner.catalog.configs import model_support
from planner.generate.first_lines import random_loss

HEADS = {
    "causal-lm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked-lm": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq-lm": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
DOORS: dict[str, Any] = {
    "causal-lm": transformers.AutoModelForCausalLM,
    "masked-lm": transformers.AutoModelForMaskedLM,
    "seq2seq-lm": transformers.AutoModelForSeq2SeqLM,
}
SIZES = {
    "vocab_size": 4000,
    "hidden_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 1),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    "num_experts_per_tok": 2,
}
OF_STACKS = {"d_model": 1024, "d_ff": 512, "d_kv": 128, "num_layers": 2, "num_heads": 8}
OF_BART = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8}
OF_BART |= {"decoder_attention_heads": 8, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
OF_HYBRIDS = {"num_hidden_layers": 4}
SHAPES: dict[str, dict[str, Any]] = {
    "bart": {"d_model": 1024, **OF_BART},
    "mt5": OF_STACKS,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    **dict.fromkeys(("qwen3_next", "qwen3_5_text"), OF_HYBRIDS),
}
WITH_OWN_HEADS = ("deepseek_v3", "falcon")
"""Whose config has no size of a head, or derives it."""
WITHIN = 0.1


def measured(kind: str, task: str) -> tuple[float, float]:
    """Return the loss of a small model with random weights, and what is said of its config."""
    torch.manual_seed(0)
    sizes = SIZES | SHAPES.get(kind, {})
    if kind in WITH_OWN_HEADS:
        del sizes["head_dim"]
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = DOORS[task].from_config(config, attn_implementation="eager").eval()
    tokens = torch.randint(10, 4000, (2, 64))
    with torch.no_grad():
        loss = model(input_ids=tokens, labels=torch.randint(10, 4000, (2, 64))).loss
    return float(loss), random_loss(config.to_dict(), task)


def task_of(kind: str) -> str:
    return next(task for task, names in HEADS.items() if kind in names)


@pytest.mark.parametrize("kind", sorted(model_support().first_loss))
def test_random_weights_begin_at_the_loss_that_is_said(kind: str) -> None:
    loss, said = measured(kind, task_of(kind))
    assert loss == pytest.approx(said, rel=WITHIN)


@pytest.mark.parametrize("kind", ["bart", "bloom", "gemma", "mt5"])
def test_where_embeddings_reach_the_head_no_loss_is_said(kind: str) -> None:
    loss, said = measured(kind, task_of(kind))
    assert said == 0
    assert loss > 1.1 * math.log(SIZES["vocab_size"])
