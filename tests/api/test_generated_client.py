"""A client that openapi-python-client makes of the description plans, estimates and fetches files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from served import served

from api.description import described

GENERATOR = "openapi-python-client==0.29.1"

CONFIG = """
package_name_override: planner_client
content_type_overrides:
  application/zip: application/octet-stream
  application/jsonl: application/octet-stream
post_hooks: []
"""
"""The generator knows neither type, both are bytes; what it would format afterwards it looks for in PATH."""

USE = """
import importlib, io, json, pkgutil, sys, time, zipfile
from planner_client import Client, api
from planner_client.api.later import begin_job, job, leave_job
from planner_client.api.planning import bundle, estimate, estimate_many, suggest, suggest_many, zipped_bundle
from planner_client.api.questions import batch, machine, raced as shown, timings
from planner_client.models import (
    BatchRequest, EstimateLine, MachineRequest, Problem, RaceRequest, RefusedLine, Request, SuggestionLine, TimingsRequest,
)
from planner_client.types import File

client = Client(base_url=sys.argv[1], timeout=300)
asked = Request.from_dict({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
layout = Request.from_dict({**asked.to_dict(), "strategy": {"zero_stage": 2}})
refused = suggest.sync(client=client, body=Request.from_dict({"model": "gpt2", "cluster": {"gpu": "h1000"}}))
times = [{"gpus": 1, "seconds": 43.1}, {"gpus": 4, "seconds": 48.2}]
run = {"request": layout.to_dict(), "step_seconds": 0.4}
raced = {"name": "ddp", "state": "known", "steps": 16, "planned_step_seconds": 0.1, "planned_peak_bytes": 8e9, "planned_reserved_bytes": 9e9}
raced["step"] = {"seconds": 0.09, "low": 0.0885, "high": 0.0895}
begun = begin_job.sync(client=client, body=asked)
states = [begun.state]
while states[-1] == "going":
    time.sleep(0.2)
    made = job.sync(begun.id, client=client)
    states.append(made.state)
left = leave_job.sync_detailed(begun.id, client=client).status_code
archive = zipped_bundle.sync(client=client, body=asked).payload

def lines(route, *asked):
    sent = File(payload=io.BytesIO("\\n".join(map(json.dumps, asked)).encode()))
    return [json.loads(line) for line in route.sync(client=client, body=sent).payload]

suggested = lines(suggest_many, asked.to_dict(), {"modle": "gpt2"})
estimated = lines(estimate_many, layout.to_dict())
modules = [each.name for each in pkgutil.walk_packages(api.__path__, "planner_client.api.") if not each.ispkg]
print(json.dumps({
    "typed": {name: hasattr(importlib.import_module(name), "sync") for name in modules},
    "family": suggest.sync(client=client, body=asked).chosen.family,
    "zero_stage": estimate.sync(client=client, body=layout).strategy.zero_stage,
    "files": sorted(bundle.sync(client=client, body=asked).files.to_dict()),
    "zipped": sorted(zipfile.ZipFile(archive).namelist()),
    "diagnosis": timings.sync(client=client, body=TimingsRequest.from_dict({"times": times})).code,
    "batch": batch.sync(client=client, body=BatchRequest.from_dict({"global_batch_size": 8})).splits[0].micro_batch_size,
    "machine": machine.sync(client=client, body=MachineRequest.from_dict({"runs": [run]})).machine.kind,
    "race": shown.sync(client=client, body=RaceRequest.from_dict({"kind": "race", "plans": [raced]})).to_dict(),
    "job": [states[0], made.answer.chosen.family, left, job.sync(begun.id, client=client).status],
    "lines": [
        SuggestionLine.from_dict(suggested[0]).chosen.family,
        RefusedLine.from_dict(suggested[1]).error.type_,
        EstimateLine.from_dict(estimated[0]).strategy.zero_stage,
    ],
    "refused": [isinstance(refused, Problem), refused.errors[0].field],
}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of its own, as the generator's requirements are not ours."""
    uv = Path(sys.executable).with_name("uv")
    folder = tmp_path_factory.mktemp("generator")
    subprocess.run([uv, "venv", "--quiet", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [str(uv), "pip", "install", "--quiet", "--system-certs", "--python", str(python)]
    subprocess.run([*install, GENERATOR], check=True)
    return python


def test_a_generated_client_plans_estimates_and_fetches_files(python: Path, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(described().body)
    (tmp_path / "config.yaml").write_text(CONFIG)
    made = subprocess.run(
        [
            python.with_name("openapi-python-client"),
            *("generate", "--path", "openapi.json", "--config", "config.yaml"),
            *("--meta", "none", "--output-path", "planner_client", "--fail-on-warning"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    with served(processes=1, deadline_seconds=300) as service:
        used = subprocess.run(
            [python, "-c", USE, f"http://127.0.0.1:{service.port}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert used.returncode == 0, used.stderr
    said = json.loads(used.stdout)
    routes = [each for path in json.loads(described().body)["paths"].values() for each in path]
    assert len(said["typed"]) == len(routes)
    assert all(said["typed"].values()), said["typed"]
    assert (said["family"], said["zero_stage"]) == ("ddp", 2)
    assert "trainer/train.py" in said["files"]
    assert said["zipped"] == [f"plan/{name}" for name in said["files"]]
    assert (said["diagnosis"], said["batch"], said["machine"]) == ("TIM003", 8, "planner-machine")
    assert "ddp" in json.dumps(said["race"])
    assert said["job"] == ["going", "ddp", 204, 404]
    assert said["lines"] == ["ddp", "urn:planner:invalid-request", 2]
    assert said["refused"] == [True, "cluster.gpu"]
