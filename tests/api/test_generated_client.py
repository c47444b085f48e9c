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
import io, json, sys, zipfile
from planner_client import Client
from planner_client.api.default import (
    batch_v1_batch_post as batch,
    bundle_v1_bundle_post as bundle,
    estimate_v1_estimate_post as estimate,
    machine_v1_machines_post as machines,
    suggest_v1_suggest_post as suggest,
    timings_v1_doctor_timings_post as timings,
    zipped_bundle_v1_bundle_zip_post as zipped,
)
from planner_client.models import BatchRequest, MachineRequest, Problem, Request, TimingsRequest

client = Client(base_url=sys.argv[1], timeout=300)
asked = Request.from_dict({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
layout = Request.from_dict({**asked.to_dict(), "strategy": {"zero_stage": 2}})
refused = suggest.sync(client=client, body=Request.from_dict({"model": "gpt2", "cluster": {"gpu": "h1000"}}))
times = [{"gpus": 1, "seconds": 43.1}, {"gpus": 4, "seconds": 48.2}]
run = {"request": layout.to_dict(), "step_seconds": 0.4}
archive = zipped.sync_detailed(client=client, body=asked).content
print(json.dumps({
    "family": suggest.sync(client=client, body=asked).chosen.family,
    "zero_stage": estimate.sync(client=client, body=layout).strategy.zero_stage,
    "files": sorted(bundle.sync(client=client, body=asked).files.to_dict()),
    "zipped": sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist()),
    "diagnosis": timings.sync(client=client, body=TimingsRequest.from_dict({"times": times})).code,
    "batch": batch.sync(client=client, body=BatchRequest.from_dict({"global_batch_size": 8})).splits[0].micro_batch_size,
    "machine": machines.sync(client=client, body=MachineRequest.from_dict({"runs": [run]})).machine.kind,
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
    assert (said["family"], said["zero_stage"]) == ("ddp", 2)
    assert "trainer/train.py" in said["files"]
    assert said["zipped"] == [f"plan/{name}" for name in said["files"]]
    assert (said["diagnosis"], said["batch"], said["machine"]) == ("TIM003", 8, "planner-machine")
    assert said["refused"] == [True, "cluster.gpu"]
