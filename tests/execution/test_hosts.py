"""ssh.sh, docker.sh and ray_train.py; hosts are network namespaces that only a virtual cable joins."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from launched import TINY, start, write
from reference import expected
from run_specs import with_layout

HOSTS = ("10.77.0.1", "10.77.0.2")
TWO_NODES = with_layout(TINY, nodes=2, gpus_per_node=1)
SSH = """#!/usr/bin/env bash
# Like ssh: hand the command to a shell on the host, without this machine's variables.
printf '%s\\n' "$*" >>"$RECORD"
while [[ "$1" == -* ]]; do [[ "$1" == -o ]] && shift; last="$1"; shift; [[ "$last" == -- ]] && break; done
host="$1"
exec ip netns exec "plan-${host##*.}" env -i HOME="$HOME" PATH="$PATH" GLOO_SOCKET_IFNAME="cable-${host##*.}" \\
  ACCELERATE_USE_CPU=true HF_HUB_OFFLINE=1 bash -c "$2"
"""
DOCKER = """#!/usr/bin/env bash
# Like docker: remember the build's arguments, and run the image's entry point with the command.
printf '%s\\n' "$*" >>"$RECORD"
[[ "$1" == run ]] || exit 0
while [[ "$1" != tiny:* ]]; do shift; done
cd torchrun && exec bash launch.sh "${@:2}"
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S607


@pytest.fixture(scope="module")
def hosts() -> Generator[None]:
    ip("link", "add", "cable-1", "type", "veth", "peer", "name", "cable-2")
    try:
        for number, address in enumerate(HOSTS, start=1):
            name, cable = f"plan-{number}", f"cable-{number}"
            ip("netns", "add", name)
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for number in (1, 2):
            subprocess.run(["ip", "netns", "delete", f"plan-{number}"], check=False)  # noqa: S607


def pretended(folder: Path, name: str, script: str) -> dict[str, str]:
    """Put a program into a folder that PATH names first; return the variables for it."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / name).write_text(script)
    (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, "RECORD": str(folder / "record")}


@pytest.mark.usefixtures("hosts")
def test_two_hosts_over_ssh_train_like_one_process(tmp_path: Path) -> None:
    folder = write(tmp_path / 'it\'s a "plan" $(touch pwned)', TWO_NODES, "torchrun")
    variables = pretended(tmp_path, "ssh", SSH)
    command = (
        "bash",
        "launchers/ssh.sh",
        *HOSTS,
        "--",
        "--no-dropout",
        "--output",
        "a b; $(touch pwned)",
    )
    run = start(folder, *command, **variables).finish()
    assert {record["world_size"] for record in run.log} == {2}
    assert run.losses == pytest.approx(expected("gpt2").losses, abs=1e-5, rel=0)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.usefixtures("hosts")
def test_one_failing_host_ends_the_others(tmp_path: Path) -> None:
    folder = write(tmp_path, TWO_NODES, "torchrun")
    (folder / "torchrun" / "launch.sh").write_text(
        '[ "$NODE_RANK" = 0 ] && exec sleep 300; exit 3\n'
    )
    run = start(folder, "bash", "launchers/ssh.sh", *HOSTS, "--", **pretended(tmp_path, "ssh", SSH))
    run.fail()
    assert run.process.returncode == 3


def test_too_few_hosts_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, TWO_NODES, "torchrun")
    assert "name 2 hosts, not 1" in start(folder, "bash", "launchers/ssh.sh", "a", "--").fail()


def test_docker_gets_the_gpus_the_shared_memory_and_the_arguments(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    variables = pretended(tmp_path, "docker", DOCKER) | {"IMAGE": "tiny:image"}
    run = start(folder, "bash", "launchers/docker.sh", "--no-dropout", **variables).finish()
    assert run.losses == pytest.approx(expected("gpt2").losses, abs=1e-5, rel=0)
    build, started = (tmp_path / "record").read_text().splitlines()
    assert (
        build == "build --build-arg TARGET=torchrun --file launchers/Dockerfile --tag tiny:image ."
    )
    for option in ("--gpus all", "--ipc=host", "--network=host", "--ulimit memlock=-1"):
        assert option in started


def test_workers_of_ray_train_like_one_process(tmp_path: Path) -> None:
    folder = write(tmp_path, TWO_NODES, "torchrun")
    variables = {"USE_GPU": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    run = start(folder, "python", "launchers/ray_train.py", "--no-dropout", **variables).finish()
    assert {record["world_size"] for record in run.log} == {2}
    assert run.losses == pytest.approx(expected("gpt2").losses, abs=1e-5, rel=0)
