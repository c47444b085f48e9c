"""`recompute_modules` through every door: the body, flags, --pin, a page's address, and the answer."""

import json
from typing import Any, get_args
from urllib.parse import parse_qsl

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from api.main import create_app
from api.settings import Settings
from planner import answers, cli
from planner.core.errors import InvalidRequestError, PlannerError
from planner.domain.recompute_modules import MODULES
from planner.request.schema import parse_request
from planner.request.sections import RecomputeModule
from web.form import read_question
from web.permalink import pins

LLAMA = "meta-llama/Llama-3.1-8B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
SUGGEST = ("suggest", LLAMA, "--gpus", "8", "--gpu", "h100", "--framework", "megatron")


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(Settings(processes=0)))


def asked(model: str = LLAMA, framework: str = "megatron", **strategy: Any) -> dict[str, Any]:
    return {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"framework": framework, "sequence_length": 4096, "global_batch_size": 64},
        "strategy": strategy,
    }


def test_the_request_knows_the_modules_that_are_modelled() -> None:
    assert get_args(RecomputeModule) == MODULES


@pytest.mark.parametrize("modules", [["attn"], [""], "mlp", [["mlp"]], [1], None, ["mlp"] * 21])
def test_what_is_no_list_of_modules_is_refused(modules: object) -> None:
    with pytest.raises(InvalidRequestError, match="recompute_modules"):
        parse_request(asked(recompute="selective", recompute_modules=modules))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asked(recompute="full", recompute_modules=["mlp"]), "recompute is full"),
        (asked(recompute_modules=["moe_act"]), "has no moe_act"),
        (asked(framework="torch", recompute_modules=["mlp"]), "torch cannot recompute"),
    ],
)
def test_a_suggestion_says_the_reason_that_no_other_field_mends(
    request_: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PlannerError, match=reason):
        answers.suggest(parse_request(request_), allow_paths=False)


@pytest.mark.parametrize(
    "words",
    ["--recompute-modules mlp,core_attn", "--pin recompute_modules=core_attn+mlp"],
)
def test_flags_hold_the_modules_and_choose_selective_recompute(words: str) -> None:
    result = CliRunner().invoke(cli.cli, [*SUGGEST, *words.split(), "--json"])
    assert result.exit_code == 0, result.output
    strategy = json.loads(result.output)["chosen"]["strategy"]
    assert strategy["recompute"] == "selective"
    assert strategy["recompute_modules"] == ["core_attn", "mlp"]


def test_a_suggestion_reads_as_it_is_typed() -> None:
    result = CliRunner().invoke(cli.cli, [*SUGGEST, "--recompute-modules", "mlp,core_attn"])
    text = " ".join(result.output.split())
    assert "selective (core_attn, mlp) activation recompute" in text


def test_the_service_answers_and_refuses(client: TestClient) -> None:
    body = asked(MIXTRAL, recompute="selective", recompute_modules=["moe_act", "layernorm"])
    strategy = client.post("/v1/estimate", json=body).json()["strategy"]
    assert strategy["recompute_modules"] == ["layernorm", "moe_act"]
    body["strategy"]["recompute_modules"] = ["mla_up_proj"]
    refused = client.post("/v1/estimate", json=body)
    assert refused.status_code == 422
    assert "has no mla_up_proj" in refused.text


def test_a_pages_address_keeps_the_modules() -> None:
    query = {
        "model": LLAMA,
        "gpu": "h100",
        "gpus_per_node": "8",
        "framework": "megatron",
        "recompute": "selective",
        "recompute_modules": "mlp, layernorm",
    }
    question = read_question(list(query.items()))
    assert question.request.strategy is not None
    assert question.request.strategy.recompute_modules == ["mlp", "layernorm"]
    _, plan = answers.suggest(question.request, allow_paths=False)
    assert pins(plan.chosen.strategy)["recompute_modules"] == "layernorm,mlp"
    again = read_question(parse_qsl(question.query))
    assert again.request.strategy is not None
    assert again.request.strategy.recompute_modules == ["mlp", "layernorm"]
