"""Run Python programs in processes that have imported PyTorch and transformers already.

Importing them takes six seconds of a processor, training a tiny model a tenth of one. This process
imports them once and forks for every program; client.py, under other names, is where programs are
started.
"""

import gc
import json
import os
import runpy
import select
import signal
import site
import socket
import sys
from importlib import import_module, reload
from pathlib import Path
from typing import Any

_IMPORTED = (
    "accelerate.commands.accelerate_cli",
    "datasets",
    "deepspeed",
    "torch._dynamo",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.optim",
    "torch.distributed.pipelining.schedules",
    "torch.distributed.run",
    "torch.distributed.tensor.parallel",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "transformers.trainer",
    "trl.trainer.sft_trainer",
)
_LONGEST_REQUEST = 2**18


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for every client; return, in a fork of its own, the program that it asked for."""
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return mind(client)
        client.close()


def mind(client: socket.socket) -> dict[str, Any]:
    """Return the program in a child; wait for it here, and end it where the client is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(client, _LONGEST_REQUEST, 3)
    pid = os.fork()
    if pid == 0:
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        request: dict[str, Any] = json.loads(message)
        return request
    client.sendall(str(pid).encode())
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([client.fileno(), ended], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    client.sendall(str(status).encode())
    os._exit(0)


def run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Do what `python` would with these arguments, there."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "PYTHONPATH" in environment:
        sys.path[1:1] = environment["PYTHONPATH"].split(os.pathsep)
        sys.modules.pop("sitecustomize", None)  # Debian has one, which this process has imported
        site.execsitecustomize()
    if "HF_HOME" in environment:
        reload(sys.modules["datasets.config"])  # where it keeps what it prepared
    first, *others = [argument for argument in arguments if argument != "-u"]
    if first == "-m":
        sys.argv = others
        sys.modules.pop(others[0], None)
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = [first, *others]
    sys.path[0] = str(Path(first).resolve().parent)
    runpy.run_path(first, run_name="__main__")


def warm_up() -> None:
    """Do once what every program would do anew: it is the same in each, and known to be right."""
    conversions: Any = import_module("transformers.conversion_mapping")
    conversions.get_checkpoint_conversion_mapping("")
    rendezvous: Any = import_module("torch.distributed.elastic.rendezvous.dynamic_rendezvous")
    rendezvous.get_method_name = caller  # for its log PyTorch reads the source of every module


def caller(depth: int = 2) -> str:
    """Return the name of a function that is running."""
    return sys._getframe(depth).f_code.co_name  # noqa: SLF001


def main() -> None:
    """Listen on the socket whose path is the argument, and say so on the output."""
    for name in _IMPORTED:
        import_module(name)
    warm_up()
    gc.freeze()  # a collection in a fork would copy every page
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1])
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    run(**serve(listener))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # Python would take a gigabyte of modules apart first


if __name__ == "__main__":
    main()
