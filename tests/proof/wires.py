"""How two ranks are joined: by loopback in one node, or as two network namespaces with a cable of a limited rate."""

import ctypes
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from needed import SYSTEM_PROGRAMS

CORES = (0, 1)
PORT = 29500
_CLONE_NEWNET = 0x40000000
_IS_UPWARDS = "8,177 0 0 14,72 0 0 14,2 0 0 0,72 0 0 16,97 0 0 0,45 0 1 0,6 0 0 4294967295,6 0 0 0"
"""Whether a packet goes to the larger of its two ports, as classic BPF: so the ways of a connection are told apart."""
_UPWARDS = ("bpf", "bytecode", _IS_UPWARDS, "flowid", "1:1")
_UNLIMITED = ("htb", "rate", "10gbit", "quantum", "60000")
_IP = shutil.which("ip") or "/usr/sbin/ip"


@dataclass(frozen=True, slots=True)
class Wire:
    """What joins the two ranks."""

    name: str
    rate: str = ""
    """Of the cable between two nodes, as tc has it; "" for one node, whose ranks use loopback."""

    @property
    def nodes(self) -> int:
        """Return how many nodes there are."""
        return 2 if self.rate else 1


WIRES = (
    Wire("loopback"),
    Wire("1-gbit", "1gbit"),
    Wire("100-mbit", "100mbit"),
    Wire("20-mbit", "20mbit"),
)


def can_be_laid() -> bool:
    """Return whether this process may make network namespaces and limit a cable."""
    made = f"proof-try-{os.getpid()}"
    try:
        _ip("netns", "add", made)
        _in(made, "tc", "qdisc", "add", "dev", "lo", "root", *_limit("1gbit"))
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        with suppress(OSError, subprocess.CalledProcessError):
            _ip("netns", "delete", made)
    return True


@contextmanager
def laid(wire: Wire) -> Generator[tuple[str, ...]]:
    """Make the nodes of a wire, and remove them at the end; yields their names: none for one node."""
    if not wire.rate:
        yield ()
        return
    names = tuple(f"proof{os.getpid()}{end}" for end in "ab")
    try:
        _ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for number, name in enumerate(names):
            _ip("netns", "add", name)
            _ip("link", "set", name, "netns", name)
            _ip("-n", name, "address", "add", f"{address(number)}/24", "dev", name)
            _ip("-n", name, "link", "set", name, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _in(name, "tc", "qdisc", "add", "dev", name, "root", *_limit(wire.rate))
        yield names
    finally:
        for kind, name in ((kind, name) for name in names for kind in ("netns", "link")):
            subprocess.run([_IP, kind, "delete", name], check=False, capture_output=True)


def move_to(wire: Wire) -> None:
    """Move this process, and what it starts from now on, to one node whose loopback has the rate of a wire each way.

    Raises:
        OSError: it may not.
        CalledProcessError: there is no such limit here.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace")
    _ip("link", "set", "lo", "mtu", "1500" if wire.rate else "65536", "up")
    if not wire.rate:
        return
    add = functools.partial(_run, shutil.which("tc") or "/usr/sbin/tc")
    add("qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "2")
    for way in ("1:1", "1:2"):
        add("class", "add", "dev", "lo", "parent", "1:", "classid", way, *_UNLIMITED)
        add("qdisc", "add", "dev", "lo", "parent", way, *_limit(wire.rate))
    add("filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", *_UPWARDS)


def run_on(
    lines: Sequence[Sequence[str]], nodes: Sequence[str], folder: Path, seconds: float
) -> None:
    """Run a line of words on every node at once, each rank on a core of its own.

    Args:
        lines: one for each node.
        nodes: names of network namespaces; none for this machine.
        folder: to run in.
        seconds: after which all is ended.

    Raises:
        CalledProcessError: a node failed; the others are ended.
        TimeoutExpired: they took longer.
    """
    processes = [_start(line, nodes, number, folder) for number, line in enumerate(lines)]
    try:
        for process in processes:
            process.wait(seconds)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
                process.wait(30)
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)


def _start(
    line: Sequence[str], nodes: Sequence[str], number: int, folder: Path
) -> subprocess.Popen[bytes]:
    cores = CORES if not nodes else (CORES[number],)
    words = ["taskset", "-c", ",".join(map(str, cores)), *line]
    if nodes:
        words = [_IP, "netns", "exec", nodes[number], *words]
    interface = nodes[number] if nodes else "lo"
    return subprocess.Popen(words, cwd=folder, env=environment(interface))


def meeting(nodes: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the words of torchrun that say where two ranks meet."""
    if not nodes:
        return ("--standalone", "--nproc_per_node=2")
    return (
        *("--nnodes=2", "--nproc_per_node=1", f"--node_rank={number}"),
        *(f"--master_addr={address(0)}", f"--master_port={PORT}"),
    )


def environment(interface: str) -> Mapping[str, str]:
    """Return the environment of a rank: one thread, no GPU, no network but the wire."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **os.environ,
        "PATH": path,
        "GLOO_SOCKET_IFNAME": interface,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }


def address(number: int) -> str:
    """Return the address of a node, of 0 and 1."""
    return f"10.79.0.{number + 1}"


def _limit(rate: str) -> tuple[str, ...]:
    """Return a token bucket that holds no more than a few packets, so that short messages are slowed too."""
    return ("tbf", "rate", rate, "burst", "32kb", "latency", "400ms")


def _in(name: str, *words: str) -> None:
    _ip("netns", "exec", name, *words)


def _ip(*words: str) -> None:
    _run(_IP, *words)


def _run(*words: str) -> None:
    environment = {**os.environ, "PATH": os.environ["PATH"] + SYSTEM_PROGRAMS}
    subprocess.run(words, check=True, capture_output=True, env=environment)
