import json
import re
from typing import Any

import huggingface_hub
import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from api.body import LARGEST_BODY_BYTES
from api.description import description
from api.main import create_app
from api.settings import Settings
from planner import answers
from planner.advice import rules
from planner.catalog import records
from planner.catalog.findings import findings
from planner.configs import rules as configs
from planner.core.errors import PlannerError
from planner.doctor.scripts import RULES as SCRIPT_RULES
from planner.doctor.timing_rules import RULES as TIMING_RULES
from planner.hardware.topology import LARGEST_TEXT, parse_topology
from planner.models import hub
from planner.request.schema import parse_request
from planner.search.limits import LIMITS

GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
PROBLEM = "application/problem+json"
PAIR = "        GPU0    GPU1\nGPU0     X      NV12\nGPU1    NV12     X"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A client of the app, with the Hub out of reach."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


@pytest.fixture
def hub_that_raises(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`hub_that_raises(kind)`: the Hub answers every download with that error."""

    def install(kind: type[Exception]) -> None:
        def download(*_: object) -> str:
            response = type("Response", (), {"headers": {}, "request": None})()
            raise kind("no", response=response)  # type: ignore[call-arg]

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
        monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", download)
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)

    return install


def without_seconds(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "search": {**answer["search"], "seconds": 0}}


def test_suggest_answers_what_the_library_answers(client: TestClient) -> None:
    request = parse_request({**GPT2, "id": "row-1"})
    resolved, plan = answers.suggest(request, allow_paths=False)
    answer = client.post("/v1/suggest", json={**GPT2, "id": "row-1"})
    expected = answers.answer_plan(resolved, plan, "row-1")
    assert answer.status_code == 200
    assert without_seconds(answer.json()) == without_seconds(json.loads(json.dumps(expected)))


def test_estimate_answers_what_the_library_answers(client: TestClient) -> None:
    body = {**GPT2, "strategy": {"zero_stage": 3, "micro_batch_size": 8}}
    expected = answers.answer_estimate(parse_request(body), allow_paths=False)
    answer = client.post("/v1/estimate", json=body)
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(expected))


def test_every_example_of_the_description_gives_an_answer(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path, number in (("/v1/suggest", 2), ("/v1/estimate", 2), ("/v1/topology", 1)):
        content = paths[path]["post"]["requestBody"]["content"]["application/json"]
        assert len(content["examples"]) == number
        for example in content["examples"].values():
            assert client.post(path, json=example["value"]).status_code == 200, example


def test_description_holds_every_schema_that_it_names(client: TestClient) -> None:
    text = client.get("/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]
    named = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert {"Request", "StrategyRequest", "TopologyRequest", "Problem"} <= named <= set(schemas)


def test_description_is_the_same_each_time() -> None:
    assert description() == description()


@pytest.mark.parametrize(
    ("body", "status", "field", "says"),
    [
        ({"modle": "gpt2"}, 422, "modle", "did you mean model?"),
        ({"model": "gpt2", "Gpus": 4}, 422, "Gpus", "did you mean cluster.gpus_per_node?"),
        ({"model": "gpt2", "str": 4}, 422, "str", "did you mean"),
        ({"model": "gpt2", "cluster": {"GPU": "t4"}}, 422, "cluster.GPU", "did you mean gpu?"),
        ({"model": "gpt2", "cluster": {"gpuss": "t4"}}, 422, "cluster.gpuss", "did you mean gpu"),
        ({"model": "gpt2", "cluster": {"gpus_per_node": 0}}, 422, "cluster.gpus_per_node", "not 0"),
        ({"model": "gpt2", "cluster": {"gpu": "h1000"}}, 422, "cluster.gpu", "did you mean h100"),
        ({"model": "../../etc/passwd"}, 422, "model", "is not a model id"),
        ({"model": "$(reboot)"}, 422, "model", "is not a model id"),
        ({"model": "gpt2\nrm -rf /"}, 422, "model", "is not a model id"),
        ({"model": "gpt2\x00"}, 422, "model", "is not a model id"),
        ({"model": {"model_type": "no-such-type"}}, 422, "model", "is not known yet"),
        ({"model": {"n_embd": 1}}, 422, "model", "has no model_type"),
        ({"model": {"model_type": ["llama"]}}, 422, "model", "that is no text"),
        (
            {**GPT2, "recipe": {"global_batch_size": 10}},
            422,
            "recipe.global_batch_size",
            "nearest: 8 or 12",
        ),
        (
            {"model": "gpt2", "cluster": {"gpus_per_node": 2, "topology": "GPU0 GPU1\nGPU0 X"}},
            422,
            "cluster.topology",
            "nvidia-smi topo -m",
        ),
        (
            {**GPT2, "strategy": {"tensor_parallel_size": 5}},
            422,
            "strategy.tensor_parallel_size",
            "attention heads",
        ),
        ({"model": "openai/gtp2"}, 502, "model", "did you mean"),
        (
            {"model": "meta-llama/Llama-2-70b-hf", "cluster": {"gpu": "t4", "gpus_per_node": 2}},
            409,
            "cluster",
            "nothing fits",
        ),
        ([1], 422, "", "must be an object"),
        (None, 422, "", "must be an object"),
    ],
)
def test_bad_request_is_a_problem_with_a_field_and_what_to_do(
    client: TestClient, body: object, status: int, field: str, says: str
) -> None:
    answer = client.post("/v1/suggest", content=json.dumps(body))
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer.headers["content-type"] == PROBLEM
    assert says in answer.text
    assert any(item["field"].startswith(field) for item in problem["errors"])
    assert problem["instance"] == "/v1/suggest"
    assert problem["type"].startswith("urn:planner:")


def test_every_problem_of_a_body_is_listed(client: TestClient) -> None:
    body = {"cluster": {"gpus_per_node": "4", "nodes": -1}, "recipe": {"precison": "bf16"}}
    errors = client.post("/v1/estimate", json=body).json()["errors"]
    fields = {"model", "cluster.gpus_per_node", "cluster.nodes", "recipe.precison"}
    assert {item["field"] for item in errors} == fields
    assert any("precision" in item["hint"] for item in errors)


def test_topology_answers_what_the_library_answers(client: TestClient) -> None:
    answer = client.post("/v1/topology", json={"text": PAIR})
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(parse_topology(PAIR).to_wire()))
    assert answer.json()["nvlink"] == {"0-1": 12}
    assert answer.json()["islands"] == [[0, 1]]


def test_findings_of_a_topology_are_named(client: TestClient) -> None:
    text = PAIR.replace("NV12", "SYS").replace("GPU1    SYS     X", "")
    findings = client.post("/v1/topology", json={"text": text}).json()["findings"]
    assert [finding["code"] for finding in findings] == ["TOP001"]


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"texts": PAIR}, "texts", "did you mean text?"),
        ({"text": PAIR, "q" * 200: 1}, "q", "known: text"),
        ({}, "text", "is missing"),
        ({"text": 5}, "text", "must be text"),
        ({"text": None}, "text", "must be text"),
        ({"text": "x" * (LARGEST_TEXT + 1)}, "text", f"at most {LARGEST_TEXT:,}"),
        ({"text": ""}, "text", "no header line with GPU0"),
        ({"text": "no matrix"}, "text", "nvidia-smi topo -m"),
        ({"text": PAIR.replace("NV12     X", "NVX    X")}, "text", "lines 2 and 3"),
        ({"text": "{"}, "text", "is not JSON"),
        ({"text": '{"gpuss": 2}'}, "text", "did you mean gpus"),
        ([PAIR], "", "must be an object"),
        (None, "", "must be an object"),
    ],
)
def test_topology_that_cannot_be_read_is_a_problem_with_a_hint(
    client: TestClient, body: object, field: str, says: str
) -> None:
    answer = client.post("/v1/topology", content=json.dumps(body))
    problem = answer.json()
    assert answer.status_code == problem["status"] == 422
    assert answer.headers["content-type"] == PROBLEM
    assert says in problem["detail"] + problem["hint"] + str(problem["errors"])
    assert any(item["field"].startswith(field) and item["hint"] for item in problem["errors"])


def test_every_problem_of_a_topology_body_is_listed(client: TestClient) -> None:
    errors = client.post("/v1/topology", json={"txt": PAIR, "gpu": "t4"}).json()["errors"]
    assert {item["field"] for item in errors} == {"text", "txt", "gpu"}


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b"text=GPU0"])
def test_topology_body_that_is_no_json_is_a_bad_request(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/topology", content=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == PROBLEM


def test_topology_body_over_a_mebibyte_is_refused(client: TestClient) -> None:
    body = json.dumps({"text": PAIR}).encode().ljust(LARGEST_BODY_BYTES + 1)
    assert client.post("/v1/topology", content=body).status_code == 413


def test_topology_with_half_a_surrogate_pair_is_answered(client: TestClient) -> None:
    body = b'{"text": "{\\"gpus\\": 1, \\"nics\\": [\\"\\ud800\\"]}"}'
    assert client.post("/v1/topology", content=body).status_code in {200, 422}


def test_unknown_model_is_not_found_and_names_similar_ones(
    client: TestClient, hub_that_raises: Any
) -> None:
    hub_that_raises(RepositoryNotFoundError)
    answer = client.post("/v1/suggest", json={"model": "openai/gtp2"})
    assert answer.status_code == 404
    assert answer.json()["hint"].startswith("did you mean openai-community/gpt2")


def test_gated_model_is_forbidden(client: TestClient, hub_that_raises: Any) -> None:
    hub_that_raises(GatedRepoError)
    answer = client.get("/v1/models/some/gated-model")
    assert answer.status_code == 403
    assert "HF_TOKEN" in answer.json()["hint"]


def test_files_of_the_server_are_not_read(client: TestClient) -> None:
    for name in ("/etc/passwd", "./data/models", "tests", "/v1/models/..%2F..%2Fetc%2Fpasswd"):
        answer = client.post("/v1/suggest", json={"model": name})
        assert answer.status_code in {422, 502}
    assert client.get("/v1/models/..%2F..%2Fetc%2Fpasswd").status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\xff",
        b'{"model": NaN}',
        b'{"model": -Infinity}',
        b"[" * 100_000,
        b'{"model":' * 5000,
        b"9" * 5000,
        b"model=gpt2",
        b'{"model": "gpt2", "model": "bert-base-uncased"}',
        b'{"model": "gpt2", "cluster": {"nodes": 1, "nodes": 2}}',
    ],
)
def test_body_that_is_no_json_is_a_bad_request(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/suggest", content=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == PROBLEM
    said = answer.json()
    assert said["detail"].startswith("the body is not JSON")
    assert (said["type"], said["errors"][0]["hint"]) == ("urn:planner:malformed", said["hint"])
    line = client.post("/v1/suggest/batch", content=body.replace(b"\n", b" ")).text
    if line:  # an empty one is none
        told = json.loads(line)["error"]
        assert [told[key] for key in ("type", "message", "hint")] == [
            said[key] for key in ("type", "detail", "hint")
        ]


def test_nesting_that_only_the_message_cannot_show_is_a_bad_request(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_deep(_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("api.body.parse_request", too_deep)
    assert client.post("/v1/suggest", json=GPT2).status_code == 400


def test_body_over_a_mebibyte_is_refused(client: TestClient) -> None:
    just_right = json.dumps(GPT2).encode().ljust(LARGEST_BODY_BYTES)
    assert client.post("/v1/suggest", content=just_right).status_code == 200
    answer = client.post("/v1/suggest", content=just_right + b" ")
    assert answer.status_code == 413
    assert answer.headers["content-type"] == PROBLEM


def test_half_a_surrogate_pair_is_echoed_or_refused(client: TestClient) -> None:
    for body in (b'{"id": "\\ud800", "model": "gpt2"}', b'{"\\ud800": 1}'):
        assert client.post("/v1/estimate", content=body).status_code in {200, 422}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/v1", 404),
        ("/v1/rules/XYZ999", 404),
        ("/v1/terms/nothing-like-it", 404),
        ("/v1/gpus/h1000", 404),
        ("/v1/instances/p9.xlarge", 404),
        ("/v1/suggest", 405),
        ("/v1/topology", 405),
        ("/static/../main.py", 404),
    ],
)
def test_what_is_not_there_is_a_problem(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == answer.json()["status"] == status
    assert answer.headers["content-type"] == PROBLEM


@pytest.mark.parametrize(
    ("path", "field", "hint"),
    [
        ("/v1/gpus/zzz", "name", "`GET /v1/gpus` lists all of them"),
        ("/v1/links/zzz", "name", "`GET /v1/links` lists all of them"),
        ("/v1/instances/zzz", "name", "`GET /v1/instances` lists all of them"),
        ("/v1/rules/zzz", "code", "`GET /v1/rules or /v1/terms` lists all codes and terms"),
    ],
)
def test_an_unknown_name_is_told_where_names_are_listed(
    client: TestClient, path: str, field: str, hint: str
) -> None:
    said = client.get(path).json()
    assert (said["field"], said["hint"]) == (field, hint)
    assert [each["field"] for each in said["errors"]] == [field]


def test_wrong_method_says_which_is_right(client: TestClient) -> None:
    assert client.get("/v1/suggest").headers["allow"] == "POST"
    assert client.delete("/plan").status_code == 405


def test_unexpected_exception_says_nothing_of_itself(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(answers, "suggest", fail)
    for answer in (
        client.post("/v1/suggest", json=GPT2),
        client.get("/plan", params={"model": "gpt2"}),
    ):
        assert answer.status_code == 500
        assert "secret detail" not in answer.text
        assert "Traceback" not in answer.text
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/", "/v1/gpus", "/nowhere", "/v1/suggest", "/static/style.css", "/plan", "/rules"]
)
def test_every_answer_forbids_frames_and_scripts_of_others(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_probes_answer(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["gpus"] == len(records.gpu_names())
    assert client.head("/healthz").status_code == 200


def test_unreadable_catalogue_is_not_ready(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(records, "gpu_names", fail)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == PROBLEM


def test_models_are_listed_and_described(client: TestClient) -> None:
    assert "openai-community/gpt2" in client.get("/v1/models").json()["models"]
    described = client.get("/v1/models/openai-community/gpt2").json()
    assert described["parameters"] == 124_439_808
    assert client.get("/v1/models/gpt2").json() == described


def test_gpus_are_listed_and_described_by_any_name(client: TestClient) -> None:
    listed = client.get("/v1/gpus").json()["gpus"]
    assert [gpu["name"] for gpu in listed] == list(records.gpu_names())
    described = client.get("/v1/gpus/NVIDIA H100 80GB HBM3").json()
    assert described["name"] == "h100-sxm-80gb"
    assert described in listed


def test_instances_are_listed_and_described_in_any_case(client: TestClient) -> None:
    listed = client.get("/v1/instances").json()["instances"]
    assert [instance["name"] for instance in listed] == list(records.instance_names())
    described = client.get("/v1/instances/STANDARD_nd96isr_h100_v5").json()
    assert described["gpu"] == "h100-sxm-80gb"
    assert described["usd_per_hour"] is None
    assert described in listed


def test_a_plan_for_an_instance_by_name(client: TestClient) -> None:
    body = {"model": "gpt2", "cluster": {"instance": "p4d.24xlarge", "nodes": 2}}
    answer = client.post("/v1/suggest", json=body).json()
    assert answer["job"]["cluster"]["gpu"] == "a100-sxm-40gb"
    assert answer["job"]["cluster"]["inter_node"]["name"] == "p4d.24xlarge network, 400 Gbit/s"
    fields = {assumption["field"] for assumption in answer["assumptions"]}
    assert not any(field.startswith("cluster.") for field in fields)


def test_rules_are_listed_and_explained(client: TestClient) -> None:
    listed = client.get("/v1/rules").json()["rules"]
    assert [rule["code"] for rule in listed] == [
        *(rule.code for rule in rules.RULES),
        *(limit.code for limit in LIMITS),
        *(rule.code for rule in configs.RULES),
        *(rule.code for rule in SCRIPT_RULES),
        *(code for code, _ in TIMING_RULES),
        *findings("topology"),
        *findings("probe"),
        *findings("check"),
    ]
    for rule in listed:
        assert client.get(f"/v1/rules/{rule['code'].lower()}").json() == rule
        assert set(rule) == {"code", "name", "severity", "text"}


def test_terms_are_listed_and_explained(client: TestClient) -> None:
    listed = client.get("/v1/terms").json()["terms"]
    by_name = {term["name"]: term for term in listed}
    assert {"ddp", "zero-3", "tensor-parallelism"} <= set(by_name)
    assert client.get("/v1/terms/Activation%20checkpointing").json() == by_name["recompute"]
    assert client.get("/v1/terms/sharded").json() == by_name["zero"]
    torch = {"framework": "torch", "version": "2.13.0", "text": "Schedule1F1B"}
    assert torch in by_name["1f1b"]["names"]


def test_an_unknown_term_names_the_nearest(client: TestClient) -> None:
    answer = client.get("/v1/terms/tensor-paralelism")
    assert answer.status_code == 404
    assert "tensor parallel" in answer.json()["hint"]


def test_paths_are_never_allowed(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def refuse(name: str, *, allow_paths: bool) -> hub.ModelSource:
        seen.append(allow_paths)
        raise PlannerError(name)

    monkeypatch.setattr(hub, "find_model", refuse)
    client.post("/v1/suggest", json=GPT2)
    client.post("/v1/estimate", json=GPT2)
    client.get("/v1/models/gpt2")
    for path in ("/plan", "/plan.json", "/plan.zip"):
        client.get(path, params={"model": "gpt2"})
    assert seen == [False] * 6
