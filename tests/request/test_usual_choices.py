"""What attention is taken where a request names none."""

from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.catalog import records
from planner.request.assumed import usual_attention, usual_choices


@pytest.mark.parametrize(
    ("model", "framework", "attention"),
    [
        ("gpt2", "torch", "sdpa"),
        ("bigscience/bloom-560m", "torch", "eager"),
        ("google/gemma-2-2b", "accelerate", "eager"),
        ("bigscience/bloom-560m", "megatron", "sdpa"),
    ],
)
def test_a_model_gets_the_attention_that_its_class_has(
    make_job: JobMaker, model: str, framework: str, attention: str
) -> None:
    job = make_job(model, gpus=1, recipe={"framework": framework})
    assert job.recipe.attention == attention


@pytest.mark.parametrize("kind", ["mamba", "mamba2", "xglm", "megatron-bert", "vaultgemma"])
def test_what_transformers_alone_reads_gets_the_attention_that_its_class_has(
    make_job: JobMaker, kind: str
) -> None:
    model = replace(make_job("gpt2", gpus=1).model, model_type=kind)
    assert usual_attention(model, records.framework("torch")) == "eager"


def test_attention_that_was_asked_for_stays(make_job: JobMaker) -> None:
    job = make_job("bigscience/bloom-560m", gpus=1, recipe={"attention": "sdpa"})
    assert job.recipe.attention == "sdpa"


@pytest.mark.parametrize(
    ("framework", "optimizer"),
    [("torch", "adamw-fused"), ("accelerate", "adamw-fused"), ("megatron", "adamw")],
)
def test_adamw_is_one_kernel_where_the_scripts_have_that(
    make_job: JobMaker, framework: str, optimizer: str
) -> None:
    assert make_job(gpus=1, recipe={"framework": framework}).recipe.optimizer == optimizer


def test_what_was_left_is_said_with_its_own_flags() -> None:
    taken = {"precision": "bf16", "optimizer": "adamw", "attention": "sdpa"}
    said = [
        [(each.text, each.field) for each in usual_choices(taken, given)]
        for given in ((), ("optimizer",), ("optimizer", "precision"), tuple(taken))
    ]
    precision, attention = (
        ("bf16 precision", "recipe.precision"),
        ("sdpa attention", "recipe.attention"),
    )
    together = [("bf16, adamw, sdpa", "recipe")]
    assert said == [together, [precision, attention], [attention], []]
