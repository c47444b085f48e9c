"""The Compose file's proxy, in nginx, before two replicas that share a Redis."""

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from needed import need
from served import ROOT, Service, served, wait_until

COMPOSE = yaml.safe_load((ROOT / "api" / "deploy" / "docker-compose.yaml").read_text())
GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
SLOWER = {"model": "gpt2", "cluster": {"gpus_per_node": 8}}
ALL = """
daemon off; user root; pid {folder}/pid; error_log stderr;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream api {{ {replicas} }}
  {server}
}}
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(*command: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield process
        process.terminate()


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, list[Service]]]:
    """The proxy, and what is behind it; a client may ask six times a minute."""
    nginx = need("nginx", get="apt-get install nginx-light")
    redis = need("redis-server", get="apt-get install redis-server")
    folder, port, redis_port = tmp_path_factory.mktemp("nginx"), free_port(), str(free_port())
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        stack.enter_context(running(redis, "--port", redis_port, "--save", "", "--dir", folder))
        said = COMPOSE["services"]["api"]["environment"]
        patch.setenv("FORWARDED_ALLOW_IPS", said["FORWARDED_ALLOW_IPS"])
        url = said["PLANNER_REDIS_URL"].replace("redis:6379", f"127.0.0.1:{redis_port}")
        settings = {"redis_url": url, "processes": 1, "rate": "6/minute", "deadline_seconds": 300}
        replicas = [stack.enter_context(served(**settings)) for _ in range(2)]
        server = COMPOSE["configs"]["proxy"]["content"].replace("$$", "$")
        for compose, here in (
            ("listen 8000;", f"listen {port};"),
            ("resolver 127.0.0.11 valid=5s;", ""),
            ("set $replicas api:8000;", "set $replicas api;"),
        ):
            assert compose in server
            server = server.replace(compose, here)
        there = " ".join(f"server 127.0.0.1:{each.port};" for each in replicas)
        config = folder / "nginx.conf"
        config.write_text(ALL.format(folder=folder, replicas=there, server=server))
        process = stack.enter_context(running(nginx, "-c", config))
        proxy = Service(port, process.pid)
        wait_until(lambda: proxy.get("/healthz")[0] == 200)
        yield proxy, replicas


def asked(
    proxy: Service, client: str, method: str, path: str, body: bytes | None = None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", proxy.port, 300, source_address=(client, 0)
    )
    kind = "application/jsonl" if path.endswith("batch") else "application/json"
    connection.request(method, path, body, {"content-type": kind, "x-forwarded-for": "10.9.9.9"})
    return connection, connection.getresponse()


def test_each_line_of_a_batch_arrives_when_it_is_made(
    proxied: tuple[Service, list[Service]],
) -> None:
    body = "\n".join(map(json.dumps, (GPT2, SLOWER))).encode()
    connection, answer = asked(proxied[0], "127.0.0.2", "POST", "/v1/suggest/batch", body)
    times = []
    while answer.readline():
        times.append(time.monotonic())
    connection.close()
    assert len(times) == 2
    assert times[1] - times[0] > 0.1


def test_replicas_count_a_client_by_its_own_address(proxied: tuple[Service, list[Service]]) -> None:
    said = [asked(proxied[0], "127.0.0.3", "GET", "/version") for _ in range(7)]
    assert [answer.status for _, answer in said] == [200] * 6 + [429]
    assert 0 < int(said[-1][1].headers["retry-after"]) <= 60
    other, answer = asked(proxied[0], "127.0.0.4", "GET", "/version")
    assert answer.status == 200
    for connection in (other, *(each for each, _ in said)):
        connection.close()


def test_what_is_too_large_is_refused_by_the_service(
    proxied: tuple[Service, list[Service]],
) -> None:
    body = b" " * (2**24 + 1)
    connection, answer = asked(proxied[0], "127.0.0.5", "POST", "/v1/suggest/batch", body)
    assert answer.status == 413
    assert json.load(answer)["type"] == "urn:planner:too-large"
    connection.close()
    assert proxied[0].get(f"/healthz?topology={'a' * 24_000}")[0] == 200
