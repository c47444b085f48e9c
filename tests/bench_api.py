"""Time what a client of the service waits for, beside a bare FastAPI: `make bench-api`."""

import contextlib
import http.client
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

from served import Service, children_of
from served import served as served_by_us

SECONDS = 5.0
HOST = "127.0.0.1"
LEAST = {"cached suggests": 1000, "distinct estimates": 150, "distinct suggests": 20}
"""A second, of one worker on two cores."""
HELD = 100_000
"""Requests over which memory must stay as it is."""
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
    # Each of the two has a log with a line for every request.
    command.append("--no-access-log")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
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


def durations(port: int, route: str, bodies: Callable[[int], object]) -> list[float]:
    """Return the seconds that each request of one client took, one after another for a while."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    found: list[float] = []
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
        found.append(time.perf_counter() - started)
    return found


def show(name: str, route: str, port: int, bodies: Callable[[int], dict[str, object]]) -> None:
    """Print a line of figures for one client, and one for two at once: two processes plan."""
    for clients in (1, 2):
        asked = [partial(_named, bodies, f"{client} of {clients}") for client in range(clients)]
        with ThreadPoolExecutor(clients) as pool:
            found = list(pool.map(partial(durations, port, route), asked))
        rate = sum(len(each) / sum(each) for each in found)
        every = sorted(chain(*found))
        slow = every[math.ceil(0.99 * (len(every) - 1))]
        least = f"   (at least {LEAST[name]})" if name in LEAST else ""
        print(
            f"{name:20} {clients} at once {rate:8,.1f}/s   median"
            f" {1e3 * statistics.median(every):7.2f} ms   p99 {1e3 * slow:7.2f} ms{least}",
            flush=True,
        )


def _named(
    bodies: Callable[[int], dict[str, object]], client: str, number: int
) -> dict[str, object]:
    """Return a request that no other client sends."""
    return {**bodies(number), "id": client}


def gpt2(batch: int) -> dict[str, object]:
    """Return a request that differs by its batch."""
    cluster = {"gpu": "a100", "gpus_per_node": 4}
    return {"model": "gpt2", "cluster": cluster, "recipe": {"global_batch_size": 4 * (batch + 1)}}


def hold(service: Service) -> None:
    """Print the memory of the service and its processes after a tenth of many requests, and after all."""
    after: list[int] = []
    connection = http.client.HTTPConnection(HOST, service.port, timeout=60)
    for number in range(HELD):
        is_new = number % 20 == 0
        route = "/v1/estimate" if is_new else "/v1/suggest"
        body = json.dumps({**gpt2(number % 997), "id": number} if is_new else gpt2(15))
        connection.request("POST", route, body, {"content-type": "application/json"})
        connection.getresponse().read()
        if number + 1 in {HELD // 10, HELD}:
            after.append(resident_bytes([service.pid, *children_of(service.pid)]))
    first, last = (size / 2**20 for size in after)
    print(f"memory after {HELD // 10:,} requests {first:,.0f} MiB, after {HELD:,} {last:,.0f} MiB")


def resident_bytes(pids: Iterable[int]) -> int:
    """Return what processes hold of the memory, those that have ended left out."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print the figures."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        Path(folder, "bare.py").write_text(BARE, encoding="utf-8")
        port = stack.enter_context(served("bare:app", "--app-dir", folder))
        show("bare FastAPI", "/v1/suggest", port, gpt2)
    with served("api.main:app") as port:
        wait_for_a_plan(port)
        show("cached suggests", "/v1/suggest", port, lambda _: gpt2(15))
        show("distinct estimates", "/v1/estimate", port, gpt2)
        show("distinct suggests", "/v1/suggest", port, gpt2)
    with served_by_us() as service:
        wait_for_a_plan(service.port)
        hold(service)


if __name__ == "__main__":
    main()
