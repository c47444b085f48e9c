"""Encoders and encoder-decoders of text and sound, worked by hand."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from mutated_configs import check_read_or_refused, check_refused, mutated
from tiny_encoders import (
    ALBERT,
    BART,
    BERT_LIKE,
    CASES,
    DEBERTA,
    DISTILBERT,
    GATED,
    HEADS,
    MODERNBERT,
    RELATIVE,
    T5,
    WHISPER,
)

from planner.core.errors import UnsupportedError
from planner.models.architectures import read_model

BLOCK = 4 * (16 * 16 + 16) + (16 * 40 + 40) + (40 * 16 + 16) + 4 * 16


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


def test_a_sparse_head_of_modernbert_sees_the_masked_tokens_alone() -> None:
    whole, sparse = (
        read_model("tiny", MODERNBERT | {"sparse_prediction": is_sparse})
        for is_sparse in (False, True)
    )
    assert sparse.parameters == whole.parameters
    assert (whole.share_with_logits, sparse.share_with_logits) == (1.0, 0.15)
    head = sum(layer.flops_per_token for layer in whole.parts[-1].linears)
    spared = whole.flops_per_token(100) - sparse.flops_per_token(100)
    assert spared == pytest.approx(0.85 * head)


@pytest.mark.parametrize("config", [T5, BART], ids=lambda config: config["model_type"])
def test_a_decoder_layer_attends_twice(config: dict[str, Any]) -> None:
    model = read_model("tiny", config)
    encoder, decoder = model.blocks
    assert encoder.attention
    assert decoder.attention
    assert not encoder.attention.is_causal
    assert decoder.attention.is_causal
    assert decoder.cross_attention
    assert not decoder.cross_attention.is_causal
    assert [keys for _, keys in decoder.attentions(20)] == [20, 20]
    assert len(decoder.linears) == len(encoder.linears) + 4


def test_whispers_decoder_has_logits_for_every_token() -> None:
    assert read_model("tiny", WHISPER).has_token_loss


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
        (MODERNBERT | {"num_hidden_layers": 10**8}, "from 1 to 4,096"),
        (DEBERTA | {"type_vocab_size": "2"}, "type_vocab_size is '2'"),
        (RELATIVE | {"pos_att_type": [1]}, "pos_att_type must be a list of words"),
        (BART | {"decoder_attention_heads": 3}, "d_model 16 is not a multiple"),
        (WHISPER | {"max_source_positions": None, "num_mel_bins": 0}, "num_mel_bins is 0"),
    ],
)
def test_a_bad_config_says_which_field_and_what_it_must_be(
    config: dict[str, Any], says: str
) -> None:
    check_refused(config, says)


@pytest.mark.parametrize(
    ("config", "class_name", "known"),
    [
        (BERT_LIKE | {"model_type": "bert"}, "BertForTableAnswering", "ForQuestionAnswering"),
        (BERT_LIKE | {"model_type": "bert"}, "BertLMHeadModel", "ForMaskedLM"),
        (BERT_LIKE | {"model_type": "roberta"}, "RobertaForCausalLM", "ForMultipleChoice"),
        (DEBERTA, "DebertaV2ForCausalLM", "ForTokenClassification"),
        (MODERNBERT, "ModernBertForPreTraining", "ForMaskedLM"),
        (BART, "BartForCausalLM", "ForConditionalGeneration"),
        (T5, "T5ForImageClassification", "ForSequenceClassification"),
        (WHISPER, "WhisperForAudioClassification", "ForConditionalGeneration"),
    ],
)
def test_a_head_that_is_not_known_is_refused_by_name_with_those_that_are(
    config: dict[str, Any], class_name: str, known: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"the head of {class_name} is not known") as caught:
        read_model("tiny", config | {"architectures": [class_name]})
    assert known in caught.value.hint


@pytest.mark.parametrize(("class_name", "config"), HEADS)
def test_a_head_of_few_logits_has_none_over_the_vocabulary(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert not model.has_token_loss
    assert all(linear.out_features < 100 for part in model.parts[-1:] for linear in part.linears)


BASES = tuple(config | {"architectures": [class_name]} for class_name, config in CASES.values())


FIELDS = {key for base in BASES for key in base} - {"model_type"}


@settings(max_examples=900, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated(BASES, FIELDS))
def test_any_config_is_read_or_refused(config: dict[str, Any]) -> None:
    check_read_or_refused(config)
