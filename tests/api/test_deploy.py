"""The Compose file is what Compose reads, and fits the service."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from needed import need
from redis import Redis
from served import served

from api.settings import Settings
from planner.cli import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "api" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
KEYS = {
    *("image", "build", "command", "environment", "ports", "configs", "depends_on", "restart"),
    *("read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period", "deploy"),
}
"""Of a service, by the Compose specification."""


def image() -> str:
    return (ROOT / "Dockerfile").read_text()


def test_every_setting_is_one_of_the_service() -> None:
    composed = dict(COMPOSE["services"]["api"]["environment"])
    assert composed.pop("FORWARDED_ALLOW_IPS") == "*"  # uvicorn's own
    assert composed.pop("HF_TOKEN") is None  # the Hub's own
    fields = {name.removeprefix("PLANNER_").lower(): value for name, value in composed.items()}
    assert set(fields) <= set(Settings.model_fields)
    # What has no value is taken from the shell, and is not there where the shell has none.
    handed = {name for name, value in fields.items() if value is None}
    assert handed == {"api_keys", "rate"}
    Settings(**{name: value for name, value in fields.items() if name not in handed})


def test_shutting_down_takes_less_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: started.append(words))
    (command,) = re.findall(r"^CMD (.+)$", image(), re.MULTILINE)
    cli.main(json.loads(command), standalone_mode=False)
    (words,) = started
    seconds = int(words[words.index("--timeout-graceful-shutdown") + 1])
    chart = (DEPLOY / "chart" / "templates" / "planner.yaml").read_text()
    (of_a_pod,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", chart)
    assert seconds < int(of_a_pod)
    assert seconds < int(COMPOSE["services"]["api"]["stop_grace_period"].removesuffix("s"))


def test_compose_builds_this_image_and_knows_its_services() -> None:
    api, proxy = COMPOSE["services"]["api"], COMPOSE["services"]["proxy"]
    assert COMPOSE.keys() <= {"services", "configs"}
    assert all(each.keys() <= KEYS for each in COMPOSE["services"].values())
    assert api["deploy"]["replicas"] == 2
    assert "ports" not in api
    (config,) = proxy["configs"]
    told = COMPOSE["configs"][config["source"]]["content"]
    assert "set $$replicas api:8000;" in told
    assert "X-Forwarded-For $$remote_addr;" in told
    assert not re.search(r"(?<!\$)\$(?!\$)", told.replace("$$", ""))
    assert (DEPLOY / api["build"]).resolve() == ROOT
    assert set(api["depends_on"]) <= set(COMPOSE["services"])
    assert proxy["ports"] == ["8000:8000"]
    assert api["environment"]["PLANNER_REDIS_URL"] == "redis://redis:6379/0"


def test_what_compose_starts_answers(tmp_path: Path) -> None:
    program, *arguments = COMPOSE["services"]["redis"]["command"]
    path = need(program, get="apt-get install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with subprocess.Popen(
        [path, *arguments, "--port", port, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL
    ) as redis:
        try:
            settings = COMPOSE["services"]["api"]["environment"]
            settings = {
                name: said
                for name, said in settings.items()
                if name.startswith("PLANNER_") and said
            }
            given = {name.removeprefix("PLANNER_"): value for name, value in settings.items()}
            url = given["REDIS_URL"].replace("redis:6379", f"127.0.0.1:{port}")
            with served(**{**given, "REDIS_URL": url}) as service:
                assert service.post({"model": "gpt2"})[0] == 200
            assert Redis.from_url(url).dbsize() == 1
        finally:
            redis.kill()
