"""Follows the Dockerfile's steps without an engine: wheel, clean environment, service."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

import planner

ROOT = Path(__file__).parents[1]
EXPOSED_PORT = "8000"
SECONDS_TO_START = 300


def steps() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments on one line."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    written = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(instruction, " ".join(arguments.split())) for instruction, arguments in written]


def arguments(instruction: str) -> list[str]:
    return [given for name, given in steps() if name == instruction]


def sources(given: str) -> list[str]:
    return given.split()[:-1]


def from_context() -> list[list[str]]:
    """What each stage copies out of the checkout."""
    stages: list[list[str]] = []
    for name, given in steps():
        if name == "FROM":
            stages.append([])
        elif name == "COPY" and not given.startswith("--from"):
            stages[-1] += sources(given)
    return stages


def command() -> list[str]:
    (program,) = json.loads(arguments("ENTRYPOINT")[-1])
    return [program, *json.loads(arguments("CMD")[-1])]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as the first stage does from what it copies."""
    folder = tmp_path_factory.mktemp("builder")
    for name in from_context()[0]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    (build,) = [run for run in arguments("RUN") if "pip wheel" in run]
    words = build.replace("/dist", str(folder / "dist")).split()
    subprocess.run([sys.executable, *words[1:]], cwd=folder, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("trainplan-*.whl")
    return built


@pytest.fixture(scope="module")
def service(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the service, run as the last stage does from what it copies."""
    (extras,) = re.findall(r"whl\)(\[[a-z,]+\])", " ".join(arguments("RUN")))
    environment = tmp_path_factory.mktemp("venv")
    venv.create(environment)
    binaries = environment / "bin"
    # This Python's pip installs into it: another need be neither unpacked nor compiled.
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python")]
    install = [*pip, "install", "-q", "--no-compile", f"{wheel}{extras}"]
    subprocess.run(install, check=True, capture_output=True)
    (describe,) = [run for run in arguments("RUN") if "api.description" in run]
    there = (("/opt/venv", str(environment)), ("python3.11", f"python3.{sys.version_info.minor}"))
    for image, here in there:
        describe = describe.replace(image, here)
    subprocess.run(["/bin/sh", "-c", describe], check=True)
    (kept,) = (environment / "share" / "planner").iterdir()
    assert kept.stat().st_mode & 0o444 == 0o444
    port = free_port()
    words = [str(port) if word == EXPOSED_PORT else word for word in command()]
    words[0] = str(binaries / words[0])
    with subprocess.Popen(
        words, cwd=tmp_path_factory.mktemp("elsewhere"), stderr=subprocess.DEVNULL
    ) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address, process)
            yield address
        finally:
            process.terminate()


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx2.get(f"{address}/healthz")
        except httpx2.TransportError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the service did not start")


def test_wheel_holds_one_package_with_its_data_templates_and_applications(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"planner", f"trainplan-{planner.__version__}.dist-info"}
    for folder in (
        *("data/gpus", "data/models", "data/frameworks", "generate/templates/torchrun"),
        *("apps/api", "apps/web/templates", "apps/web/static"),
    ):
        assert any(name.startswith(f"planner/{folder}/") for name in names)
    assert "planner/py.typed" in names


def test_service_is_healthy_and_plans(service: str) -> None:
    with httpx2.Client(base_url=service, timeout=300) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        body = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
        assert client.post("/v1/suggest", json=body).json()["ok"]
        assert client.get("/openapi.json").json()["info"]["title"] == "planner"
        for path in ("/", "/static/style.css", "/plan.zip?model=gpt2"):
            assert client.get(path).status_code == 200


def test_every_source_exists_and_passes_the_ignore_file() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {name for stage in from_context() for name in stage}
    assert "*" in lines
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_image_gets_all_from_the_wheel() -> None:
    assert from_context()[1] == []


def test_command_serves_and_listens_everywhere() -> None:
    assert command()[:2] == ["planner", "serve"]
    assert command()[2:6] == ["--host", "0.0.0.0", "--port", *arguments("EXPOSE")]  # noqa: S104


def test_image_does_not_run_as_root_and_checks_its_health() -> None:
    (user,) = arguments("USER")
    assert user not in {"root", "0"}
    assert any(f"--uid {user}" in run for run in arguments("RUN"))
    (check,) = arguments("HEALTHCHECK")
    program = json.loads(check[check.index("[") :])
    assert program[:2] == ["python", "-c"]
    assert f":{arguments('EXPOSE')[0]}/healthz" in program[2]
    compile(program[2], "HEALTHCHECK", "exec")
