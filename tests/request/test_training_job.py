"""A bare name means fine-tuning of its weights; what says otherwise, and what says nothing of it."""

from typing import Any

import pytest

from planner.core.errors import InvalidInputError
from planner.domain.job import Job
from planner.request.schema import Resolved, parse_request, resolve

GPT2_CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}
SAID: dict[str, Any] = {"global_batch_size": 64, "sequence_length": 512}


def resolved(model: str | dict[str, Any] = "gpt2", **recipe: Any) -> Resolved:
    payload = {"model": model, "cluster": {"gpu": "a100", "gpus_per_node": 4}, "recipe": recipe}
    return resolve(parse_request(payload), allow_paths=False)


def job_of(model: str | dict[str, Any] = "gpt2", **recipe: Any) -> Job:
    return resolved(model, **recipe).job


def assumed(found: Resolved, field: str) -> list[str]:
    return [each.text for each in found.assumptions if each.field == field]


@pytest.mark.parametrize(
    ("recipe", "meant", "loads"),
    [
        ({}, "finetune", True),
        ({"job": "finetune"}, "finetune", True),
        ({"job": "pretrain"}, "pretrain", False),
        ({"method": "lora"}, "finetune", True),
        ({"training_samples": 52_000}, "finetune", True),
        ({"training_tokens": 10**9}, None, True),  # eight for each parameter
        ({"training_tokens": 300 * 10**9}, "pretrain", False),
        ({"training_samples": 300 * 10**6}, "pretrain", False),  # of 1,024 tokens
        ({"training_tokens": 300 * 10**9, "job": "finetune"}, "finetune", True),
        ({"training_tokens": 300 * 10**9, "method": "lora"}, "finetune", True),
        ({"training_tokens": 300 * 10**9, **SAID}, "pretrain", False),
        (SAID, None, True),
    ],
)
def test_a_job_is_what_is_said_or_implied_or_else_fine_tuning(
    recipe: dict[str, Any], meant: str | None, *, loads: bool
) -> None:
    job = job_of(**recipe)
    assert (job.recipe.job, job.model.is_pretrained) == (meant, loads)


@pytest.mark.parametrize(
    ("model", "tokens", "meant"),
    [
        ("meta-llama/Llama-2-7b-hf", 130 * 10**9, None),
        ("meta-llama/Llama-2-7b-hf", 140 * 10**9, "pretrain"),  # 20 for each parameter
        ("bigscience/bloom", 160 * 10**9, None),
        ("bigscience/bloom", 366 * 10**9, "pretrain"),  # its own run: two for each
    ],
)
def test_tokens_mean_random_weights_from_20_a_parameter_or_168_billion_on(
    model: str, tokens: int, meant: str | None
) -> None:
    assert job_of(model, training_tokens=tokens).recipe.job == meant


def test_a_config_has_no_weights_to_tune() -> None:
    assert job_of(GPT2_CONFIG).recipe.job == "pretrain"
    assert not assumed(resolved(GPT2_CONFIG), "recipe.job")
    with pytest.raises(InvalidInputError, match="no weights to fine-tune") as caught:
        resolved(GPT2_CONFIG, job="finetune")
    assert "Hub id" in caught.value.hint


def test_pretraining_has_no_weights_for_adapters_to_stand_beside() -> None:
    with pytest.raises(InvalidInputError, match="trained weights") as caught:
        resolved(job="pretrain", method="qlora")
    assert caught.value.field == "recipe.job"


def test_what_was_assumed_is_said_and_only_that() -> None:
    assert [text.split()[0] for text in assumed(resolved(), "recipe.job")] == ["fine-tuning"]
    many = resolved(training_tokens=300 * 10**9)
    assert assumed(many, "recipe.job") == [
        "pre-training from random weights, as runs of 300 B tokens are"
    ]
    for recipe in ({"job": "finetune"}, {"job": "pretrain"}, {"method": "lora"}, SAID):
        assert not assumed(resolved(**recipe), "recipe.job")


ENCODERS = ("bert-base-uncased", "microsoft/deberta-v3-base", "answerdotai/ModernBERT-large")


@pytest.mark.parametrize("model", ENCODERS)
def test_an_encoder_is_tuned_to_a_task(model: str) -> None:
    for found in (resolved(model), resolved(model, job="finetune", **SAID)):
        assert found.job.model.task == "sequence-classification"
        assert assumed(found, "recipe.task") == ["a head that classifies sequences"]


@pytest.mark.parametrize(
    ("model", "recipe", "task"),
    [
        ("bert-base-uncased", SAID, "masked-lm"),
        ("bert-base-uncased", {"job": "pretrain"}, "masked-lm"),
        ("bert-base-uncased", {"task": "token-classification"}, "token-classification"),
        ("google-t5/t5-small", {}, "seq2seq-lm"),
        ("openai/clip-vit-base-patch32", {}, "none"),
        ("gpt2", {}, "causal-lm"),
    ],
)
def test_a_head_is_assumed_with_fine_tuning_alone(
    model: str, recipe: dict[str, Any], task: str
) -> None:
    found = resolved(model, **recipe)
    assert found.job.model.task == task
    assert not assumed(found, "recipe.task")
