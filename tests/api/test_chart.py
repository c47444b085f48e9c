"""Helm reads the chart, and Kubernetes what Helm makes of it; it fits the service."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from api.settings import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "api" / "deploy" / "chart"
HELM = "helm-python-sdk==0.2.2"
"""Helm's own library, of 4.2.3."""
RENDER = """
import json, sys
from helm_python.chart import Chart, lint
path, *values = sys.argv[1:]
chart = Chart.load(path)
def rendered(said):
    try:
        return "\\n---\\n".join(chart.render(said, name="planner").values())
    except Exception as error:
        return f"refused: {error}"
print(json.dumps([lint(path, strict=True), *(rendered(json.loads(each)) for each in values)]))
"""
WHOLE = {
    "secret": "keys",
    "forwardedAllowIps": "10.0.0.0/8",
    "settings": {"PLANNER_RATE": "60/minute", "PLANNER_LOGS": "text"},
    "ingress": {"host": "planner.example.org", "className": "nginx", "annotations": {"a": "b"}},
}
ALONE = {"redis": {"enabled": False}}
WRONG = ({"replica": 3}, {"replicas": {"least": "2"}}, {"settings": {"planner rate": "1"}})


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What Helm says of the chart, and makes of each set of values."""
    uv, folder = Path(sys.executable).with_name("uv"), tmp_path_factory.mktemp("helm")
    subprocess.run([uv, "venv", "--quiet", folder, "--python", sys.executable], check=True)
    python = folder / "bin" / "python"
    install = [str(uv), "pip", "install", "--quiet", "--system-certs", "--python", str(python)]
    subprocess.run([*install, HELM], check=True)
    asked = [json.dumps(each) for each in ({}, WHOLE, ALONE, *WRONG)]
    made = subprocess.run([python, "-c", RENDER, CHART, *asked], check=True, capture_output=True)
    return list(json.loads(made.stdout))


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    read = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in read}


def pod(text: str, name: str = "planner") -> dict[str, Any]:
    return dict(objects(text)["Deployment", name]["spec"]["template"]["spec"])


def test_helm_finds_no_fault_and_kubernetes_knows_every_field(rendered: list[Any]) -> None:
    assert not [each for each in rendered[0]["messages"] if each["severity"] > 1]
    for text in rendered[1:4]:
        for each in objects(text).values():
            kubernetes_validate.validate(each, "1.37", strict=True)


def test_values_that_cannot_be_are_refused_with_their_place(rendered: list[Any]) -> None:
    for said, place in zip(
        rendered[4:], ("replica", "/replicas/least", "planner rate"), strict=True
    ):
        assert said.startswith("refused")
        assert place in said


def test_a_pod_runs_the_image_as_its_user_and_is_asked_what_there_is(rendered: list[Any]) -> None:
    image = (ROOT / "Dockerfile").read_text()
    for text in rendered[1:4]:
        (api,) = pod(text)["containers"]
        assert f"USER {pod(text)['securityContext']['runAsUser']}" in image
        assert f"EXPOSE {api['ports'][0]['containerPort']}" in image
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert api[probe]["httpGet"]["path"] in {"/healthz", "/readyz"}
        assert {"cpu", "memory"} <= api["resources"]["limits"].keys()


def test_settings_and_secrets_are_the_service_s_own(rendered: list[Any]) -> None:
    said = []
    for text in rendered[1:4]:
        (api,) = pod(text)["containers"]
        names = {entry["name"]: entry["value"] for entry in api["env"]}
        own = {k.removeprefix("PLANNER_").lower(): v for k, v in names.items() if "PLANNER" in k}
        assert own.keys() <= Settings.model_fields.keys()
        Settings(**own)
        said.append((api.get("envFrom"), names))
    assert [names.get("PLANNER_REDIS_URL") for _, names in said] == [
        *["redis://planner-redis:6379/0"] * 2,
        None,
    ]
    assert said[1][0] == [{"secretRef": {"name": "keys"}}]
    assert said[1][1]["FORWARDED_ALLOW_IPS"] == "10.0.0.0/8"


def test_what_selects_finds_what_there_is(rendered: list[Any]) -> None:
    whole, alone = objects(rendered[2]), objects(rendered[3])
    for name in ("planner", "planner-redis"):
        labels = whole["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        assert whole["Service", name]["spec"]["selector"] == labels
        assert whole["Deployment", name]["spec"]["selector"]["matchLabels"] == labels
    allowed = whole["NetworkPolicy", "planner-redis"]["spec"]["ingress"][0]["from"]
    assert allowed == [{"podSelector": {"matchLabels": {"app": "planner"}}}]
    scaled = whole["HorizontalPodAutoscaler", "planner"]["spec"]
    assert (scaled["scaleTargetRef"]["name"], scaled["minReplicas"]) == ("planner", 2)
    assert ("Ingress", "planner") in whole
    assert not [name for _, name in alone if name == "planner-redis"]
