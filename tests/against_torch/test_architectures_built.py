"""The models that transformers builds and runs: parameters, defaults, kept bytes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from built_models import BATCH, TOKENS, configuration, parameters_built, saved_bytes
from tiny_models import BERT, GPT2, LLAMA, MISTRAL, QWEN2
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from planner.catalog import records
from planner.domain.kept import Numerics
from planner.domain.model import Model
from planner.models.architectures import read_model

# fmt: off
GPT2_BLOCK = (
    (16 * 48 + 48)             # c_attn: query, key and value in one
    + (16 * 16 + 16)           # attn.c_proj
    + (16 * 64 + 64)           # mlp.c_fc, four times as wide
    + (64 * 16 + 16)           # mlp.c_proj
    + 2 * (16 + 16)            # ln_1 and ln_2
)


LLAMA_BLOCK = (
    16 * 16                    # q_proj: 4 heads of 16 / 4
    + 2 * 16 * 8               # k_proj and v_proj: 2 heads of 4
    + 16 * 16                  # o_proj
    + 2 * 16 * 40              # gate_proj and up_proj
    + 40 * 16                  # down_proj
    + 2 * 16                   # both norms
)


LLAMA_OUTSIDE = 100 * 16 + 16 + 16 * 100   # embed_tokens, norm, lm_head


BERT_BLOCK = (
    4 * (16 * 16 + 16)         # query, key, value, attention.output
    + 2 * (16 + 16)            # both LayerNorms
    + (16 * 40 + 40)           # intermediate
    + (40 * 16 + 16)           # output
)


BERT_EMBEDDINGS = (100 + 32 + 2) * 16 + 2 * 16   # words, positions, token types, LayerNorm


BERT_HEAD = (16 * 16 + 16) + 2 * 16 + 100        # transform, its LayerNorm, the decoder's bias


COUNTED: dict[str, tuple[dict[str, Any], int]] = {
    "gpt2": (GPT2, (100 + 32) * 16 + 3 * GPT2_BLOCK + 2 * 16),
    "gpt2 untied": (
        GPT2 | {"tie_word_embeddings": False},
        (100 + 32) * 16 + 3 * GPT2_BLOCK + 2 * 16 + 16 * 100,
    ),
    "gpt2 with n_inner": (
        GPT2 | {"n_inner": 48},
        (100 + 32) * 16 + 3 * (GPT2_BLOCK - 16 * (16 + 1 + 16)) + 2 * 16,
    ),
    "llama": (LLAMA, LLAMA_OUTSIDE + 3 * LLAMA_BLOCK),
    "llama tied": (LLAMA | {"tie_word_embeddings": True}, LLAMA_OUTSIDE - 1600 + 3 * LLAMA_BLOCK),
    "llama with attention bias": (
        LLAMA | {"attention_bias": True},
        LLAMA_OUTSIDE + 3 * (LLAMA_BLOCK + 16 + 2 * 8 + 16),
    ),
    "llama with MLP bias": (
        LLAMA | {"mlp_bias": True},
        LLAMA_OUTSIDE + 3 * (LLAMA_BLOCK + 2 * 40 + 16),
    ),
    "llama with wide heads": (       # 8 per head instead of 4: all four projections double
        LLAMA | {"head_dim": 8},
        LLAMA_OUTSIDE + 3 * (LLAMA_BLOCK + 2 * 16 * 16 + 2 * 16 * 8),
    ),
    "llama without groups": (
        LLAMA | {"num_key_value_heads": None},
        LLAMA_OUTSIDE + 3 * (LLAMA_BLOCK + 2 * 16 * 8),
    ),
    "mistral": (MISTRAL, LLAMA_OUTSIDE + 3 * LLAMA_BLOCK),
    "mistral with heads that do not fill hidden": (
        MISTRAL | {"head_dim": 6},   # 4 * 6 = 24 and 2 * 6 = 12 instead of 16 and 8
        LLAMA_OUTSIDE + 3 * (LLAMA_BLOCK + 2 * 16 * 8 + 2 * 16 * 4),
    ),
    "qwen2": (QWEN2, LLAMA_OUTSIDE + 3 * (LLAMA_BLOCK + 16 + 2 * 8)),   # q, k and v have biases
    "qwen2 tied": (
        QWEN2 | {"tie_word_embeddings": True},
        LLAMA_OUTSIDE - 1600 + 3 * (LLAMA_BLOCK + 16 + 2 * 8),
    ),
    "bert masked lm": (BERT, BERT_EMBEDDINGS + 3 * BERT_BLOCK + BERT_HEAD),
    "bert untied": (                 # the head's own bias parts from the decoder's too
        BERT | {"tie_word_embeddings": False},
        BERT_EMBEDDINGS + 3 * BERT_BLOCK + BERT_HEAD + 16 * 100 + 100,
    ),
    "bert alone": (                  # no head, but the pooler
        BERT | {"architectures": ["BertModel"]},
        BERT_EMBEDDINGS + 3 * BERT_BLOCK + (16 * 16 + 16),
    ),
}


def _built(config: Mapping[str, Any]) -> int:
    """Count the parameters of the model that transformers builds."""
    wanted = configuration(config)
    if config.get("architectures") == ["BertModel"]:
        builder: Any = transformers.AutoModel
    elif config["model_type"] == "bert":
        builder = transformers.AutoModelForMaskedLM
    else:
        builder = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = builder.from_config(wanted)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("config", "parameters"), COUNTED.values(), ids=list(COUNTED))
def test_the_count_worked_by_hand_is_read_and_built(
    config: dict[str, Any], parameters: int
) -> None:
    assert read_model("tiny", config).parameters == parameters
    assert _built(config) == parameters


SMALL = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
FALCON = SMALL | {"model_type": "falcon"}
OPT = SMALL | {"model_type": "opt", "ffn_dim": 40, "word_embed_proj_dim": 8}
FEW_LOGITS = [
    (f"{family}For{head}", config | labels)
    for family, config in (
        ("GPT2", GPT2),
        ("Llama", LLAMA),
        ("Mistral", MISTRAL),
        ("Qwen2", QWEN2),
        ("Falcon", FALCON),
        ("OPT", OPT),
    )
    for head in ("SequenceClassification", "TokenClassification", "QuestionAnswering")
    for labels in ({}, {"num_labels": 5})
    if (family, head) != ("OPT", "TokenClassification")
    if not labels or head != "QuestionAnswering"
]


@pytest.mark.parametrize(("class_name", "config"), FEW_LOGITS)
def test_a_decoders_head_of_few_logits_counts_as_transformers_builds_it(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.parameters == parameters_built(class_name, config)


NO_DEFAULTS = {
    "glm4_moe": "its default head count does not divide its default hidden size",
    "nemotron": "its defaults do not build",
    "kimi_k2": "has no config class of its own",
    "qwen3_vl_text": "has no head of its own",
    "qwen3_vl_moe_text": "has no head of its own",
    "internlm2": "has no class in transformers",
    "ministral": "its defaults do not build",
    "hunyuan_v1_dense": "its defaults do not build",
    "dots1": "its defaults do not build",
}


DECODERS = {"decoder", "experts", "hybrid", "nemotron_h", "sparse"}
LANGUAGE = sorted(
    model_type
    for model_type in records.model_types()
    if records.read("families", model_type)["reader"] in DECODERS and model_type not in NO_DEFAULTS
)


@pytest.mark.parametrize("model_type", ["bert", "falcon", "stablelm", *LANGUAGE])
def test_what_a_config_leaves_out_is_what_transformers_takes(model_type: str) -> None:
    config = {"model_type": model_type}
    model = read_model("defaults", config)
    assert model.parameters == _built(config)
    defaults = transformers.AutoConfig.for_model(model_type)
    assert model.hidden_size == defaults.hidden_size
    assert model.num_blocks == defaults.num_hidden_layers


def test_gpt2s_sizes_may_go_by_their_common_names() -> None:
    common = {
        "model_type": "gpt2",
        "vocab_size": 100,
        "max_position_embeddings": 32,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    }
    model, same = read_model("tiny", common), read_model("tiny", GPT2)
    assert model.parts == same.parts
    assert model.parameters == _built(common)


def _expected_bytes(model: Model, implementation: str, numerics: Numerics) -> float:
    """Return what the planner says that the block of this model keeps."""
    attention = model.blocks[0].attention
    assert attention
    per_head = 4.0  # the log of each row's sum, fp32
    if implementation == "eager":
        per_head = attention.eager_bytes_per_score[numerics] * TOKENS
    kept = model.blocks[0].kept_bytes_per_token(numerics) + attention.num_heads * per_head
    return kept * BATCH * TOKENS


def _hidden(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a block's input as the block before it leaves it: no leaf, so norms save it."""
    return torch.ones(BATCH, TOKENS, size, dtype=dtype, requires_grad=True) * 1


def _mask(implementation: str, dtype: torch.dtype) -> torch.Tensor | None:
    if implementation == "sdpa":
        return None
    return torch.zeros(BATCH, 1, TOKENS, TOKENS, dtype=dtype)


def _block(
    build: Callable[..., torch.nn.Module], config: Any, dtype: torch.dtype, **more: int
) -> torch.nn.Module:
    return build(config, **more).to(dtype).train()


def _gpt2_bytes(config: dict[str, Any], implementation: str, dtype: torch.dtype) -> int:
    wanted = configuration(config, attn_implementation=implementation)
    block = _block(GPT2Block, wanted, dtype, layer_idx=0)
    hidden, mask = _hidden(wanted.n_embd, dtype), _mask(implementation, dtype)
    return saved_bytes(block, lambda: block(hidden, attention_mask=mask))


def _bert_bytes(config: dict[str, Any], implementation: str, dtype: torch.dtype) -> int:
    wanted = configuration(config, attn_implementation=implementation)
    block = _block(BertLayer, wanted, dtype)
    hidden, mask = _hidden(wanted.hidden_size, dtype), _mask(implementation, dtype)
    return saved_bytes(block, lambda: block(hidden, attention_mask=mask))


def _llama_bytes(config: dict[str, Any], implementation: str, dtype: torch.dtype) -> int:
    wanted = configuration(config, attn_implementation=implementation)
    block = _block(LlamaDecoderLayer, wanted, dtype, layer_idx=0)
    hidden, mask = _hidden(wanted.hidden_size, dtype), _mask(implementation, dtype)
    positions = torch.arange(TOKENS)[None]
    # One table of sines and cosines serves all layers and sequences.
    rotary = LlamaRotaryEmbedding(wanted)(hidden, positions)
    return saved_bytes(
        block,
        lambda: block(
            hidden, attention_mask=mask, position_ids=positions, position_embeddings=rotary
        ),
        *rotary,
    )


WITHOUT_DROPOUT = {
    "gpt2": {"attn_pdrop": 0, "resid_pdrop": 0},
    "bert": {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0},
    "llama": {"num_key_value_heads": 4},
}


RUN = {"gpt2": (GPT2, _gpt2_bytes), "bert": (BERT, _bert_bytes), "llama": (LLAMA, _llama_bytes)}


DTYPES = {Numerics.FP32: torch.float32, Numerics.HALF: torch.bfloat16}


@pytest.mark.parametrize("numerics", DTYPES)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", RUN)
def test_a_block_keeps_what_autograd_saves(
    family: str, implementation: str, numerics: Numerics
) -> None:
    base, run = RUN[family]
    config = base | WITHOUT_DROPOUT[family]
    expected = _expected_bytes(read_model("tiny", config), implementation, numerics)
    if numerics is Numerics.HALF and family != "llama":
        # A 16-bit layer norm keeps mean and deviation in fp32 on CUDA, in 16 bit on a CPU.
        expected -= 2 * (2 + 2) * BATCH * TOKENS
    assert run(config, implementation, DTYPES[numerics]) == pytest.approx(expected, rel=0.001)


def test_grouped_queries_share_their_keys_and_values() -> None:
    """In 16 bit; CUDA has no fused fp32 kernel for them, as `materialises_scores` says."""
    expected = _expected_bytes(read_model("tiny", LLAMA), "sdpa", Numerics.HALF)
    assert _llama_bytes(LLAMA, "sdpa", torch.bfloat16) == pytest.approx(expected, rel=0.001)


def test_eager_attention_repeats_grouped_keys_and_values() -> None:
    """The planner leaves the copies out: 2 * (16 - 8) floats per token, little beside the scores."""
    expected = _expected_bytes(read_model("tiny", LLAMA), "eager", Numerics.FP32)
    copies = 2 * (16 - 8) * 4 * BATCH * TOKENS
    saved = _llama_bytes(LLAMA, "eager", torch.float32)
    assert saved == pytest.approx(expected + copies, rel=0.001)


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_dropout_mask_is_one_byte_where_a_cpu_keeps_a_float(family: str) -> None:
    """Fused dropout, which only CUDA has, keeps a mask of booleans; a CPU scales by one of fp32."""
    base, run = RUN[family]
    expected = _expected_bytes(read_model("tiny", base), "eager", Numerics.FP32)
    masks = BATCH * TOKENS * (2 * 16 + 4 * TOKENS)  # two of hidden size, one of 4 heads' scores
    saved = run(base, "eager", torch.float32)
    assert saved == pytest.approx(expected + (4 - 1) * masks, rel=0.001)
