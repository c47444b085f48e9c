"""An example of each answer for the description: what the planner really answers, of each list the first."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from api import batch_route, catalog, doctor, jobs, machines, operations, race
from planner.catalog.records import read

_GPT2 = b'{"model": "gpt2", "cluster": {"gpus_per_node": 4}}'
_LAYOUT = b'{"model": "gpt2", "cluster": {"gpus_per_node": 4}, "strategy": {"zero_stage": 0}}'
_COMMAND = b'{"command": "torchrun train.py --nproc_per_node 4"}'
_PAIR = b'{"text": "        GPU0    GPU1\\nGPU0     X      NV12\\nGPU1    NV12     X"}'
_JOB = (
    b'{"id": "0123456789abcdef0123456789abcdef", "state": "going", "answer": null, "problem": null}'
)
_MOST_ITEMS, _LONGEST_TEXT = 1, 400

_EXAMPLES: Mapping[tuple[str, str], Callable[[], bytes]] = {
    ("post", "/v1/suggest"): lambda: _timeless(jobs.suggestion(_GPT2).body),
    ("post", "/v1/jobs"): lambda: _JOB,
    ("get", "/v1/jobs/{id}"): lambda: _JOB,
    ("post", "/v1/estimate"): lambda: jobs.estimation(_LAYOUT).body,
    ("post", "/v1/memory"): lambda: jobs.memory(_LAYOUT).body,
    ("post", "/v1/bundle"): lambda: jobs.bundle(_GPT2).body,
    ("post", "/v1/check"): lambda: jobs.check(_COMMAND).body,
    ("post", "/v1/topology"): lambda: jobs.topology(_PAIR).body,
    ("post", "/v1/doctor/timings"): lambda: doctor.timings(_first("timings")).body,
    ("post", "/v1/doctor/scripts"): lambda: doctor.scripts(_first("scripts")).body,
    ("post", "/v1/doctor/log"): lambda: doctor.log(_first("log")).body,
    ("post", "/v1/batch"): lambda: batch_route.batch_plan(_first("batch")).body,
    ("post", "/v1/replicas"): lambda: jobs.replicas(_GPT2).body,
    ("post", "/v1/machines"): lambda: _undated(machines.machine(_first("machine")).body),
    ("post", "/v1/race"): lambda: race.race(_first("race")).body,
    ("get", "/v1/models"): lambda: bytes(catalog.models().body),
    ("get", "/v1/models/{name}"): lambda: jobs.model("gpt2").body,
    ("get", "/v1/gpus"): lambda: bytes(catalog.gpus().body),
    ("get", "/v1/gpus/{name}"): lambda: bytes(catalog.gpu("h100").body),
    ("get", "/v1/links"): lambda: bytes(catalog.links().body),
    ("get", "/v1/links/{name}"): lambda: bytes(catalog.link("infiniband-ndr").body),
    ("get", "/v1/instances"): lambda: bytes(catalog.instances().body),
    ("get", "/v1/instances/{name}"): lambda: bytes(catalog.instance("p5.48xlarge").body),
    ("get", "/v1/frameworks"): lambda: bytes(catalog.frameworks().body),
    ("get", "/v1/frameworks/{name}"): lambda: bytes(catalog.framework("torch").body),
    ("get", "/v1/accuracy"): lambda: bytes(catalog.accuracy_sources().body),
    ("get", "/v1/accuracy/{source}"): lambda: jobs.accuracy("torchtitan").body,
    ("get", "/v1/rules"): lambda: bytes(catalog.list_rules().body),
    ("get", "/v1/rules/{code}"): lambda: bytes(catalog.rule("MEM001").body),
    ("get", "/v1/terms"): lambda: bytes(catalog.terms().body),
    ("get", "/v1/terms/{name}"): lambda: bytes(catalog.term("ddp").body),
    ("get", "/healthz"): lambda: b'{"status": "ok"}',
    ("get", "/readyz"): lambda: bytes(operations.readyz().body),
    ("get", "/version"): lambda: bytes(operations.get_version().body),
}


def add_examples(paths: Mapping[str, Mapping[str, Any]]) -> None:
    """Add an example to what each described route answers in JSON."""
    for (method, path), answer in _EXAMPLES.items():
        responses = paths[path][method]["responses"]
        content = responses[min(responses)]["content"]["application/json"]
        content["example"] = _shortened(json.loads(answer()))


def _first(name: str) -> bytes:
    examples = read("request", "bodies")[name]["examples"]
    return jobs.to_json(next(iter(examples.values()))["value"])


def _undated(answer: bytes) -> bytes:
    said = json.loads(answer)
    return jobs.to_json({**said, "machine": {**said["machine"], "created": "2026-11-22"}})


def _timeless(answer: bytes) -> bytes:
    """Return a suggestion without what its search took, so that a description is the same each time."""
    said = json.loads(answer)
    return jobs.to_json({**said, "search": {**said["search"], "seconds": 0.1}})


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner) for inner in value[:_MOST_ITEMS]]
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value
