#!/usr/bin/env -S python3 -S -E
"""Stands for `python`, `torchrun` or `accelerate` in PATH: asks the server to run the program."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

_MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}


def main() -> int:
    """Hand over the arguments, folder, variables and streams; end as the program does."""
    name = Path(sys.argv[0]).name
    module = ["-m", _MODULES[name]] if name in _MODULES else []
    request = {
        "arguments": [*module, *sys.argv[1:]],
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(os.environ["PRELOADED"])
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    pid = int(server.recv(32))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(server.recv(32)))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
