"""Choices beside a plan: each changes one thing, their estimate holds the layout, and their form leads to a plan."""

import re
from urllib.parse import parse_qsl, urlsplit

import pytest
from fastapi.testclient import TestClient

from api.main import create_app
from api.settings import Settings
from planner import answers
from planner.request.schema import resolve
from web.form import read_question
from web.jobs import draw_estimate
from web.pages import render
from web.result import figures
from web.what_if import CHANGE, WhatIf, as_chosen, beside_choices, what_ifs

GPT2 = {"model": "gpt2", "gpus_per_node": "4"}
SHARDED = {**GPT2, "gpu": "a100", "nodes": "2", "strategy": "hsdp"}
PIPELINE = {
    "model": "meta-llama/Llama-2-7b-hf",
    "gpu": "a100",
    "gpus_per_node": "8",
    "nodes": "2",
    "framework": "megatron",
    "pipeline_parallel_size": "2",
}

OF_HALF = {
    "model": "deepseek-ai/DeepSeek-V3",
    "gpu": "h100",
    "gpus_per_node": "8",
    "nodes": "256",
    "framework": "megatron",
}
"""Its plan is on half of each node."""
LLAMA = {"model": "meta-llama/Llama-3.1-70B", "gpu": "h100", "gpus_per_node": "8", "nodes": "16"}
OFFLOADED = {"model": "meta-llama/Llama-3.1-70B", "gpus_per_node": "8", "framework": "megatron"}
"""Its tensors are divided over all GPUs, which leaves data parallelism one."""
ALONE = {"model": "meta-llama/Llama-3.1-70B", "method": "lora"}
SENTENCES = {"model": "bert-base-uncased", "gpus_per_node": "8", "nodes": "4"}

SIZES = ("GPUs", "Sequence", "Micro-batch", "Recompute", "ZeRO stage", "Loss")


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


def choices(query: dict[str, str]) -> tuple[dict[str, WhatIf], dict[str, str]]:
    question = read_question(query.items())
    resolved, plan = answers.suggest(question.request, allow_paths=False)
    groups = what_ifs(question, resolved, plan)
    return {each.name: each for each in groups}, beside_choices(question, resolved, plan)


@pytest.mark.parametrize(
    "query",
    [GPT2, SHARDED, PIPELINE, {"model": "gpt2", "max_gpus": "8"}, OF_HALF, OFFLOADED, SENTENCES],
)
def test_an_estimate_with_nothing_changed_is_the_plan(query: dict[str, str]) -> None:
    question = read_question(query.items())
    resolved, plan = answers.suggest(question.request, allow_paths=False)
    beside = beside_choices(question, resolved, plan)
    shown = render("_answer.html", **figures(plan.job, plan.chosen), is_estimate=True)
    assert draw_estimate(tuple(beside.items())) == shown


@pytest.mark.parametrize(("query", "estimated"), [(GPT2, 15), (SHARDED, 15), (PIPELINE, 10)])
def test_sizes_are_estimated_without_a_search(query: dict[str, str], estimated: int) -> None:
    groups, beside = choices(query)
    before = draw_estimate(tuple(beside.items()))
    changed = [
        draw_estimate((*beside.items(), (CHANGE, choice.change)))
        for name in SIZES
        for choice in groups[name].choices
        if choice.change and not (query == PIPELINE and name == "ZeRO stage")
    ]
    assert before not in changed
    assert len(changed) >= estimated


@pytest.mark.parametrize("query", [LLAMA, OF_HALF, OFFLOADED, ALONE, SENTENCES])
def test_every_choice_has_an_estimate(query: dict[str, str]) -> None:
    groups, beside = choices(query)
    assert {"GPUs", "Recompute"} <= groups.keys()
    for each in groups.values():
        for choice in each.choices:
            assert "amount" in draw_estimate((*beside.items(), (CHANGE, choice.change)))


def test_a_layout_whose_sizes_cannot_stay_gives_way_to_the_nearest() -> None:
    groups, beside = choices(LLAMA)
    assert "ZeRO-3 over 128 GPUs" in draw_estimate(tuple(beside.items()))
    (more,) = (each.change for each in groups["GPUs"].choices if each.label == "512")
    shown = draw_estimate((*beside.items(), (CHANGE, more), (CHANGE, "recompute=full")))
    assert "Tensor parallel 4 x HSDP over 512 GPUs" in shown


@pytest.mark.parametrize("query", [OF_HALF, SENTENCES])
def test_gpus_are_those_asked_however_many_a_plan_leaves_idle(query: dict[str, str]) -> None:
    groups, beside = choices(query)
    for choice in groups["GPUs"].choices:
        asked = as_chosen((*beside.items(), (CHANGE, choice.change)))
        job = resolve(read_question(asked.items()).request, allow_paths=False).job
        assert f"{job.cluster.world_size:,}" == choice.label


def test_no_loss_of_tokens_is_a_choice_where_there_are_none() -> None:
    groups, _ = choices(SENTENCES)
    assert "Loss" not in groups


def test_choices_add_up() -> None:
    groups, beside = choices(GPT2)
    last = [
        next(each for each in groups[name].choices if each.label == label)
        for name, label in (("GPUs", "8"), ("Sequence", "512"), ("Batch", "64"))
    ]
    asked = as_chosen((*beside.items(), *((CHANGE, each.change) for each in last)))
    job = resolve(read_question(asked.items()).request, allow_paths=False).job
    assert job.cluster.world_size == 8
    assert (job.recipe.sequence_length, job.recipe.global_batch_size) == (512, 64)
    assert "layout" not in asked


def test_a_form_of_choices_leads_to_a_plan_beside_the_one_before(client: TestClient) -> None:
    groups, beside = choices(GPT2)
    (change,) = (each.change for each in groups["GPUs"].choices if each.label == "8")
    sent = {**beside, CHANGE: change}
    answer = client.post("/plan", data=sent, follow_redirects=False)
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert query.keys() == {"model", "gpus_per_node", "global_batch_size", "vs"}
    assert query["gpus_per_node"] == "8"
    assert query["vs"] == "gpus_per_node=4&global_batch_size="
    unchanged = client.post("/plan", data={**beside, CHANGE: ""}, follow_redirects=False)
    assert dict(parse_qsl(urlsplit(unchanged.headers["location"]).query)) == GPT2


def test_what_no_layout_runs_has_no_estimate(client: TestClient) -> None:
    _, beside = choices(PIPELINE)
    answer = client.get("/estimate", params={**beside, CHANGE: "pipeline_parallel_size=5"})
    assert answer.status_code == 422
    assert 'class="alert"' in answer.text


def test_a_page_has_a_label_for_every_choice(client: TestClient) -> None:
    page = client.get("/plan", params=GPT2).text
    labels = set(re.findall(r'<label for="(if-[^"]+)"', page))
    assert labels == set(re.findall(r'<select id="(if-[^"]+)"', page))
    assert {"if-gpus", "if-micro-batch", "if-zero-stage"} <= labels
