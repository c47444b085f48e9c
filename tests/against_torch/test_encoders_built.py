"""Encoders and encoder-decoders of text and sound against transformers: parameters, kept bytes."""

from typing import Any

import pytest
import torch
import transformers
from built_models import BATCH, TOKENS, configuration, parameters_built, saved_bytes
from tiny_encoders import (
    BART,
    BERT_LIKE,
    CASES,
    DEBERTA,
    DISTILBERT,
    HEADS,
    MODERNBERT,
    RELATIVE,
    T5,
)
from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Layer,
    build_relative_position,
)
from transformers.models.distilbert.modeling_distilbert import TransformerBlock
from transformers.models.modernbert.modeling_modernbert import (
    ModernBertEncoderLayer,
    ModernBertRotaryEmbedding,
)
from transformers.models.roberta.modeling_roberta import RobertaLayer
from transformers.models.t5.modeling_t5 import T5Block

from planner.domain.kept import Numerics
from planner.domain.model import Model, Part
from planner.models.architectures import read_model

DEFAULTS = {
    "roberta": "RobertaForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
    "camembert": "CamembertForMaskedLM",
    "mpnet": "MPNetForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "albert": "AlbertForMaskedLM",
    "deberta-v2": "DebertaV2Model",
    "modernbert": "ModernBertForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}


SEQ2SEQ = {"t5", "mt5", "bart", "mbart", "pegasus"}


@pytest.mark.parametrize(("class_name", "config"), CASES.values(), ids=list(CASES))
def test_the_count_is_that_of_the_model_that_transformers_builds(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.parameters == parameters_built(class_name, config)


@pytest.mark.parametrize(("class_name", "config"), HEADS)
def test_a_head_of_few_logits_counts_as_transformers_builds_it(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.parameters == parameters_built(class_name, config)


@pytest.mark.parametrize(("model_type", "class_name"), DEFAULTS.items(), ids=list(DEFAULTS))
def test_what_a_config_leaves_out_is_what_transformers_takes(
    model_type: str, class_name: str
) -> None:
    config = {"model_type": model_type}
    model = read_model("defaults", config)
    defaults = configuration(config)
    assert model.parameters == parameters_built(class_name, config)
    assert model.hidden_size == defaults.hidden_size
    assert model.vocab_size == defaults.vocab_size
    assert (model.task == "seq2seq-lm") is (model_type in SEQ2SEQ)


@pytest.mark.parametrize("case", [name for name in CASES if "classes" in name])
def test_a_classifier_has_a_loss_for_each_sequence_and_none_for_tokens(case: str) -> None:
    class_name, config = CASES[case]
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.task == "sequence-classification"
    assert not model.has_token_loss
    head = model.parts[-1]
    assert head.flops_per_token(32) == 2 * 16 * (16 + configuration(config).num_labels)
    assert head.tokens(32) == 1


def _expected_bytes(
    part: Part, implementation: str, attentions: int = 1, numerics: Numerics = Numerics.FP32
) -> float:
    """Return what the planner says that the part keeps, of one attention or of two."""
    assert part.attention
    per_head = 4.0  # the log of each row's sum, fp32
    if implementation == "eager":
        per_head = part.attention.eager_bytes_per_score[numerics] * TOKENS
    heads = attentions * part.attention.num_heads
    return (part.kept_bytes_per_token(numerics) + heads * per_head) * BATCH * TOKENS


def _whole_bytes(model: Model) -> float:
    """Return what the planner says that a whole encoder keeps."""
    return sum(
        part.count * _expected_bytes(part, "sdpa")
        if part.attention
        else part.count * part.kept_bytes_per_token(Numerics.FP32) * BATCH * TOKENS
        for part in model.parts
    )


def _hidden(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a block's input as the block before it leaves it: no leaf, so norms save it."""
    return torch.ones(BATCH, TOKENS, size, dtype=dtype, requires_grad=True) * 1


def _mask(implementation: str) -> torch.Tensor | None:
    return None if implementation == "sdpa" else torch.zeros(BATCH, 1, TOKENS, TOKENS)


def _block(model: Model, name: str) -> Part:
    return next(part for part in model.blocks if part.name == name)


IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["sdpa", "eager"])


@IMPLEMENTATIONS
def test_a_roberta_layer_keeps_what_autograd_saves(implementation: str) -> None:
    no_dropout = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    config = BERT_LIKE | {"model_type": "roberta"} | no_dropout
    build: Any = RobertaLayer
    layer = build(configuration(config, attn_implementation=implementation)).train()
    hidden, mask = _hidden(16), _mask(implementation)
    saved = saved_bytes(layer, lambda: layer(hidden, attention_mask=mask))
    expected = _expected_bytes(read_model("tiny", config).blocks[0], implementation)
    assert saved == pytest.approx(expected, rel=0.001)


def test_a_whole_tagger_keeps_what_autograd_saves() -> None:
    """Its layers, its embeddings, and what its one matrix reads of every token."""
    no_dropout = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    config = BERT_LIKE | {"model_type": "bert"} | no_dropout
    build: Any = transformers.AutoModelForTokenClassification
    built = build.from_config(configuration(config, attn_implementation="sdpa")).train()
    inputs = torch.ones(BATCH, TOKENS, dtype=torch.long)
    saved = saved_bytes(built, lambda: built(input_ids=inputs, labels=inputs).loss, inputs)
    model = read_model("tiny", config | {"architectures": ["BertForTokenClassification"]})
    assert saved == pytest.approx(_whole_bytes(model), rel=0.02)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_whole_classifier_keeps_what_autograd_saves(family: str) -> None:
    """Its layers, its embeddings, and the last hidden state, of which the head reads a view."""
    no_dropout = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    config = BERT_LIKE | {"model_type": family} | no_dropout
    build: Any = transformers.AutoModelForSequenceClassification
    built = build.from_config(configuration(config, attn_implementation="sdpa")).train()
    inputs, labels = torch.ones(BATCH, TOKENS, dtype=torch.long), torch.tensor([0, 1])
    saved = saved_bytes(built, lambda: built(input_ids=inputs, labels=labels).loss, inputs, labels)
    class_name = {"bert": "Bert", "roberta": "Roberta"}[family] + "ForSequenceClassification"
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert saved == pytest.approx(_whole_bytes(model), rel=0.01)


@IMPLEMENTATIONS
def test_a_distilbert_layer_keeps_what_autograd_saves(implementation: str) -> None:
    config = DISTILBERT | {"dropout": 0.0, "attention_dropout": 0.0}
    layer = TransformerBlock(configuration(config, attn_implementation=implementation)).train()
    hidden, mask = _hidden(16), _mask(implementation)
    saved = saved_bytes(layer, lambda: layer(hidden, attention_mask=mask))
    expected = _expected_bytes(read_model("tiny", config).blocks[0], implementation)
    assert saved == pytest.approx(expected, rel=0.001)


@IMPLEMENTATIONS
def test_a_modernbert_layer_keeps_what_autograd_saves(implementation: str) -> None:
    """Eager copies the value out of the fused projection, and lets that go."""
    wanted = configuration(MODERNBERT, attn_implementation=implementation)
    layer = ModernBertEncoderLayer(wanted, layer_idx=3).train()
    hidden, mask = _hidden(16), _mask(implementation)
    rotary = ModernBertRotaryEmbedding(wanted)(hidden, torch.arange(TOKENS)[None], "full_attention")
    saved = saved_bytes(
        layer,
        lambda: layer(hidden, attention_mask=mask, position_embeddings=rotary),
        *rotary,
    )
    block = _block(read_model("tiny", MODERNBERT), "full_attention_block")
    freed = 2 * 16 * 4 * BATCH * TOKENS if implementation == "eager" else 0
    assert saved == pytest.approx(_expected_bytes(block, implementation) - freed, rel=0.001)


@IMPLEMENTATIONS
@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("function", ["gelu", "relu"])
def test_a_bart_layer_keeps_what_autograd_saves(
    implementation: str, side: str, function: str
) -> None:
    config = BART | {"dropout": 0.0, "activation_function": function}
    wanted = configuration(config, attn_implementation=implementation)
    build: Any = BartDecoderLayer if side == "decoder" else BartEncoderLayer
    layer = build(wanted, layer_idx=0).train()
    hidden, source, mask = _hidden(16), _hidden(16), _mask(implementation)
    more = {"encoder_hidden_states": source, "encoder_attention_mask": mask}
    saved = saved_bytes(
        layer,
        lambda: layer(hidden, attention_mask=mask, **(more if side == "decoder" else {})),
        source,
    )
    block = _block(read_model("tiny", config), f"{side}_block")
    expected = _expected_bytes(block, implementation, 2 if side == "decoder" else 1)
    assert saved == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("function", ["relu", "gated-gelu", "gated-silu"])
@pytest.mark.parametrize("numerics", [Numerics.FP32, Numerics.HALF])
def test_a_t5_layer_keeps_what_autograd_saves(side: str, function: str, numerics: Numerics) -> None:
    """Eager; SDPA also keeps the position biases that it is given as a mask."""
    config = T5 | {"dropout_rate": 0.0, "feed_forward_proj": function}
    dtype = torch.float32 if numerics is Numerics.FP32 else torch.bfloat16
    wanted = configuration(config, attn_implementation="eager")
    wanted.is_decoder = side == "decoder"
    layer = T5Block(wanted, layer_idx=0).to(dtype).train()
    hidden, source = _hidden(16, dtype), _hidden(16, dtype)
    bias = torch.zeros(1, 4, TOKENS, TOKENS, dtype=dtype)
    saved = saved_bytes(
        layer,
        lambda: layer(
            hidden,
            position_bias=bias,
            encoder_hidden_states=source,
            encoder_decoder_position_bias=bias,
        ),
        source,
    )
    block = _block(read_model("tiny", config), f"{side}_block")
    expected = _expected_bytes(block, "eager", 2 if side == "decoder" else 1, numerics)
    assert saved == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_deberta_layer_keeps_what_autograd_saves(*, is_relative: bool) -> None:
    """At its longest sequence; a batch of one, for which each gather has its own indices."""
    no_dropout = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    shared = {"share_att_key": True, "position_buckets": 8, "max_position_embeddings": 2 * TOKENS}
    config = (RELATIVE if is_relative else DEBERTA) | no_dropout | shared
    build: Any = DebertaV2Layer
    layer = build(configuration(config)).train()
    hidden = torch.ones(1, 2 * TOKENS, 16, requires_grad=True) * 1
    mask = torch.ones(1, 1, 2 * TOKENS, 2 * TOKENS)
    distances = build_relative_position(hidden, hidden, bucket_size=8, max_position=2 * TOKENS)
    table = torch.ones(16, 16, requires_grad=True) * 1
    saved = saved_bytes(
        layer,
        lambda: layer(hidden, mask, relative_pos=distances, rel_embeddings=table),
        mask,
        distances,
        table,
    )
    block = read_model("tiny", config).blocks[0]
    assert block.attention
    scores = 4 * 2 * TOKENS * block.attention.eager_bytes_per_score[Numerics.FP32]
    expected = (block.kept_bytes_per_token(Numerics.FP32) + scores) * 2 * TOKENS
    assert saved == pytest.approx(expected, rel=0.02)


def test_a_dropout_before_the_matmul_separates_it_from_relus_output() -> None:
    """On a CPU a mask is a float; in fused dropout, which only CUDA has, it is a byte."""
    config = T5 | {"dropout_rate": 0.1}
    layer = T5Block(configuration(config, attn_implementation="eager"), layer_idx=0).train()
    hidden, bias = _hidden(16), torch.zeros(1, 4, TOKENS, TOKENS)
    saved = saved_bytes(layer, lambda: layer(hidden, position_bias=bias))
    expected = _expected_bytes(_block(read_model("tiny", config), "encoder_block"), "eager")
    masks = BATCH * TOKENS * (2 * 16 + 40 + 4 * TOKENS)
    assert saved == pytest.approx(expected + (4 - 1) * masks, rel=0.001)
