"""What a service holds after it was used for long: `make soak-api`, twenty minutes.

Clients plan, leave, send batches and begin jobs all the while; a Redis is killed in the middle, and begins anew.
"""

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import Process, Queue
from typing import Any

from attack_service import (
    GPT2,
    MIB,
    aborted_body,
    killing,
    leaving,
    odd_keys,
    same_request,
    server_errors,
)
from bench_api import resident_bytes
from served import Service, children_of, command_of, served, wait_until

CLIENTS = 4
MOST_GROWTH = 0.25
"""Of what the server holds, and the largest of its processes, from the first quarter to the last."""
LOOKS = 40
"""At what they hold, all the while."""
WITHOUT_REDIS_SECONDS = 15.0


def job(service: Service, rng: random.Random) -> int:
    """Begin a plan, mostly ask for it until it is made, and have it forgotten."""
    status, headers, _ = service.post({**GPT2, "id": rng.random().hex()}, "/v1/jobs")
    if status != http.client.ACCEPTED:
        return status
    path, state = headers["location"], "going" if rng.random() < 0.7 else "left"
    while state == "going":
        time.sleep(0.3)
        status, _, body = service.get(path)
        if status != http.client.OK:
            return status
        state = json.loads(body)["state"]
    return service.ask("DELETE", path, None, {})[0]


def small_batch(service: Service, rng: random.Random) -> int:
    """Ask for plans of which one is none."""
    lines = [{**GPT2, "id": rng.random().hex()}, {"model": rng.random()}, GPT2]
    body = "\n".join(map(json.dumps, lines)).encode()
    return service.ask("POST", "/v1/suggest/batch", body, {"content-type": "application/jsonl"})[0]


def page(service: Service, rng: random.Random) -> int:
    """Look at a plan's page."""
    return service.get(
        f"/plan?model=gpt2&gpus_per_node=4&global_batch_size={rng.randrange(4, 999)}"
    )[0]


def use(service: Service, seed: int, end: float, answers: "Queue[Any]") -> None:
    """Do what clients do, one after another, until then."""
    rng, said = random.Random(seed), Counter[Any]()
    os.nice(10)
    by_port = (killing, same_request, odd_keys, leaving, aborted_body)
    ways: list[Callable[[], object]] = [partial(way, service.port, rng) for way in by_port]
    ways += [partial(way, service, rng) for way in (job, small_batch, page)]
    while time.monotonic() < end:
        try:
            said[rng.choice(ways)()] += 1
        except OSError as error:
            said[type(error).__name__] += 1
    answers.put(said)


@contextmanager
def redis_at(port: int) -> Iterator[str]:
    """Run a Redis that keeps nothing, until it is killed."""
    command = ("redis-server", "--port", str(port), "--save", "", "--maxmemory", "64mb")
    with subprocess.Popen(
        [*command, "--maxmemory-policy", "allkeys-lru"], stdout=subprocess.DEVNULL
    ) as redis:
        yield f"redis://127.0.0.1:{port}/0"
        redis.kill()


def workers_of(service: Service) -> list[int]:
    """Return the processes that plan."""
    return [pid for pid in children_of(service.pid) if b"to_process" in command_of(pid)]


def held_by(service: Service) -> tuple[int, int]:
    """Print what the server and each of its processes hold; return the former, and the largest of the latter."""
    held = [resident_bytes([pid]) for pid in (service.pid, *workers_of(service))]
    server, *others = (round(size / MIB) for size in held)
    print(f"{time.strftime('%H:%M:%S')} server {server} MiB, processes {others} MiB", flush=True)
    return held[0], max(held[1:], default=0)


def looks(service: Service, began: float, seconds: float, numbers: range) -> list[tuple[int, int]]:
    """Look at what is held at these of so many moments, spread over that time."""
    held = []
    for number in numbers:
        time.sleep(max(0.0, began + number * seconds / LOOKS - time.monotonic()))
        held.append(held_by(service))
    return held


def grown(name: str, sizes: list[int]) -> list[str]:
    """Print what was held in the first and the last quarter; return what is wrong with that."""
    quarter = len(sizes) // 4
    first, last = (statistics.median(part) for part in (sizes[:quarter], sizes[-quarter:]))
    said = f"{name}: {first / MIB:.0f} MiB in the first quarter, {last / MIB:.0f} MiB in the last"
    print(f"{said}: {last / first - 1:+.0%}")
    return [said] if last > (1 + MOST_GROWTH) * first else []


def soak(service: Service, seconds: float, redis_port: int) -> list[str]:
    """Use a service for so long; return what is wrong with it then."""
    began = time.monotonic()
    answers: Queue[Any] = Queue()
    end = began + seconds
    clients = [Process(target=use, args=(service, seed, end, answers)) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    with redis_at(redis_port):
        held = looks(service, began, seconds, range(1, LOOKS // 2))
    time.sleep(WITHOUT_REDIS_SECONDS)
    with redis_at(redis_port):
        held += looks(service, began, seconds, range(LOOKS // 2, LOOKS + 1))
        said: Counter[Any] = sum((answers.get(timeout=seconds + 300) for _ in clients), Counter())
    print(f"{said.total()} requests, {server_errors(said)} answers of 5xx: {dict(said)}")
    wrong = [f"{said[status]} answers of {status}" for status in said if status in {500, 503}]
    server, largest = (list(sizes) for sizes in zip(*held, strict=True))
    return wrong + grown("the server", server) + grown("its largest process", largest)


def main() -> None:
    """Soak a service of its own, and fail where it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200)
    seconds = parser.parse_args().seconds
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with served(redis_url=f"redis://127.0.0.1:{port}/0") as service:
        wait_until(lambda: service.post(GPT2)[0] == http.client.OK)
        held_by(service)
        wrong = soak(service, seconds, port)
    if "Traceback" in service.said:
        wrong.append(
            "tracebacks in its log:" + service.said[service.said.index("Traceback") :][:3000]
        )
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
