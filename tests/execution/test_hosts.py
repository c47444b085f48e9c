"""ssh.sh, docker.sh and ray_train.py; hosts are network namespaces that only a virtual cable joins."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from launched import SECONDS, TINY, start, write
from needed import SYSTEM_PROGRAMS, need, need_module, need_root
from reference import expected
from run_specs import with_layout

HOSTS = ("10.77.0.1", "10.77.0.2")
TWO_NODES = with_layout(TINY, nodes=2, gpus_per_node=1)
SSH = """#!/usr/bin/env bash
# Like ssh: hand the command to a shell on the host, without this machine's variables.
printf '%s\\n' "$*" >>"$RECORD"
while [[ "$1" == -* ]]; do [[ "$1" == -o ]] && shift; last="$1"; shift; [[ "$last" == -- ]] && break; done
host="${1#*@}"
PATH="$PATH:/usr/sbin:/sbin" exec ip netns exec "plan-${host##*.}" env -i HOME="$HOME" PATH="$PATH" GLOO_SOCKET_IFNAME="cable-${host##*.}" \\
  ACCELERATE_USE_CPU=true HF_HUB_OFFLINE=1 bash -c "$2"
"""
DOCKER = """#!/usr/bin/env bash
# Like docker: remember the build's arguments, and run the image's entry point with the command.
printf '%s\\n' "$*" >>"$RECORD"
[[ "$1" == run ]] || exit 0
while [[ "$1" != tiny* && "$1" != train-tiny ]]; do shift; done
cd "$(sed -n 's/^WORKDIR .bundle/./p' launchers/Dockerfile)"
export TARGET=torchrun
entry=$(sed -n 's/^ENTRYPOINT //p' launchers/Dockerfile)
exec python3 -c 'import json, os, sys
entry = [word.replace("/bundle/", "") for word in json.loads(sys.argv[1])]
os.execvp(entry[0], entry + sys.argv[2:])' "$entry" "${@:2}"
"""


def ip(*arguments: str, check: bool = True) -> None:
    environment = {**os.environ, "PATH": os.environ["PATH"] + SYSTEM_PROGRAMS}
    command = ["ip", *arguments]
    subprocess.run(command, check=check, capture_output=True, env=environment)


def remove_hosts() -> None:
    """Also what a run left that was killed: the cable's ends may not be in their hosts yet."""
    for number in (1, 2):
        for kind, name in (("netns", f"plan-{number}"), ("link", f"cable-{number}")):
            ip(kind, "delete", name, check=False)


@pytest.fixture(scope="module")
def hosts() -> Generator[None]:
    need("ip", get="apt-get install iproute2")
    need_root()
    remove_hosts()
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
        remove_hosts()


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


SAVES = """
trap 'echo saved >"$STATE-$NODE_RANK"; exit 143' TERM
[ "$VIRTUAL_ENV" = activated ] || exit 4
echo "$HF_TOKEN $MASTER_ADDR" >"$STATE-$NODE_RANK"
while true; do sleep 0.1; done
"""


@pytest.mark.usefixtures("hosts")
def test_hosts_get_the_environment_unseen_and_save_when_the_script_is_stopped(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, TWO_NODES, "torchrun")
    state = tmp_path / "state"
    (folder / "torchrun" / "launch.sh").write_text(f"STATE='{state}'\n{SAVES}")
    venv = folder / "it's an environment" / "bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("export VIRTUAL_ENV=activated\n")
    variables = pretended(tmp_path, "ssh", SSH) | {"VENV": str(venv.parent)}
    users = [f"me@{host}" for host in HOSTS]
    value = "a $(touch pwned) 'token'"
    command = ("bash", "launchers/ssh.sh", *users, "--")
    run = start(folder, *command, HF_TOKEN=value, **variables)
    states = [tmp_path / f"state-{rank}" for rank in (0, 1)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in states))
    assert [path.read_text() for path in states] == [f"{value} {HOSTS[0]}\n"] * 2
    assert "token" not in (tmp_path / "record").read_text()
    run.process.terminate()
    run.process.communicate()
    assert [path.read_text() for path in states] == ["saved\n"] * 2
    assert not list(tmp_path.rglob("pwned"))


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_too_few_hosts_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, TWO_NODES, "torchrun")
    assert "name 2 hosts, not 1" in start(folder, "bash", "launchers/ssh.sh", "a", "--").fail()


def test_docker_gets_the_gpus_the_shared_memory_and_the_arguments(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    variables = pretended(tmp_path, "docker", DOCKER) | {"IMAGE": "tiny:image"}
    run = start(folder, "bash", "launchers/docker.sh", "--no-dropout", **variables).finish()
    assert run.losses == pytest.approx(expected("gpt2").losses, abs=1e-5, rel=0)
    (started,) = (tmp_path / "record").read_text().splitlines()  # an image by name is not built
    for option in ("--gpus all", "--ipc=host", "--network=host", "--ulimit memlock=-1"):
        assert option in started


def test_workers_of_ray_train_like_one_process(tmp_path: Path) -> None:
    need_module("ray", get="pip install 'ray[train]'")
    folder = write(tmp_path, TWO_NODES, "torchrun")
    # Another test's cluster may run beside it, and end.
    variables = {"USE_GPU": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "local"}
    run = start(folder, "python", "launchers/ray_train.py", "--no-dropout", **variables).finish()
    assert {record["world_size"] for record in run.log} == {2}
    assert run.losses == pytest.approx(expected("gpt2").losses, abs=1e-5, rel=0)
