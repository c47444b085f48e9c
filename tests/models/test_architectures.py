"""Counts worked by hand; `tests/against_torch` has the same models built and run by transformers."""

import random
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from mutated_configs import check_read_or_refused, check_refused, mutated
from tiny_models import BERT, GPT2, LLAMA, MISTRAL, QWEN2

from planner.catalog import records
from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.domain.kept import Numerics
from planner.models.architectures import read_model
from planner.models.architectures.config import LARGEST, MOST_LAYERS

BASES = (GPT2, LLAMA, MISTRAL, QWEN2, BERT)


@pytest.mark.parametrize("model_type", records.model_types())
def test_every_family_has_a_reader_that_knows_all_of_its_record(model_type: str) -> None:
    towers: dict[str, Any] = {"text_config": {}, "vision_config": {}}
    with suppress(InvalidInputError):  # some defaults of transformers do not fit each other
        assert read_model("defaults", {"model_type": model_type, **towers}).parameters


@pytest.mark.parametrize("config", BASES, ids=lambda config: config["model_type"])
def test_a_reader_tells_what_the_planner_asks_of_a_model(config: dict[str, Any]) -> None:
    model = read_model("tiny", config)
    is_bert = config["model_type"] == "bert"
    assert (model.name, model.model_type) == ("tiny", config["model_type"])
    assert model.task == ("masked-lm" if is_bert else "causal-lm")
    assert (model.vocab_size, model.hidden_size, model.max_position_embeddings) == (100, 16, 32)
    assert model.blocks[0].count == 3
    assert model.blocks[0].attention
    assert model.blocks[0].attention.is_causal is not is_bert
    assert model.blocks[0].attention.query_size == 16
    assert model.config == config
    for numerics in Numerics:
        assert all(part.kept_bytes_per_token(numerics) >= 0 for part in model.parts)
        assert model.blocks[0].kept_bytes_per_token(numerics) > 0
        assert model.blocks[0].attention.eager_bytes_per_score[numerics] > 0


def test_bert_without_a_head_is_trained_for_nothing_of_its_own() -> None:
    assert read_model("tiny", BERT | {"architectures": ["BertModel"]}).task == "none"


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "bert"])
def test_a_tied_head_costs_flops_but_no_parameters(model_type: str) -> None:
    base = next(config for config in BASES if config["model_type"] == model_type)
    tied, untied = (
        read_model("tiny", base | {"tie_word_embeddings": is_tied}) for is_tied in (True, False)
    )
    second_bias = 100 if model_type == "bert" else 0
    assert untied.parameters - tied.parameters == 16 * 100 + second_bias
    assert untied.flops_per_token(32) == tied.flops_per_token(32)


def test_less_dropout_keeps_less() -> None:
    none = {"attn_pdrop": 0, "resid_pdrop": 0.0, "embd_pdrop": 0}
    some, without = read_model("tiny", GPT2), read_model("tiny", GPT2 | none)
    for before, after in zip(some.parts[:2], without.parts[:2], strict=True):
        assert after.kept_bytes_per_token(Numerics.FP32) < before.kept_bytes_per_token(
            Numerics.FP32
        )


def test_an_activation_spelled_out_in_python_keeps_more_than_a_kernel() -> None:
    python = read_model("tiny", GPT2)
    kernel = read_model("tiny", GPT2 | {"activation_function": "gelu"})
    for numerics in (Numerics.FP32, Numerics.AUTOCAST, Numerics.HALF):
        assert python.blocks[0].kept_bytes_per_token(numerics) > kernel.blocks[
            0
        ].kept_bytes_per_token(numerics)


def test_fused_an_activation_keeps_its_input_however_it_is_spelled() -> None:
    python, kernel = (
        read_model("tiny", GPT2 | {"activation_function": name}).blocks[0]
        for name in ("gelu_new", "gelu")
    )
    assert python.kept_bytes_per_token(Numerics.FUSED) == kernel.kept_bytes_per_token(
        Numerics.FUSED
    )


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no model_type": ({"n_embd": 16}, "no model_type"),
    "model_type is a number": ({"model_type": 5}, "a model_type that is no text"),
    "a negative size": (GPT2 | {"n_embd": -16}, "n_embd is -16"),
    "a size of zero": (GPT2 | {"n_layer": 0}, "n_layer is 0"),
    "a size in words": (GPT2 | {"n_embd": "768"}, "n_embd is '768'"),
    "a fractional size": (GPT2 | {"n_embd": 768.5}, "n_embd is 768.5"),
    "a size of true": (GPT2 | {"n_layer": True}, "n_layer is true"),
    "a size that is a list": (LLAMA | {"hidden_size": [16]}, r"hidden_size is \[16\]"),
    "a size that is a list of nothing": (
        LLAMA | {"hidden_size": [16, None]},
        r"hidden_size is \[16, null\]",
    ),
    "a size that is an object": (LLAMA | {"head_dim": {"a": 1}}, "head_dim is {'a': 1}"),
    "a huge size": (LLAMA | {"vocab_size": LARGEST + 1}, "vocab_size is 1000000001"),
    "a size of endless digits": (LLAMA | {"vocab_size": 10**5000}, "thousands of digits"),
    "more layers than a plan has figures of": (
        GPT2 | {"n_layer": MOST_LAYERS + 1},
        "from 1 to 4,096",
    ),
    "too much of everything": (GPT2 | {"n_embd": 10**8, "n_layer": 10**3}, "parameters"),
    "heads that do not divide (gpt2)": (
        GPT2 | {"n_head": 3},
        "not a multiple of num_attention_heads 3",
    ),
    "heads that do not divide (llama)": (LLAMA | {"num_attention_heads": 6}, "not a multiple"),
    "heads that do not divide (bert)": (BERT | {"num_attention_heads": 5}, "not a multiple"),
    "more heads than hidden": (
        LLAMA | {"num_attention_heads": 32, "num_key_value_heads": 32},
        "hidden_size 16 is not a multiple",
    ),
    "groups that do not divide": (LLAMA | {"num_key_value_heads": 3}, "not a multiple"),
    "a probability of one": (GPT2 | {"attn_pdrop": 1}, "attn_pdrop is 1"),
    "a probability of NaN": (GPT2 | {"attn_pdrop": float("nan")}, "attn_pdrop is nan"),
    "a probability in words": (BERT | {"hidden_dropout_prob": "0.1"}, "hidden_dropout_prob"),
    "a flag of one": (GPT2 | {"tie_word_embeddings": 1}, "true or false"),
    "an activation that is a number": (LLAMA | {"hidden_act": 3}, "a string"),
    "architectures is a string": (BERT | {"architectures": "BertModel"}, "a list of class names"),
    "a token to more experts than there are": (
        LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 9},
        "a token goes to 9 experts, and there are 4",
    ),
    "architectures holds a null": (BERT | {"architectures": [None]}, "a list of class names"),
}


@pytest.mark.parametrize(("config", "says"), BAD.values(), ids=list(BAD))
def test_a_bad_config_says_which_field_and_what_it_must_be(
    config: dict[str, Any], says: str
) -> None:
    check_refused(config, says)


def test_a_config_that_came_without_a_name_is_called_by_none() -> None:
    with pytest.raises(InvalidInputError, match=r"^config.json: n_layer is 0;"):
        read_model("config.json", GPT2 | {"n_layer": 0})


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"model_type": "gpt"}, "gpt2"),
        ({"model_type": "rwkv"}, "known: "),
        ({"model_type": "x" * 10_000}, "known: "),
        (GPT2 | {"add_cross_attention": True}, ""),
    ],
)
def test_a_model_we_cannot_read_is_unsupported(config: dict[str, Any], hint: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read_model("tiny", config)
    assert caught.value.field == "model"
    assert hint in caught.value.hint
    assert len(caught.value.message) < 200


def test_a_null_counts_as_missing() -> None:
    for base in BASES:
        optional = {
            "tie_word_embeddings",
            "hidden_act",
            "activation_function",
            "attention_dropout",
            "attn_pdrop",
            "hidden_dropout_prob",
            "architectures",
            "head_dim",
            "n_inner",
        } - set(base)
        assert read_model("tiny", base | dict.fromkeys(optional)).parts == (
            read_model("tiny", base).parts
        )


def test_a_value_of_any_depth_is_shown_in_short() -> None:
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(InvalidInputError, match=r"hidden_size is \[\[\[") as caught:
        read_model("tiny", LLAMA | {"hidden_size": deep})
    assert len(caught.value.message) < 300


FIELDS = (
    {key for base in BASES for key in base}
    | {"n_inner", "head_dim", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act"}
    | {"activation_function", "attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout"}
    | {"hidden_dropout_prob", "attention_probs_dropout_prob", "architectures"}
    | {"add_cross_attention"}
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated(BASES, FIELDS))
def test_any_config_is_read_or_refused(config: dict[str, Any]) -> None:
    check_read_or_refused(config)


UTILIZATION = tomllib.loads(Path("data/measurements/published_utilization.toml").read_text())


@pytest.mark.parametrize("run", UTILIZATION["run"], ids=lambda run: run["name"])
def test_flops_give_the_utilization_that_authors_print(run: dict[str, Any]) -> None:
    model, length = read_model("published", run["config"]), run["sequence_length"]
    flops = model.flops_per_token(length)
    # They count the causal half of attention that the planner leaves out.
    flops += sum(b.count * b.attention.flops_per_token(length) for b in model.blocks if b.attention)
    if run["counts_embeddings"]:
        flops += 2 * sum(sum(part.tables.values()) for part in model.others)
    utilization = 3 * flops * run["tokens_per_second_per_gpu"] / (run["peak_tflops"] * 1e12)
    assert utilization == pytest.approx(run["utilization"], rel=0.01)


@pytest.mark.parametrize("model_id", ["gpt2", "meta-llama/Llama-2-7b-hf"])
def test_training_flops_are_six_per_parameter_plus_attention(model_id: str) -> None:
    record = records.model(model_id)
    assert record
    model = read_model(model_id, record.config)
    looked_up = sum(sum(part.tables.values()) for part in model.others)
    tied = sum(layer.weights for part in model.others for layer in part.linears if layer.is_tied)
    attention = sum(
        b.count * b.attention.flops_per_token(1024) for b in model.blocks if b.attention
    )
    expected = 6 * (model.parameters - looked_up + tied) + 3 * attention
    assert 3 * model.flops_per_token(1024) == pytest.approx(expected, rel=0.01)


def test_ten_thousand_mutated_configs_are_read_or_refused() -> None:
    dice = random.Random(20261121)
    odd: list[Any] = [
        None,
        -1,
        0,
        1,
        3,
        2**40,
        10**400,
        0.5,
        float("nan"),
        "",
        "x",
        True,
        [],
        [1],
        {},
    ]
    bases = [dict(record.config) for i in records.model_ids() if (record := records.model(i))]
    for _ in range(10_000):
        config = dict(dice.choice(bases))
        for key in dice.sample(sorted(config), k=min(len(config), dice.randint(1, 4))):
            if dice.random() < 0.3:
                del config[key]
            elif isinstance(config[key], dict) and config[key] and dice.random() < 0.7:
                config[key] = {**config[key], dice.choice(sorted(config[key])): dice.choice(odd)}
            else:
                config[key] = dice.choice(odd)
        try:
            model = read_model("mutated", config)
        except PlannerError:
            continue
        assert model.parameters > 0
        assert model.flops_per_token(128) >= 0


def test_internlm2_has_the_parameters_that_its_weights_have() -> None:
    """internlm/internlm2-7b, whose code transformers does not have: one matrix for queries, keys and values, no biases."""
    config = {
        "model_type": "internlm2",
        "vocab_size": 92544,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "bias": False,
    }
    block = 4096 * (4096 + 2 * 1024) + 4096**2 + 3 * 4096 * 14336 + 2 * 4096
    assert read_model("internlm2-7b", config).parameters == 2 * 92544 * 4096 + 32 * block + 4096
