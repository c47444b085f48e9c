"""Every route answers what the OpenAPI description says that it does."""

import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants
from jsonschema import Draft202012Validator

from api import description as description_of_routes
from api.access import FOR_ALL
from api.main import create_app
from api.settings import Settings
from planner.catalog import records

GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
RICH = {
    "id": "row-1",
    "model": "gpt2",
    "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 2},
    "recipe": {"training_tokens": 10**9},
    "objective": "cost",
    "max_gpus": 16,
    "why": {"tensor_parallel_size": 2},
}
WHOLE_BATCH = {
    "model": "gpt2",
    "gpus_per_node": 4,
    "micro_batch_size": 8,
    "samples": 40_000,
    "warmup_fraction": 0.1,
}
TIMES = [{"gpus": 1, "seconds": 43.1}, {"gpus": 4, "seconds": 48.2}]
SCRIPT = "import torch\nmodel = torch.nn.DataParallel(model)\n"
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.10 GiB is free."
RUN = {
    "request": {**GPT2, "recipe": {"global_batch_size": 32}, "strategy": {"micro_batch_size": 4}},
    "step_seconds": 0.4,
    "reserved_bytes": 12e9,
}
RACED = {"planned_step_seconds": 0.1, "planned_peak_bytes": 8e9, "planned_reserved_bytes": 9e9}
RACE = {
    "kind": "race",
    "plans": [
        {"name": "ddp", "state": "failed", "why": "CUDA out of memory", "steps": 0, **RACED},
        {
            "name": "zero-3",
            "state": "known",
            "steps": 9,
            "step": {"seconds": 0.2, "low": 0.199, "high": 0.201},
            **RACED,
        },
    ],
}


@pytest.fixture(scope="module")
def client() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def description(client: TestClient) -> dict[str, Any]:
    described: dict[str, Any] = client.get("/openapi.json").json()
    return described


def check(description: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    Draft202012Validator({**schema, "components": description["components"]}).validate(value)


def described(description: dict[str, Any], method: str, path: str, status: int) -> dict[str, Any]:
    content = description["paths"][path][method]["responses"][str(status)]["content"]
    (said,) = content.values()
    return dict(said)


def test_every_answer_of_every_route_has_a_schema_and_an_example_of_it(
    description: dict[str, Any],
) -> None:
    Draft202012Validator.check_schema({"components": description["components"]})
    for methods in description["paths"].values():
        for operation in methods.values():
            assert all(each["description"] for each in operation.get("parameters", ()))
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            statuses = {int(status) for status in route["responses"]}
            refused = set() if path in FOR_ALL else {401, 429}
            assert statuses & {401, 429} == refused, (path, method)
            assert 500 in statuses
            assert min(statuses) in {200, 202, 204}
            for status in statuses - {204}:
                said = described(description, method, path, status)
                if said["schema"].get("format") != "binary":
                    assert "example" in said, f"_EXAMPLES of api/examples.py has no {method} {path}"
                    check(description, said["schema"], said["example"])


def test_every_field_says_what_it_is(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    for name, schema in schemas.items():
        for field, said in schema.get("properties", {}).items():
            assert said["description"], f"data/request/answers.toml has no {field}, of {name}"
    assert [name for name, each in schemas.items() if not each.get("description")] == []
    assert schemas["Request"]["properties"]["max_gpus"]["description"].startswith("Plan on any")
    assert schemas["RefusedLine"]["properties"]["line"]["type"] == "integer"


def test_no_word_for_a_field_is_left_over(description: dict[str, Any]) -> None:
    said = {
        (field, each["description"])
        for schema in description["components"]["schemas"].values()
        for field, each in schema.get("properties", {}).items()
    }
    assert set(records.read("request", "answers").items()) <= said


def test_operations_have_short_names_tags_and_ways_to_send_a_key(
    description: dict[str, Any],
) -> None:
    operations = [each for methods in description["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert {"suggest", "estimate", "bundle"} <= set(names)
    tags = {each["name"] for each in description["tags"] if each["description"]}
    assert all(set(each["tags"]) <= tags for each in operations)
    assert description["security"] == [{}, {"bearer": []}, {"basic": []}, {"header": []}]
    assert set(description["components"]["securitySchemes"]) == {"bearer", "basic", "header"}
    assert description["paths"]["/healthz"]["get"]["security"] == []
    assert description["servers"] == [{"url": "/"}]


@pytest.mark.parametrize(
    ("path", "asked", "body"),
    [
        ("/v1/suggest", "/v1/suggest", RICH),
        (
            "/v1/suggest",
            "/v1/suggest",
            {**GPT2, "recipe": {"job": "grpo", "training_tokens": 10**9}},
        ),
        ("/v1/estimate", "/v1/estimate", {**GPT2, "strategy": {"zero_stage": 3}}),
        ("/v1/memory", "/v1/memory", GPT2),
        ("/v1/memory", "/v1/memory", {**GPT2, "strategy": {"micro_batch_size": 128}}),
        ("/v1/bundle", "/v1/bundle", GPT2),
        ("/v1/replicas", "/v1/replicas", GPT2),
        ("/v1/replicas", "/v1/replicas", {**GPT2, "recipe": {"framework": "megatron"}}),
        ("/v1/batch", "/v1/batch", {"global_batch_size": 64}),
        ("/v1/batch", "/v1/batch", WHOLE_BATCH),
        ("/v1/doctor/timings", "/v1/doctor/timings", {"times": TIMES}),
        (
            "/v1/doctor/scripts",
            "/v1/doctor/scripts",
            {"scripts": [{"name": "a.py", "text": SCRIPT}]},
        ),
        ("/v1/doctor/log", "/v1/doctor/log", {"text": OUT_OF_MEMORY}),
        ("/v1/doctor/log", "/v1/doctor/log", {"text": "KeyError: 'x'"}),
        ("/v1/doctor/log", "/v1/doctor/log", {"text": "all is well"}),
        ("/v1/race", "/v1/race", RACE),
        ("/v1/machines", "/v1/machines", {"runs": [RUN], "name": "lab"}),
        ("/v1/models/{name}", "/v1/models/gpt2", None),
        ("/v1/accuracy/{source}", "/v1/accuracy/torchtitan", None),
        *(
            (path, path, None)
            for path in [
                "/v1/models",
                "/v1/gpus",
                "/v1/links",
                "/v1/instances",
                "/v1/frameworks",
                "/v1/accuracy",
                "/v1/rules",
                "/v1/terms",
                "/healthz",
                "/readyz",
                "/version",
            ]
        ),
        *(
            ("/v1/frameworks/{name}", f"/v1/frameworks/{name}", None)
            for name in records.framework_names()
        ),
    ],
)
def test_what_is_answered_is_what_is_described(
    client: TestClient, description: dict[str, Any], path: str, asked: str, body: object
) -> None:
    method = "get" if body is None else "post"
    answer = client.request(method, asked, json=body)
    assert answer.status_code == 200, answer.text
    check(description, described(description, method, path, 200)["schema"], answer.json())


def test_a_field_that_is_not_described_is_noticed(
    client: TestClient, description: dict[str, Any]
) -> None:
    schema = described(description, "post", "/v1/estimate", 200)["schema"]
    answer = client.post("/v1/estimate", json={**GPT2, "strategy": {}}).json()
    for changed in ({**answer, "new": 1}, {**answer, "fits": "yes"}):
        assert not Draft202012Validator(
            {**schema, "components": description["components"]}
        ).is_valid(changed)


def test_a_bundle_is_the_same_as_texts_and_as_a_zip(client: TestClient) -> None:
    files = client.post("/v1/bundle", json=GPT2).json()["files"]
    answer = client.post("/v1/bundle.zip", json=GPT2)
    assert answer.headers["content-type"] == "application/zip"
    archive = zipfile.ZipFile(BytesIO(answer.content))
    zipped = {
        name.removeprefix("plan/"): archive.read(name).decode() for name in archive.namelist()
    }
    assert zipped == files
    assert client.post("/v1/bundle.zip", json=GPT2).content == answer.content


def test_a_batch_answers_every_line_in_order(client: TestClient) -> None:
    asked = [
        {**GPT2, "id": 1},
        {"id": "bad", "modle": "gpt2"},
        {**GPT2, "id": 3, "strategy": {"zero_stage": 1}},
    ]
    lines = [*(json.dumps(each) for each in asked), "", "no json", '{"id": 5, "id": 6}']
    answer = client.post(
        "/v1/suggest/batch",
        content="\n".join(lines) + "\n",
        headers={"content-type": "application/jsonl"},
    )
    assert answer.status_code == 200
    said = [json.loads(line) for line in answer.text.splitlines()]
    assert [(each.pop("line"), each["id"], each["ok"]) for each in said] == [
        (1, 1, True),
        (2, "bad", False),
        (3, 3, True),
        (5, None, False),
        (6, 6, False),
    ]
    alone = client.post("/v1/suggest", json=asked[0]).json()
    said[0]["search"]["seconds"] = alone["search"]["seconds"] = 0
    assert said[0] == alone
    assert said[1]["error"]["problems"][0]["hint"].startswith("did you mean model")


def test_a_batch_of_estimates_has_the_estimates(client: TestClient) -> None:
    body = json.dumps({**GPT2, "strategy": {"zero_stage": 2}})
    answer = client.post("/v1/estimate/batch", content=body)
    assert json.loads(answer.text) == {"line": 1} | client.post("/v1/estimate", content=body).json()


def test_a_line_that_is_there_twice_has_two_numbers(client: TestClient) -> None:
    body = "\n".join([json.dumps({**GPT2, "objective": "speed"})] * 2)
    answer = client.post("/v1/suggest/batch", content=body)
    assert [json.loads(line)["line"] for line in answer.text.splitlines()] == [1, 2]


def test_a_batch_that_says_it_is_one_object_is_refused(client: TestClient) -> None:
    assert client.post("/v1/suggest/batch", json=GPT2).status_code == 415


def test_a_line_over_a_mebibyte_is_refused(client: TestClient) -> None:
    assert client.post("/v1/suggest/batch", content=b" x" * 2**20).status_code == 413


def test_a_parameter_that_cannot_be_read_is_a_problem_that_does_not_repeat_it(
    client: TestClient,
) -> None:
    answer = client.post("/v1/suggest", json=GPT2, headers={"X-HF-Token": "se cret"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"] == "X-HF-Token"
    assert "cret" not in answer.text


def test_the_description_is_known_at_the_next_start_of_the_same_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = description_of_routes
    monkeypatch.setenv("PLANNER_CACHE_DIR", str(tmp_path / "new"))
    monkeypatch.setattr(module, "description", dict)
    assert module.kept() is None
    made = module.described()
    assert module.kept() == made
    with monkeypatch.context() as later:
        later.setattr(module, "release", lambda: "another")
        assert module.kept() is None
    (file,) = (tmp_path / "new").iterdir()
    file.write_bytes(file.read_bytes() + b"damage")
    assert module.kept() is None
    monkeypatch.setenv("PLANNER_CACHE_DIR", str(file))
    assert module.described() == made
