"""A Slurm cluster of two nodes with eight pretended GPUs each, all of it on this machine."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from needed import SYSTEM_PROGRAMS

NODES = ("n1", "n2")
GPUS = 8
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def cluster(folder: Path) -> Generator[None]:
    """Run munge, the controller and two node daemons; SLURM_CONF names them to sbatch."""
    folder.chmod(0o755)
    try:
        start_daemons(folder)
        wait_for("idle", "sinfo", "--noheader", "--format=%T", seconds=180)
        yield
    finally:
        os.environ.pop("SLURM_CONF", None)
        for pid in folder.glob("*.pid"):
            os.kill(int(pid.read_text()), 15)


def start_daemons(folder: Path) -> None:
    os.environ["SLURM_CONF"] = str(configure(folder))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    paths = [f"--{part}-file={folder}/munge.{part}" for part in ("key", "pid", "log", "seed")]
    run("munged", "--force", f"--socket={folder}/munge.socket", *paths)
    run("slurmctld")
    for node in NODES:
        run("slurmd", "-N", node)


def configure(folder: Path) -> Path:
    host = socket.gethostname().partition(".")[0]
    (folder / "state").mkdir()
    for number in range(GPUS):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    ports = unused_ports(len(NODES) + 1)
    text = CONFIGURATION.format(host=host, folder=folder, controller_port=ports.pop())
    for node, port in zip(NODES, ports, strict=True):
        text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"
        text += f" Gres=gpu:{GPUS}\n"
    (folder / "slurm.conf").write_text(text)
    return folder / "slurm.conf"


def unused_ports(count: int) -> list[int]:
    listeners = [socket.socket() for _ in range(count)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def run(*command: str) -> str:
    """Return a command's output; daemons lie where a user's PATH need not look."""
    environment = {**os.environ, "PATH": os.environ["PATH"] + SYSTEM_PROGRAMS}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_for(word: str, *command: str, seconds: float) -> str:
    """Repeat a command until its output has the word, and nothing else on other lines."""
    end = time.monotonic() + seconds
    while True:
        output = run(*command)
        if output.split() and all(re.fullmatch(word, line) for line in output.split()):
            return output
        assert time.monotonic() < end, output
        time.sleep(0.2)
