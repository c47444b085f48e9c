"""The service as it is started, for tests that ask it from outside."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Service:
    """The service as it is started, in a process with processes of its own."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self.said = ""

    def post(self, body: object, path: str = "/v1/suggest") -> tuple[int, dict[str, str], bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, data, {"content-type": "application/json"})

    def get(
        self, path: str, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        return self.ask("GET", path, None, headers or {})

    def ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, names, answer.read()

    def workers(self) -> list[int]:
        return children_of(self.pid)

    def servers(self) -> list[int]:
        """Return the processes that answer, of a service that was started with several."""
        return [pid for pid in children_of(self.pid) if b"spawn_main" in command_of(pid)]

    def open_and_leave(self, body: object) -> None:
        """Send a request, and close the connection before it is answered."""
        data = json.dumps(body).encode()
        head = f"POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(head.encode() + data)
            time.sleep(1)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> bytes:
    """Return the command line of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def served(hub: str = "", servers: int = 1, **settings: object) -> Iterator[Service]:
    """Start a service of one process that answers, or more; of a Hub, where its address is given, else of none."""
    names = {f"PLANNER_{name.upper()}": str(value) for name, value in settings.items()}
    names |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub} if hub else {"HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **names}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "api.main:app", "--port", str(port)]
    command += ["--http", "api.connections:Connection"]
    command += ["--timeout-graceful-shutdown", "5", "--workers", str(servers)]
    # Not a pipe: nobody would read it meanwhile, and the service logs every request.
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=said, text=True) as process,
    ):
        service = Service(port, process.pid)
        try:
            wait_until(lambda: service.get("/healthz")[0] == 200)
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
            said.seek(0)
            service.said = said.read()


def wait_until(is_true: Callable[[], object], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if is_true():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("it never became true")
