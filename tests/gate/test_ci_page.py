"""What docs/ci.md shows is run: the job of GitLab, the calls of curl; the workflow's words are the action's."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from shutil import which

import pytest
import yaml
from committed import plan_answer
from junitparser import JUnitXml
from needed import need

from planner import __version__

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")


def block(language: str, words: str) -> str:
    """Return the block of the page with these words in it."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (only,) = (each for each in found if words in each)
    return str(only)


def bash(
    script: str, folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [which("bash") or "bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_workflow_gives_what_the_action_takes() -> None:
    action = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text())
    workflow = yaml.safe_load(block("yaml", "OWNER/trainplan"))
    (step,) = (step for step in workflow["jobs"]["plan"]["steps"] if "with" in step)
    assert set(step["with"]) <= set(action["inputs"])
    action_at, tag = step["uses"].removeprefix("OWNER/trainplan/").split("@")
    assert (action_at, tag) == (".github/actions/check", f"v{__version__}")
    assert workflow["permissions"]["pull-requests"] == "write"
    for name in ("locked", "sarif", "junit", "max-growth"):
        assert f"`{name}" in PAGE
        assert name in action["inputs"]


@pytest.mark.parametrize("memory", [20, 39])
def test_the_job_of_gitlab_judges_and_leaves_a_report(tmp_path: Path, memory: int) -> None:
    job = yaml.safe_load(block("yaml", "CI_MERGE_REQUEST_DIFF_BASE_SHA"))["plan"]
    plan = plan_answer()
    plan["chosen"]["memory"] |= {"reserved_bytes": memory * 2**30, "usable_bytes": 40 * 2**30}
    file = tmp_path / job["variables"]["FILE"]
    file.parent.mkdir()
    file.write_text(json.dumps(plan))
    (tmp_path / "planner").write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from planner.cli import main; main()' \"$@\"\n"
    )
    (tmp_path / "planner").chmod(0o755)
    made = bash(
        "git init -q; git add -A; git -c user.name=a -c user.email=a@b.c commit -qm a; git rev-parse HEAD",
        tmp_path,
        {},
    )
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    base = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": made.stdout.strip()}
    ended = bash("\n".join(job["script"]), tmp_path, path | job["variables"] | base)
    assert ended.returncode == (4 if memory > 36 else 0), ended.stderr
    report = JUnitXml.fromfile(str(tmp_path / job["artifacts"]["reports"]["junit"]))
    assert report.failures == (1 if memory > 36 else 0)
    assert "Nothing differs" in (tmp_path / job["artifacts"]["paths"][0]).read_text()


@pytest.fixture
def service() -> Generator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "api.main:app", "--port", str(port)]
    environment = {**os.environ, "PLANNER_PROCESSES": "0", "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait(timeout=30)


def test_the_calls_of_curl_judge_what_a_service_plans(tmp_path: Path, service: str) -> None:
    need("curl", get="apt-get install curl")
    script = block("bash", "PLANNER_URL")
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "gpt2", "cluster": {"gpu": "a100"}}))
    ended = bash(script.replace("1.5'", "100'"), tmp_path, {"PLANNER_URL": service})
    assert (ended.returncode, ended.stdout) == (0, "true\n"), ended.stderr
    ended = bash(script.replace("1.5'", "0.001'"), tmp_path, {"PLANNER_URL": service})
    assert (ended.returncode, ended.stdout) == (1, "false\n")
    large = {"model": "meta-llama/Llama-2-70b-hf", "cluster": {"gpu": "t4", "gpus_per_node": 1}}
    request.write_text(json.dumps(large))
    ended = bash(script, tmp_path, {"PLANNER_URL": service})
    assert ended.returncode == 22
    assert "409" in ended.stderr
