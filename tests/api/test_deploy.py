"""The manifests of api/deploy are what their consumers read, and fit the service."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes.client import ApiClient
from needed import need
from redis import Redis
from served import served

from api.settings import Settings
from planner.cli import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "api" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
OBJECTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
KEYS = {
    *("image", "build", "command", "environment", "ports", "configs", "depends_on", "restart"),
    *("read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period", "deploy"),
}
"""Of a service, by the Compose specification."""
CLASSES = {
    "Deployment": "V1Deployment",
    "Service": "V1Service",
    "HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler",
    "PodDisruptionBudget": "V1PodDisruptionBudget",
}


def image() -> str:
    return (ROOT / "Dockerfile").read_text()


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [
        each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return dict(found)


def container() -> dict[str, Any]:
    (only,) = named("Deployment", "planner")["spec"]["template"]["spec"]["containers"]
    return dict(only)


@pytest.mark.parametrize(
    "described", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_kubernetes_knows_every_field(described: dict[str, Any]) -> None:
    client = ApiClient()
    answer = SimpleNamespace(data=json.dumps(described))
    read = client.deserialize(answer, CLASSES[described["kind"]])
    assert client.sanitize_for_serialization(read) == described
    kubernetes_validate.validate(described, "1.37", strict=True)


def test_probes_ask_for_what_there_is() -> None:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container()[probe]["httpGet"]["path"] in {"/healthz", "/readyz"}
    assert container()["ports"][0]["containerPort"] == 8000
    assert "EXPOSE 8000" in image()


def test_every_setting_is_one_of_the_service() -> None:
    names = {entry["name"]: entry["value"] for entry in container()["env"]}
    composed = dict(COMPOSE["services"]["api"]["environment"])
    assert composed.pop("FORWARDED_ALLOW_IPS") == "*"  # uvicorn's own
    for given in (names, composed):
        fields = {name.removeprefix("PLANNER_").lower(): value for name, value in given.items()}
        assert set(fields) <= set(Settings.model_fields)
        Settings(**fields)


def test_the_user_is_the_image_s() -> None:
    security = named("Deployment", "planner")["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {security['runAsUser']}" in image()


def test_shutting_down_takes_less_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: started.append(words))
    (command,) = re.findall(r"^CMD (.+)$", image(), re.MULTILINE)
    cli.main(json.loads(command), standalone_mode=False)
    (words,) = started
    seconds = int(words[words.index("--timeout-graceful-shutdown") + 1])
    spec = named("Deployment", "planner")["spec"]["template"]["spec"]
    assert seconds < spec["terminationGracePeriodSeconds"]
    assert seconds < int(COMPOSE["services"]["api"]["stop_grace_period"].removesuffix("s"))


def test_services_and_the_autoscaler_select_what_there_is() -> None:
    for name in ("planner", "planner-redis"):
        selected = named("Service", name)["spec"]["selector"]
        assert named("Deployment", name)["spec"]["template"]["metadata"]["labels"] == selected
        assert named("Deployment", name)["spec"]["selector"]["matchLabels"] == selected
    scaled = named("HorizontalPodAutoscaler", "planner")["spec"]["scaleTargetRef"]["name"]
    assert container()["resources"]["requests"]["cpu"]
    assert scaled == "planner"
    hosts = {entry["value"] for entry in container()["env"] if entry["name"] == "PLANNER_REDIS_URL"}
    assert hosts == {"redis://planner-redis:6379/0"}


def test_compose_builds_this_image_and_knows_its_services() -> None:
    api, proxy = COMPOSE["services"]["api"], COMPOSE["services"]["proxy"]
    assert COMPOSE.keys() <= {"services", "configs"}
    assert all(each.keys() <= KEYS for each in COMPOSE["services"].values())
    assert api["deploy"]["replicas"] == 2
    assert "ports" not in api
    (config,) = proxy["configs"]
    told = COMPOSE["configs"][config["source"]]["content"]
    assert "proxy_pass http://api:8000;" in told
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
                name: said for name, said in settings.items() if name.startswith("PLANNER_")
            }
            given = {name.removeprefix("PLANNER_"): value for name, value in settings.items()}
            url = given["REDIS_URL"].replace("redis:6379", f"127.0.0.1:{port}")
            with served(**{**given, "REDIS_URL": url}) as service:
                assert service.post({"model": "gpt2"})[0] == 200
            assert Redis.from_url(url).dbsize() == 1
        finally:
            redis.kill()
