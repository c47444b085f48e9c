"""Requests that schemathesis makes of the description, and mutated bodies: each answer is described.

The suite asks a few; `make fuzz-api` 10,000 and 50,000.
"""

import json
import os
import random
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from huggingface_hub import constants
from hypothesis import HealthCheck, Phase, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.main import create_app
from api.settings import Settings

CASES = int(os.environ.get("FUZZ_CASES", "1"))
"""Of each route."""
MUTATIONS = int(os.environ.get("FUZZ_MUTATIONS", "40"))
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
BODIES: list[dict[str, Any]] = [
    {"model": "gpt2", "cluster": {"gpus_per_node": 4}},
    {
        "id": 1,
        "model": "bert-base-uncased",
        "cluster": {"gpu": "t4", "gpus_per_node": 2, "nodes": 2, "inter_node": "ethernet-10g"},
        "recipe": {"sequence_length": 128, "global_batch_size": 64, "precision": "fp16-mixed"},
        "strategy": {"zero_stage": 1, "micro_batch_size": 8, "recompute": "none"},
    },
]
ODD = [None, True, -1, 0, 2**40, 0.5, "", "x" * 300, "\ud800", [], {}, [[]], {"a": {"b": 1}}]

APP = create_app(Settings(processes=0))
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)


@pytest.fixture(autouse=True, scope="module")
def _offline() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield


@SCHEMA.parametrize()
@settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=[*CHECKS, not_a_server_error], excluded_checks=_at_odds(case))


def _at_odds(case: schemathesis.Case) -> list[Any]:
    """Return no checks but that of 5xx where the Hub, which is out of reach, would be asked."""
    return [not_a_server_error] if "model" in str(case.path) or case.method == "POST" else []


def mutated(rng: random.Random) -> bytes:
    """Return a body with keys in capitals, twice, unknown or gone, or with odd values."""
    body = json.loads(json.dumps(rng.choice(BODIES)))
    for _ in range(rng.randint(1, 3)):
        section = rng.choice([body, *(value for value in body.values() if isinstance(value, dict))])
        key = rng.choice([*section, "unknown"])
        match rng.randrange(5):
            case 0:
                section[key.upper()] = section.pop(key, 1)
            case 1:
                section[f"{key}s"] = rng.choice(ODD)
            case 2:
                section[key] = rng.choice(ODD)
            case 3:
                section.pop(key, None)
            case _:
                section[key.capitalize()] = section.get(key)
    text = json.dumps(body)
    if rng.random() < 0.2:
        text = text.replace("{", '{"model": "gpt2", ', 1)
    return text.encode()


def test_every_mutated_body_is_answered_as_described() -> None:
    client = TestClient(APP, raise_server_exceptions=False)
    description = client.get("/openapi.json").json()
    components, paths = description["components"], description["paths"]
    validators = {
        (path, status): Draft202012Validator({**said["schema"], "components": components})
        for path in ("/v1/suggest", "/v1/estimate", "/v1/memory")
        for status, answer in paths[path]["post"]["responses"].items()
        for said in answer["content"].values()
    }
    rng = random.Random(7)
    for _ in range(MUTATIONS):
        path, body = rng.choice(["/v1/suggest", "/v1/estimate", "/v1/memory"]), mutated(rng)
        answer = client.post(path, content=body)
        assert answer.status_code in {200, 400, 403, 404, 409, 422, 502}, (path, body, answer.text)
        validators[path, str(answer.status_code)].validate(answer.json())
