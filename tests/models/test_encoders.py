"""Encoders and encoder-decoders of text and sound against transformers: parameters, kept bytes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.domain.model import Model, Numerics, Part
from planner.models.architectures import LARGEST_MODEL, read_model

BERT_LIKE = {
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 34,
}
NARROW = BERT_LIKE | {"embedding_size": 8}
DISTILBERT = {
    "model_type": "distilbert",
    "vocab_size": 100,
    "dim": 16,
    "hidden_dim": 40,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 32,
}
ALBERT = NARROW | {"model_type": "albert"}
ELECTRA = NARROW | {"model_type": "electra"}
DEBERTA = BERT_LIKE | {"model_type": "deberta-v2"}
RELATIVE = DEBERTA | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
MODERNBERT = BERT_LIKE | {"model_type": "modernbert", "num_hidden_layers": 5, "pad_token_id": 0}
T5 = {
    "model_type": "t5",
    "vocab_size": 100,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 3,
    "num_heads": 4,
}
BART = {
    "model_type": "bart",
    "vocab_size": 100,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 32,
}
WHISPER = {key: value for key, value in BART.items() if key != "max_position_embeddings"} | {
    "model_type": "whisper",
    "pad_token_id": 0,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 12,
}
GATED = {"feed_forward_proj": "gated-gelu"}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("RobertaForMaskedLM", BERT_LIKE | {"model_type": "roberta"}),
    "roberta alone": ("RobertaModel", BERT_LIKE | {"model_type": "roberta"}),
    "roberta of one token type": (
        "RobertaForMaskedLM",
        BERT_LIKE | {"model_type": "roberta", "type_vocab_size": 1},
    ),
    "roberta untied": (
        "RobertaForMaskedLM",
        BERT_LIKE | {"model_type": "roberta", "tie_word_embeddings": False},
    ),
    "xlm-roberta": ("XLMRobertaForMaskedLM", BERT_LIKE | {"model_type": "xlm-roberta"}),
    "camembert": ("CamembertForMaskedLM", BERT_LIKE | {"model_type": "camembert"}),
    "mpnet": ("MPNetForMaskedLM", BERT_LIKE | {"model_type": "mpnet"}),
    "mpnet alone": ("MPNetModel", BERT_LIKE | {"model_type": "mpnet"}),
    "distilbert": ("DistilBertForMaskedLM", DISTILBERT),
    "distilbert alone": ("DistilBertModel", DISTILBERT),
    "distilbert untied": ("DistilBertForMaskedLM", DISTILBERT | {"tie_word_embeddings": False}),
    "electra": ("ElectraForMaskedLM", ELECTRA),
    "electra of one width": ("ElectraForMaskedLM", ELECTRA | {"embedding_size": 16}),
    "electra's discriminator": ("ElectraForPreTraining", ELECTRA),
    "electra alone": ("ElectraModel", ELECTRA),
    "electra untied": ("ElectraForMaskedLM", ELECTRA | {"tie_word_embeddings": False}),
    "albert": ("AlbertForMaskedLM", ALBERT),
    "albert alone": ("AlbertModel", ALBERT),
    "albert in groups": ("AlbertForMaskedLM", ALBERT | {"num_hidden_groups": 2}),
    "albert that shares nothing": ("AlbertForMaskedLM", ALBERT | {"num_hidden_groups": 3}),
    "albert in inner groups": ("AlbertForMaskedLM", ALBERT | {"inner_group_num": 2}),
    "albert untied": ("AlbertForMaskedLM", ALBERT | {"tie_word_embeddings": False}),
    "deberta": ("DebertaV2Model", DEBERTA),
    "deberta with a head": ("DebertaV2ForMaskedLM", DEBERTA),
    "deberta untied": ("DebertaV2ForMaskedLM", DEBERTA | {"tie_word_embeddings": False}),
    "deberta with the newer head": ("DebertaV2ForMaskedLM", DEBERTA | {"legacy": False}),
    "deberta with relative positions": ("DebertaV2Model", RELATIVE),
    "deberta v3": (
        "DebertaV2Model",
        RELATIVE
        | {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
        | {"position_biased_input": False, "type_vocab_size": 2, "pos_att_type": "p2c|c2p"},
    ),
    "deberta xlarge": (
        "DebertaV2Model",
        RELATIVE | {"conv_kernel_size": 3, "conv_act": "gelu", "embedding_size": 8},
    ),
    "modernbert": ("ModernBertForMaskedLM", MODERNBERT),
    "modernbert alone": ("ModernBertModel", MODERNBERT),
    "modernbert with biases": (
        "ModernBertForMaskedLM",
        MODERNBERT
        | {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
        | {"classifier_bias": True, "decoder_bias": False, "tie_word_embeddings": False},
    ),
    "bert's classes": ("BertForSequenceClassification", BERT_LIKE | {"model_type": "bert"}),
    "roberta's classes": (
        "RobertaForSequenceClassification",
        BERT_LIKE | {"model_type": "roberta", "num_labels": 5},
    ),
    "xlm-roberta's classes": (
        "XLMRobertaForSequenceClassification",
        BERT_LIKE | {"model_type": "xlm-roberta", "id2label": {"0": "a", "1": "b", "2": "c"}},
    ),
    "camembert's classes": (
        "CamembertForSequenceClassification",
        BERT_LIKE | {"model_type": "camembert"},
    ),
    "mpnet's classes": ("MPNetForSequenceClassification", BERT_LIKE | {"model_type": "mpnet"}),
    "distilbert's classes": ("DistilBertForSequenceClassification", DISTILBERT),
    "electra's classes": ("ElectraForSequenceClassification", ELECTRA),
    "albert's classes": ("AlbertForSequenceClassification", ALBERT),
    "deberta's classes": ("DebertaV2ForSequenceClassification", RELATIVE),
    "modernbert's classes": (
        "ModernBertForSequenceClassification",
        MODERNBERT | {"classifier_bias": True, "norm_bias": True},
    ),
    "modernbert's classes without biases": ("ModernBertForSequenceClassification", MODERNBERT),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5 alone": ("T5Model", T5),
    "t5's encoder": ("T5EncoderModel", T5),
    "t5 of two depths": ("T5ForConditionalGeneration", T5 | {"num_decoder_layers": 2}),
    "t5 gated": ("T5ForConditionalGeneration", T5 | GATED),
    "mt5": ("MT5ForConditionalGeneration", T5 | {"model_type": "mt5"}),
    "bart": ("BartForConditionalGeneration", BART),
    "bart alone": ("BartModel", BART),
    "bart untied": ("BartForConditionalGeneration", BART | {"tie_word_embeddings": False}),
    "mbart": ("MBartForConditionalGeneration", BART | {"model_type": "mbart"}),
    "pegasus": ("PegasusForConditionalGeneration", BART | {"model_type": "pegasus"}),
    "whisper": ("WhisperForConditionalGeneration", WHISPER),
    "whisper alone": ("WhisperModel", WHISPER),
    "whisper untied": (
        "WhisperForConditionalGeneration",
        WHISPER | {"tie_word_embeddings": False},
    ),
}
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
SEQ2SEQ = {"t5", "mt5", "bart", "mbart", "pegasus", "whisper"}
BLOCK = 4 * (16 * 16 + 16) + (16 * 40 + 40) + (40 * 16 + 16) + 4 * 16


def _configuration(config: Mapping[str, Any], **more: Any) -> Any:
    fields = {key: value for key, value in config.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(config["model_type"], **fields, **more)


def _built(class_name: str, config: Mapping[str, Any]) -> int:
    with torch.device("meta"):
        model = getattr(transformers, class_name)(_configuration(config))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("class_name", "config"), CASES.values(), ids=list(CASES))
def test_the_count_is_that_of_the_model_that_transformers_builds(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.parameters == _built(class_name, config)


@pytest.mark.parametrize(("model_type", "class_name"), DEFAULTS.items(), ids=list(DEFAULTS))
def test_what_a_config_leaves_out_is_what_transformers_takes(
    model_type: str, class_name: str
) -> None:
    config = {"model_type": model_type}
    model = read_model("defaults", config)
    defaults = _configuration(config)
    assert model.parameters == _built(class_name, config)
    assert model.hidden_size == defaults.hidden_size
    assert model.vocab_size == defaults.vocab_size
    assert (model.task == "seq2seq-lm") is (model_type in SEQ2SEQ)


def test_a_t5_with_a_head_of_its_own_has_one_table_more() -> None:
    """As its checkpoints have; transformers 5 ties the head whatever the config says."""
    tied = read_model("tiny", T5 | GATED)
    untied = read_model("tiny", T5 | GATED | {"tie_word_embeddings": False})
    assert untied.parameters - tied.parameters == 100 * 16


def test_the_count_of_a_roberta_worked_by_hand() -> None:
    model = read_model("tiny", BERT_LIKE | {"model_type": "roberta"})
    embeddings = (100 + 34 + 2) * 16 + 2 * 16
    head = (16 * 16 + 16) + 2 * 16 + 100
    assert model.parameters == embeddings + 3 * BLOCK + head


def test_roberta_cannot_use_the_positions_of_padding() -> None:
    model = read_model("tiny", BERT_LIKE | {"model_type": "roberta"})
    assert model.max_position_embeddings == 32
    assert model.has_learned_positions


def test_albert_runs_one_layer_again_and_again() -> None:
    shared = read_model("tiny", ALBERT)
    own = read_model("tiny", ALBERT | {"num_hidden_groups": 3})
    assert shared.num_blocks == own.num_blocks == 3
    assert own.parameters - shared.parameters == 2 * BLOCK
    assert shared.flops_per_token(32) == own.flops_per_token(32)
    assert [part.name for part in shared.blocks] == ["block", "shared_block"]


def test_modernbert_looks_far_in_every_third_layer_only() -> None:
    by_number = read_model("tiny", MODERNBERT | {"local_attention": 8})
    listed = ["full_attention", "sliding_attention", "sliding_attention"] * 2
    by_name = read_model("tiny", MODERNBERT | {"local_attention": 8, "layer_types": listed[:5]})
    assert by_number.parts == by_name.parts
    windows = {
        part.name: (part.count, part.attention.window)
        for part in by_number.blocks
        if part.attention
    }
    assert windows == {
        "first_block": (1, None),
        "sliding_attention_block": (3, 8),
        "full_attention_block": (1, None),
    }


@pytest.mark.parametrize("config", [T5, BART], ids=lambda config: config["model_type"])
def test_a_decoder_layer_attends_twice(config: dict[str, Any]) -> None:
    model = read_model("tiny", config)
    encoder, decoder = model.blocks
    assert encoder.attention
    assert decoder.attention
    assert not encoder.attention.is_causal
    assert decoder.attention.is_causal
    cross = next(part for part in model.parts if part.name == "cross_attention_scores")
    assert (cross.count, cross.parameters) == (decoder.count, 0)
    assert cross.attention
    assert not cross.attention.is_causal
    assert len(decoder.linears) == len(encoder.linears) + 4


def test_whispers_encoder_sees_sound_and_its_decoder_text() -> None:
    model = read_model("tiny", WHISPER)
    tokens = {part.name: part.tokens(10) for part in model.parts}
    assert tokens["conv1"] == 40
    assert tokens["encoder_block"] == tokens["cross_attention_keys_values"] == 20
    assert tokens["decoder_block"] == 10
    assert model.max_position_embeddings == 12


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (T5 | {"feed_forward_proj": "gated-silu-relu"}, "feed_forward_proj"),
        (T5 | {"feed_forward_proj": ""}, "feed_forward_proj"),
        (T5 | {"d_kv": "8"}, "d_kv is '8'"),
        (DISTILBERT | {"dim": -1}, "dim is -1"),
        (DISTILBERT | {"n_heads": 3}, "dim 16 is not a multiple of n_heads 3"),
        (ALBERT | {"num_hidden_groups": 4}, "num_hidden_groups 4 is more"),
        (MODERNBERT | {"layer_types": "full_attention"}, "layer_types must list"),
        (MODERNBERT | {"layer_types": ["full_attention"]}, "layer_types must list"),
        (MODERNBERT | {"layer_types": [["full_attention"]] * 5}, "layer_types must list"),
        (MODERNBERT | {"num_hidden_layers": 10**8}, "layer_types must list"),
        (DEBERTA | {"type_vocab_size": "2"}, "type_vocab_size is '2'"),
        (RELATIVE | {"pos_att_type": [1]}, "pos_att_type must be a list of words"),
        (BART | {"decoder_attention_heads": 3}, "d_model 16 is not a multiple"),
        (WHISPER | {"max_source_positions": None, "num_mel_bins": 0}, "num_mel_bins is 0"),
    ],
)
def test_a_bad_config_says_which_field_and_what_it_must_be(
    config: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        read_model("x" * 10_000, config)
    assert caught.value.field == "model"
    assert len(caught.value.message) < 300


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 64)
    | st.floats()
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
BASES = tuple(config | {"architectures": [class_name]} for class_name, config in CASES.values())
FIELDS = sorted({key for base in BASES for key in base} - {"model_type"})


@settings(max_examples=900, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from(BASES),
    changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
    dropped=st.sets(st.sampled_from(FIELDS), max_size=3),
)
def test_any_config_is_read_or_refused(
    base: dict[str, Any], changes: dict[str, Any], dropped: set[str]
) -> None:
    config = {key: value for key, value in base.items() if key not in dropped} | changes
    try:
        model = read_model("mutated", config)
    except PlannerError as error:
        refusal = error
    else:
        assert 0 < model.parameters <= LARGEST_MODEL
        assert model.blocks
        return
    assert isinstance(refusal, InvalidInputError | UnsupportedError)
    assert refusal.field == "model"
    assert len(refusal.message) < 400


@pytest.mark.parametrize("case", [name for name in CASES if "classes" in name])
def test_a_classifier_has_a_loss_for_each_sequence_and_none_for_tokens(case: str) -> None:
    class_name, config = CASES[case]
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.task == "sequence-classification"
    assert not model.has_token_loss
    head = model.parts[-1]
    assert head.flops_per_token(32) == 2 * 16 * (16 + _configuration(config).num_labels)
    assert head.tokens(32) == 1


BATCH, TOKENS = 2, 24
"""Sequences, and tokens of each."""


def _saved_bytes(block: torch.nn.Module, forward: Callable[[], object], *shared: object) -> int:
    """Run a block and count the bytes that autograd saves, its parameters and `shared` left out."""
    known = {
        tensor.untyped_storage().data_ptr()
        for tensor in (*block.parameters(), *shared)
        if isinstance(tensor, torch.Tensor)
    }
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    assert result is not None
    return sum(saved.values())


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
    layer = build(_configuration(config, attn_implementation=implementation)).train()
    hidden, mask = _hidden(16), _mask(implementation)
    saved = _saved_bytes(layer, lambda: layer(hidden, attention_mask=mask))
    expected = _expected_bytes(read_model("tiny", config).blocks[0], implementation)
    assert saved == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_whole_classifier_keeps_what_autograd_saves(family: str) -> None:
    """Its layers, its embeddings, and the last hidden state, of which the head reads a view."""
    no_dropout = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    config = BERT_LIKE | {"model_type": family} | no_dropout
    build: Any = transformers.AutoModelForSequenceClassification
    built = build.from_config(_configuration(config, attn_implementation="sdpa")).train()
    inputs, labels = torch.ones(BATCH, TOKENS, dtype=torch.long), torch.tensor([0, 1])
    saved = _saved_bytes(built, lambda: built(input_ids=inputs, labels=labels).loss, inputs, labels)
    class_name = {"bert": "Bert", "roberta": "Roberta"}[family] + "ForSequenceClassification"
    model = read_model("tiny", config | {"architectures": [class_name]})
    expected = sum(
        part.count * _expected_bytes(part, "sdpa")
        if part.attention
        else part.count * part.kept_bytes_per_token(Numerics.FP32) * BATCH * TOKENS
        for part in model.parts
    )
    assert saved == pytest.approx(expected, rel=0.01)


@IMPLEMENTATIONS
def test_a_distilbert_layer_keeps_what_autograd_saves(implementation: str) -> None:
    config = DISTILBERT | {"dropout": 0.0, "attention_dropout": 0.0}
    layer = TransformerBlock(_configuration(config, attn_implementation=implementation)).train()
    hidden, mask = _hidden(16), _mask(implementation)
    saved = _saved_bytes(layer, lambda: layer(hidden, attention_mask=mask))
    expected = _expected_bytes(read_model("tiny", config).blocks[0], implementation)
    assert saved == pytest.approx(expected, rel=0.001)


@IMPLEMENTATIONS
def test_a_modernbert_layer_keeps_what_autograd_saves(implementation: str) -> None:
    """Eager copies the value out of the fused projection, and lets that go."""
    wanted = _configuration(MODERNBERT, attn_implementation=implementation)
    layer = ModernBertEncoderLayer(wanted, layer_idx=3).train()
    hidden, mask = _hidden(16), _mask(implementation)
    rotary = ModernBertRotaryEmbedding(wanted)(hidden, torch.arange(TOKENS)[None], "full_attention")
    saved = _saved_bytes(
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
    wanted = _configuration(config, attn_implementation=implementation)
    build: Any = BartDecoderLayer if side == "decoder" else BartEncoderLayer
    layer = build(wanted, layer_idx=0).train()
    hidden, source, mask = _hidden(16), _hidden(16), _mask(implementation)
    more = {"encoder_hidden_states": source, "encoder_attention_mask": mask}
    saved = _saved_bytes(
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
    wanted = _configuration(config, attn_implementation="eager")
    wanted.is_decoder = side == "decoder"
    layer = T5Block(wanted, layer_idx=0).to(dtype).train()
    hidden, source = _hidden(16, dtype), _hidden(16, dtype)
    bias = torch.zeros(1, 4, TOKENS, TOKENS, dtype=dtype)
    saved = _saved_bytes(
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
    layer = build(_configuration(config)).train()
    hidden = torch.ones(1, 2 * TOKENS, 16, requires_grad=True) * 1
    mask = torch.ones(1, 1, 2 * TOKENS, 2 * TOKENS)
    distances = build_relative_position(hidden, hidden, bucket_size=8, max_position=2 * TOKENS)
    table = torch.ones(16, 16, requires_grad=True) * 1
    saved = _saved_bytes(
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
    layer = T5Block(_configuration(config, attn_implementation="eager"), layer_idx=0).train()
    hidden, bias = _hidden(16), torch.zeros(1, 4, TOKENS, TOKENS)
    saved = _saved_bytes(layer, lambda: layer(hidden, position_bias=bias))
    expected = _expected_bytes(_block(read_model("tiny", config), "encoder_block"), "eager")
    masks = BATCH * TOKENS * (2 * 16 + 40 + 4 * TOKENS)
    assert saved == pytest.approx(expected + (4 - 1) * masks, rel=0.001)
