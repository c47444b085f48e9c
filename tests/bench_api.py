"""Time what a client of the service waits for, beside a bare FastAPI: `make bench-api`."""

import contextlib
import http.client
import json
import math
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 5.0
HOST = "127.0.0.1"
LEAST = {"cached suggests": 1000, "distinct estimates": 150, "distinct suggests": 20}
"""A second, of one worker on two cores."""
BARE = """
from fastapi import FastAPI
app = FastAPI()
@app.post("/v1/suggest")
def answer(body: dict[str, object]) -> dict[str, object]:
    return body
"""


@contextlib.contextmanager
def served(*application: str) -> Iterator[int]:
    """Serve an application, and yield the port once it answers."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = int(found.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", *application, "--port", str(port)]
    quiet = ["--log-level", "error", "--no-access-log"]
    with subprocess.Popen([*command, *quiet]) as service:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
                    break
                time.sleep(0.1)
            yield port
        finally:
            service.terminate()


def wait_for_a_plan(port: int) -> None:
    """Ask until the processes that plan have started, on a busy machine too."""
    for _ in range(12):
        connection = http.client.HTTPConnection(HOST, port, timeout=120)
        body = json.dumps(gpt2(15))
        connection.request("POST", "/v1/suggest", body, {"content-type": "application/json"})
        if connection.getresponse().status == http.client.OK:
            return
    raise SystemExit("the service plans nothing")


def figures(port: int, route: str, bodies: Callable[[int], object]) -> tuple[float, float, float]:
    """Return requests per second of one client, and the median and 99th percentile in seconds."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    durations: list[float] = []
    end = time.perf_counter() + SECONDS
    for number in count():
        started = time.perf_counter()
        if started >= end:
            break
        body = json.dumps(bodies(number))
        connection.request("POST", route, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{route} answers {answer.status}")
        durations.append(time.perf_counter() - started)
    durations.sort()
    slow = durations[math.ceil(0.99 * (len(durations) - 1))]
    return len(durations) / sum(durations), statistics.median(durations), slow


def show(name: str, found: tuple[float, float, float]) -> None:
    """Print one line of figures."""
    rate, median, slow = found
    least = f"   (at least {LEAST[name]})" if name in LEAST else ""
    print(
        f"{name:20} {rate:8,.1f}/s   median {1e3 * median:7.2f} ms   p99 {1e3 * slow:7.2f} ms{least}"
    )


def gpt2(batch: int) -> dict[str, object]:
    """Return a request that differs by its batch."""
    cluster = {"gpu": "a100", "gpus_per_node": 4}
    return {"model": "gpt2", "cluster": cluster, "recipe": {"global_batch_size": 4 * (batch + 1)}}


def main() -> None:
    """Print the figures."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        Path(folder, "bare.py").write_text(BARE, encoding="utf-8")
        port = stack.enter_context(served("bare:app", "--app-dir", folder))
        show("bare FastAPI", figures(port, "/v1/suggest", gpt2))
    with served("api.main:app") as port:
        wait_for_a_plan(port)
        show("cached suggests", figures(port, "/v1/suggest", lambda _: gpt2(15)))
        show("distinct estimates", figures(port, "/v1/estimate", gpt2))
        show("distinct suggests", figures(port, "/v1/suggest", gpt2))


if __name__ == "__main__":
    main()
