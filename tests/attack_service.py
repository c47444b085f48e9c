"""Attacks on a service of its own, each for a while, and what its health probe saw meanwhile, and in its first second.

A bare FastAPI that nobody attacks is probed beside it: what that waits for is the machine's.

python tests/attack_service.py [--seconds 60] [ATTACK ...]
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import Process, Queue
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from bench_api import resident_bytes
from bench_api import served as started
from served import served, wait_until

MIB = 2**20
BARE = """
from fastapi import FastAPI
app = FastAPI()
@app.get("/healthz")
def answer() -> dict[str, bool]:
    return {"ok": True}
"""
GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
LARGE = {"gpu": "h100", "gpus_per_node": 8, "nodes": 256, "inter_node": "infiniband-ndr"}
DEEPSEEK = {
    "model": "deepseek-ai/DeepSeek-V3",
    "cluster": LARGE,
    "recipe": {"framework": "megatron", "global_batch_size": 30240},
    "max_gpus": 16384,
}
SLOW = {
    "model": "meta-llama/Meta-Llama-3-70B",
    "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 16, "inter_node": "infiniband-ndr"},
}
DOCUMENTED = {200, 304, 400, 404, 405, 408, 409, 413, 415, 422, 429, 502, 503, 504}
LARGEST_P99_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 1.0
"""Of a visitor who asks for a small plan, 95 of 100 times."""

Attack = Callable[[int, random.Random], object]
"""One request of an attacker, to a port; returns what it was answered."""


def deepseek(port: int, rng: random.Random) -> int:
    """Ask for a plan that takes longer than the deadline, never the same twice."""
    return _post(port, {**DEEPSEEK, "id": rng.random().hex()})


def million_gpus(port: int, rng: random.Random) -> int:
    """Ask the page's JSON for a plan on up to a million GPUs."""
    query = f"model=gpt2&gpus_per_node=8&max_gpus=1048576&deadline_hours={rng.random():.6f}&training_tokens=1000000000"
    return _ask(port, "GET", f"/plan.json?{query}")


def unknown_keys(port: int, rng: random.Random) -> int:
    """Send 800 kB of fields that nobody knows."""
    return _post(port, {"model": "gpt2", **{f"f{rng.random()}": 1 for _ in range(32_000)}})


def same_request(port: int, _: random.Random) -> int:
    """Ask the same again and again."""
    return _post(port, GPT2)


def leaving(port: int, rng: random.Random) -> str:
    """Ask for a long plan, and leave."""
    body = json.dumps({**DEEPSEEK, "id": rng.random().hex()}).encode()
    with _connected(port) as connection:
        connection.sendall(_head(len(body)) + body)
        time.sleep(rng.random())
    return "left"


def slow_body(port: int, _: random.Random) -> int:
    """Send a body a byte at a time."""
    with _connected(port) as connection:
        connection.sendall(_head(100_000))
        with suppress(OSError):
            for _byte in range(300):
                connection.sendall(b" ")
                time.sleep(0.05)
        with suppress(OSError):
            return int(connection.recv(65536).split()[1])
    return 0


def aborted_body(port: int, rng: random.Random) -> str:
    """Send half a body, and leave, as soon as the service has seen that."""
    with _connected(port) as connection:
        connection.sendall(_head(100_000) + b" " * rng.randrange(1, 50_000))
        connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            connection.recv(65536)
    return "left"


def odd_keys(port: int, rng: random.Random) -> int:
    """Send keys in capitals, twice, or unknown."""
    text = json.dumps({**GPT2, "id": rng.random().hex()})
    odd = rng.choice(
        [
            text.replace("model", "MODEL"),
            text.replace('"model"', '"model": "bert-base-uncased", "model"'),
            text.replace("gpus_per_node", "Gpus_Per_Node"),
            text.replace("{", '{"unknown": 1, ', 1),
        ]
    )
    return _post(port, odd.encode())


def killing(port: int, rng: random.Random) -> int:
    """Ask for short plans, while somebody else kills the processes that make them."""
    return _post(port, {**GPT2, "id": rng.random().hex()})


def slow_batch(port: int, rng: random.Random) -> int:
    """Ask for a batch of slow plans."""
    lines = [json.dumps({**SLOW, "id": rng.random().hex()}) for _ in range(4)]
    body = "\n".join(lines).encode()
    return _ask(port, "POST", "/v1/suggest/batch", body, "application/jsonl")


FIRST_SECOND = "first-second"
ATTACKS: Mapping[str, Mapping[Attack, int]] = {
    FIRST_SECOND: {},
    "deepseek": {deepseek: 8},
    "million-gpus": {million_gpus: 8},
    "unknown-keys": {unknown_keys: 8},
    "same-request": {same_request: 8},
    "leaving": {leaving: 8},
    "slow-body": {slow_body: 32},
    "aborted-body": {aborted_body: 8},
    "odd-keys": {odd_keys: 8},
    "killing": {killing: 2},
    "3-batches": {slow_batch: 3},
    "5-batches": {slow_batch: 5},
    "crowd": {deepseek: 12, slow_batch: 5},
}
"""Each with the number of attackers at once; nobody attacks a service that begins."""
VISITED = frozenset({"leaving", "3-batches", "5-batches", "crowd"})
"""Attacks beside which a visitor asks for small plans, and is to wait no longer than may be."""
STARTS = 5


def main() -> None:
    """Run the attacks that were named, or all; fail where the service did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []], default=[])
    parser.add_argument("--seconds", type=float, default=60)
    chosen = parser.parse_args()
    print(
        f"{'attack':<14}{'requests':>9}{'healthz p50':>12}{'p99':>9}{'worst':>9}{'bare p99':>9}{'RSS':>9}{'5xx':>6}  answers"
    )
    failed = [name for name in chosen.attacks or ATTACKS if not _withstands(name, chosen.seconds)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def _begins() -> bool:
    """Probe services in their first second, while somebody asks for a description that was never made before."""
    delays: list[float] = []
    for _ in range(STARTS):
        with TemporaryDirectory() as folder, served(cache_dir=folder) as service:
            end = time.monotonic() + 1
            asked = Thread(target=service.get, args=("/openapi.json",))
            asked.start()
            while time.monotonic() < end:
                delays.append(_probe(service.port))
            asked.join()
    print(f"{FIRST_SECOND:<14}{len(delays):>9}{_shown(delays)}", flush=True)
    return _p99(delays) <= LARGEST_P99_SECONDS


def _shown(delays: list[float]) -> str:
    p50, p99, worst = statistics.median(delays), _p99(delays), max(delays)
    return f"{p50 * 1e3:>9.1f} ms{p99 * 1e3:>6.0f} ms{worst * 1e3:>6.0f} ms"


def _withstands(name: str, seconds: float) -> bool:
    if name == FIRST_SECOND:
        return _begins()
    with TemporaryDirectory() as folder, served() as service:
        Path(folder, "bare.py").write_text(BARE, encoding="utf-8")
        with started("bare:app", "--app-dir", folder) as bare:
            wait_until(lambda: _post(service.port, GPT2) == http.client.OK)
            withstood = _attacked(name, service.port, service.pid, bare, seconds)
        began = time.monotonic()
    ended, tracebacks = time.monotonic() - began, service.said.count("Traceback")
    print(f"{'':<14}ended within {ended:.1f} s of SIGTERM; {tracebacks} tracebacks in its log")
    return withstood


def _attacked(name: str, port: int, pid: int, bare: int, seconds: float) -> bool:
    if name in VISITED:
        _is_fair("before", _visited(port, time.monotonic() + 10))
    answers: Queue[Any] = Queue()
    end = time.monotonic() + seconds
    ways = [way for way, count in ATTACKS[name].items() for _ in range(count)]
    attackers = [
        Process(target=_attack, args=(way, port, seed, end, answers))
        for seed, way in enumerate(ways)
    ]
    for attacker in attackers:
        attacker.start()
    visits: Queue[list[float]] = Queue()
    visitor = Process(target=_visit, args=(port, end, visits))
    if name in VISITED:
        visitor.start()
    delays, of_bare, most_bytes = [], [], 0
    while time.monotonic() < end:
        delays.append(_probe(port))
        of_bare.append(_probe(bare))
        processes = [pid, *_children(pid)]
        most_bytes = max(most_bytes, resident_bytes(processes))
        if name == "killing" and len(delays) % 40 == 0 and len(processes) > 1:
            with suppress(ProcessLookupError):
                os.kill(processes[-1], signal.SIGKILL)
        time.sleep(0.05)
    said: Counter[Any] = Counter()
    for _ in attackers:
        said += answers.get(timeout=300)
    for attacker in attackers:
        attacker.join()
    print(
        f"{name:<14}{said.total():>9}{_shown(delays)}{_p99(of_bare) * 1e3:>6.0f} ms"
        f"{most_bytes / MIB:>5.0f} MiB{server_errors(said):>6}  {dict(said)}",
        flush=True,
    )
    is_documented = all(isinstance(each, str) or each in DOCUMENTED for each in said)
    is_fair = name not in VISITED or _is_fair("in it", visits.get(timeout=300))
    return _p99(delays) <= LARGEST_P99_SECONDS and is_documented and is_fair


def server_errors(said: Mapping[Any, int]) -> int:
    """Return how many answers blame the service, of counts by status, or by what else a client saw."""
    return sum(count for status, count in said.items() if isinstance(status, int) and status >= 500)


def _visit(port: int, end: float, visits: "Queue[list[float]]") -> None:
    visits.put(_visited(port, end))


def _visited(port: int, end: float) -> list[float]:
    """Ask for a small plan again and again, never the same twice; return how long each took."""
    waits = []
    while time.monotonic() < end:
        began = time.monotonic()
        if _post(port, {**GPT2, "id": str(began)}) != http.client.OK:
            raise SystemExit("a small plan was refused")
        waits.append(time.monotonic() - began)
        time.sleep(0.2)
    return sorted(waits)


def _is_fair(when: str, waits: list[float]) -> bool:
    p50, p95 = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
    said = (
        f"{len(waits)} visitors waited p50 {p50:.2f} s, p95 {p95:.2f} s, at most {waits[-1]:.2f} s"
    )
    print(f"{when:<14}{said} for gpt2 on 4 GPUs")
    return p95 <= LONGEST_WAIT_SECONDS


def _probe(port: int) -> float:
    """Return the seconds that a health probe took."""
    began = time.monotonic()
    if _ask(port, "GET", "/healthz") != http.client.OK:
        raise SystemExit("healthz failed")
    return time.monotonic() - began


def _p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


def _attack(function: Attack, port: int, seed: int, end: float, answers: "Queue[Any]") -> None:
    rng, said = random.Random(seed), Counter[Any]()
    os.nice(10)  # it stands for another machine, which takes none of the service's time
    while time.monotonic() < end:
        try:
            said[function(port, rng)] += 1
        except OSError as error:
            said[type(error).__name__] += 1
            time.sleep(0.01)
    answers.put(said)


def _post(port: int, body: object) -> int:
    return _ask(
        port,
        "POST",
        "/v1/suggest",
        body if isinstance(body, bytes) else json.dumps(body).encode(),
    )


def _ask(
    port: int, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"content-type": kind})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _head(length: int) -> bytes:
    return f"POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


if __name__ == "__main__":
    main()
