"""What whoever runs the service relies on: keys, rates, logs, metrics, a shared cache."""

import gc
import json
import socket
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import huggingface_hub
import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError
from needed import need
from pydantic import SecretStr, ValidationError
from redis import Redis
from served import Service, served, wait_until

from api.cache import KnownReplies
from api.jobs import Reply, model, suggestion, warm
from api.main import create_app
from api.settings import Settings
from planner.models import hub_cache, hub_client

GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
LONG = {
    "model": "deepseek-ai/DeepSeek-V3",
    "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 256, "inter_node": "infiniband-ndr"},
    "max_gpus": 16384,
}
HIDDEN = "hf_0123456789abcdefghij"
REPLY = Reply(b'{"an": "answer"}', "a" * 64)


def client_of(**settings: Any) -> TestClient:
    return TestClient(create_app(Settings(processes=0, **settings)), raise_server_exceptions=False)


def test_what_is_loaded_is_left_out_when_garbage_is_looked_for() -> None:
    gc.unfreeze()
    with client_of():
        started = gc.get_freeze_count()
    gc.unfreeze()
    warm()
    planned = gc.get_freeze_count()
    gc.unfreeze()
    assert min(started, planned) > 50_000


def test_a_service_with_keys_answers_who_has_one() -> None:
    client = client_of(api_keys=["first", "second"])
    for headers in ({}, {"x-api-key": "third"}, {"authorization": "Bearer firs"}):
        refused = client.get("/v1/gpus/h100", headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (401, "urn:planner:key-missing")
        assert refused.headers["www-authenticate"] == "Bearer"
    for headers in ({"x-api-key": "first"}, {"authorization": "bearer second"}):
        assert client.get("/v1/gpus/h100", headers=headers).status_code == 200
    for path in ("/", "/docs"):
        prompt = client.get(path, headers={"accept": "text/html"})
        assert (prompt.status_code, prompt.headers["www-authenticate"].split()[0]) == (401, "Basic")
        assert client.get(path, auth=("anybody", "second")).status_code == 200
        assert client.get(path, auth=("second", "anybody")).status_code == 401
    assert client.get("/", headers={"authorization": "Basic no-base64"}).status_code == 401
    assert [client.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [
        200
    ] * 3


def test_a_client_that_asks_too_often_is_told_when_to_come_again() -> None:
    client = client_of(rate="2/minute")
    statuses = [client.get("/v1/gpus/h100").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    refused = client.get("/version")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["type"] == "urn:planner:too-often"
    assert client.get("/healthz").status_code == 200


def test_pages_of_named_origins_may_ask() -> None:
    asks = {"origin": "https://wiki.example", "access-control-request-method": "POST"}
    allowed = client_of(origins=["https://wiki.example"]).options("/v1/suggest", headers=asks)
    assert allowed.headers["access-control-allow-origin"] == "https://wiki.example"
    assert allowed.headers["cache-control"] == "no-cache"
    for client in (client_of(origins=["https://other.example"]), client_of()):
        refused = client.options("/v1/suggest", headers=asks)
        assert refused.status_code >= 400
        assert "access-control-allow-origin" not in refused.headers


def test_what_is_too_large_is_told_what_to_send() -> None:
    refused = client_of().post("/v1/doctor/log", content=b" " * (2**20 + 1))
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:planner:too-large")
    assert "tail --bytes 900000" in refused.json()["hint"]


def test_a_batch_costs_its_lines() -> None:
    client = client_of(rate="4/minute")
    lines = "\n".join(["{}"] * 3)
    assert client.post("/v1/estimate/batch", content=lines).status_code == 200
    assert client.get("/version").status_code == 200
    assert client.get("/version").status_code == 429
    alone = client_of(rate="4/minute").post("/v1/estimate/batch", content="{}\n" * 5)
    assert (alone.status_code, alone.json()["hint"]) == (429, "at most 4 lines")


def test_a_client_has_as_many_searches_at_once_as_it_may() -> None:
    client = client_of(searches=1, api_keys=["first", "second"])
    access = client.app.state.access  # type: ignore[attr-defined]
    first, second = ({"x-api-key": name} for name in ("first", "second"))
    mine = SimpleNamespace(state=SimpleNamespace(client=sha256(b"first").hexdigest()))
    with access.searching(mine):
        for path in ("/v1/estimate", "/v1/estimate/batch"):
            refused = client.post(path, content="{}", headers=first)
            assert (refused.status_code, refused.json()["type"]) == (429, "urn:planner:too-often")
            assert refused.headers["retry-after"] == "2"
        assert client.post("/v1/estimate", json={}, headers=second).status_code == 422
    for path, status in (("/v1/estimate", 422), ("/v1/estimate/batch", 200)):
        assert client.post(path, content="{}", headers=first).status_code == status


def test_rates_count_across_replicas_where_they_share_a_redis(redis_server: Any) -> None:
    url, process = redis_server
    with (
        served(processes=0, rate="3/minute", redis_url=url) as one,
        served(processes=0, rate="3/minute", redis_url=url) as other,
    ):
        statuses = [each.get("/version")[0] for each in (one, other, one, other, one)]
        assert statuses == [200, 200, 200, 429, 429]
        process.kill()
        process.wait()
        assert one.get("/version")[0] == 200
    assert "Traceback" not in one.said + other.said


def test_an_unnamed_proxy_is_told_of_and_its_clients_count_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(processes=0, rate="2/minute") as service:  # uvicorn trusts 127.0.0.1
        told = [service.get("/version", {"x-forwarded-for": f"10.0.0.{n}"})[0] for n in range(4)]
    assert told == [200] * 4
    assert "FORWARDED_ALLOW_IPS" not in service.said
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.1.1.1")
    with served(processes=0, rate="2/minute") as service:
        told = [service.get("/version", {"x-forwarded-for": f"10.0.0.{n}"})[0] for n in range(4)]
    assert told == [200, 200, 429, 429]
    assert service.said.count("FORWARDED_ALLOW_IPS") == 1


def test_a_host_that_is_not_trusted_is_told_as_all_else_is() -> None:
    client = client_of(trusted_hosts=["testserver", "www.planner.example"])
    assert client.get("/healthz").status_code == 200
    for host in ("elsewhere.example", "", "a/b"):
        refused = client.get("/v1/gpus/h100", headers={"host": host})
        assert refused.status_code == 400
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["x-content-type-options"] == "nosniff"
        assert "PLANNER_TRUSTED_HOSTS" in refused.json()["hint"]
    led = client.get("/healthz", headers={"host": "planner.example"}, follow_redirects=False)
    assert led.headers["location"] == "http://www.planner.example/healthz"


def test_a_rate_that_is_none_stops_the_start() -> None:
    with pytest.raises(ValidationError):
        Settings(rate="often")


def test_metrics_count_routes_not_paths() -> None:
    client = client_of()
    for path in ("/v1/gpus/h100", "/v1/gpus/t4", "/nowhere/at/all"):
        client.get(path)
    text = client.get("/metrics").text
    assert 'planner_requests_total{method="GET",route="/v1/gpus/{name}",status="200"} 2.0' in text
    assert "nowhere" not in text
    assert "planner_request_seconds_bucket" in text


def test_logs_are_json_with_an_id_and_without_secrets() -> None:
    with served(processes=0) as service:
        kind = {"content-type": "application/json", "x-hf-token": HIDDEN}
        body = json.dumps({**GPT2, "id": "in-the-body"}).encode()
        _, headers, _ = service.ask("POST", "/v1/suggest", body, kind | {"x-request-id": "mine-1"})
        assert headers["x-request-id"] == "mine-1"
        _, headers, _ = service.get("/plan?model=in-the-query", {"x-request-id": 'no "id"'})
        assert len(headers["x-request-id"]) == 32
    lines = [json.loads(line) for line in service.said.splitlines() if line.startswith("{")]
    (asked,) = [line for line in lines if line.get("request_id") == "mine-1"]
    assert (asked["path"], asked["status"], asked["event"]) == ("/v1/suggest", 200, "request")
    assert not any(word in service.said for word in (HIDDEN, "in-the-body", "in-the-query"))


def test_a_service_behind_a_proxy_says_where() -> None:
    client = TestClient(create_app(Settings(processes=0)), root_path="/planner")
    assert client.get("/planner/healthz").status_code == 200
    assert client.get("/planner/openapi.json").json()["servers"] == [{"url": "/planner"}]
    with client:
        begun = client.post("/planner/v1/jobs", json=GPT2).headers["location"]
        assert begun.startswith("/planner/v1/jobs/")
        assert client.delete(begun).status_code == 204


def test_a_token_opens_a_model_once_and_is_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 100}
    seen = []

    def head(_url: str, token: str | None = None) -> Any:
        seen.append(token)
        if token != HIDDEN:
            response = type("Response", (), {"headers": {}, "request": None})()
            raise GatedRepoError("no", response=response)
        return type("Head", (), {"size": 10, "etag": "e"})()

    monkeypatch.setenv("PLANNER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", head)
    monkeypatch.setattr(
        hub_client,
        "_download",
        lambda _url, _until, token: json.dumps(config).encode() * bool(token),
    )
    client = client_of()
    path = "/v1/models/some/gated-model"
    assert client.get(path).status_code == 403
    opened = client.get(path, headers={"X-HF-Token": HIDDEN})
    assert (opened.status_code, opened.json()["name"]) == (200, "some/gated-model")
    assert client.get(path).status_code == 403
    assert HIDDEN in seen
    assert hub_cache.read(hub_client.WEBSITE, "some/gated-model", "main") is None
    assert not any(HIDDEN.encode() in file.read_bytes() for file in tmp_path.rglob("*.json"))


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A Redis of its own; its address and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started_redis(port, tmp_path) as process:
        yield f"redis://127.0.0.1:{port}/0", process


@contextmanager
def started_redis(port: int, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    program = need("redis-server", get="apt-get install redis-server")
    command = [program, "--port", str(port), "--save", "", "--dir", str(folder)]
    with subprocess.Popen([*command, "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL) as process:
        for _ in range(200):
            try:
                with socket.create_connection(("127.0.0.1", port), 1):
                    break
            except OSError:
                time.sleep(0.05)
        yield process
        process.kill()


def ask(url: str, *keys: Any) -> list[Any]:
    """Return what a new replica knows."""

    async def _ask() -> list[Any]:
        replica = KnownReplies(Settings(redis_url=SecretStr(url)))
        found = [await replica.get(key) for key in keys]
        await replica.far.close()
        return found

    return anyio.run(_ask)


def tell(url: str, key: Any, reply: object) -> None:
    async def _tell() -> None:
        replica = KnownReplies(Settings(redis_url=SecretStr(url)))
        await replica.put(key, reply)
        await replica.far.close()

    anyio.run(_tell)


def test_a_body_is_not_held_and_a_long_answer_counts_as_several() -> None:
    keys = [(suggestion, b"%d" % number) for number in range(3)]

    async def hold() -> tuple[int, list[bool]]:
        replies = KnownReplies(Settings(cached_answers=4))
        tracemalloc.start()
        await replies.put((suggestion, b" " * 2**22), REPLY)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for key, size in zip(keys, (10, 10, 500_000), strict=True):
            await replies.put(key, Reply(b"x" * size, "a" * 64))
        return held, [await replies.get(key) is not None for key in keys]

    held, known = anyio.run(hold)
    assert held < 2**20
    assert known == [False, True, True]


def test_what_one_replica_answered_another_knows(redis_server: Any) -> None:
    url, _ = redis_server
    key = (suggestion, b"{}")
    assert ask(url, key) == [None]
    tell(url, key, REPLY)
    assert ask(url, key, (suggestion, b"{ }"), (model, b"{}")) == [REPLY, None, None]
    (name,) = Redis.from_url(url).keys()
    assert 0 < Redis.from_url(url).ttl(name) <= 600


@pytest.mark.parametrize("damage", [b"", b"short", b"\xff" * 500, b"a" * 128 + b"{}"])
def test_what_redis_has_damaged_is_not_answered(redis_server: Any, damage: bytes) -> None:
    url, _ = redis_server
    tell(url, (suggestion, b"{}"), REPLY)
    redis = Redis.from_url(url)
    (name,) = redis.keys()
    redis.set(name, damage)
    assert ask(url, (suggestion, b"{}")) == [None]


def state_of(service: Service, path: str) -> dict[str, Any]:
    status, headers, body = service.get(path)
    assert (status, headers["cache-control"]) == (200, "no-store")
    return dict(json.loads(body))


def test_a_job_is_known_to_replicas_and_survives_a_redis_that_begins_anew(
    redis_server: Any, tmp_path: Path
) -> None:
    url, process = redis_server
    with served(processes=1, redis_url=url) as one, served(processes=0, redis_url=url) as other:
        status, headers, body = one.post(GPT2, "/v1/jobs")
        path = headers["location"]
        assert (status, json.loads(body)["state"]) == (202, "going")
        wait_until(lambda: state_of(other, path)["state"] == "done")
        assert state_of(other, path)["answer"]["chosen"]["family"] == "ddp"
        wrong = one.post({**GPT2, "cluster": {"gpu": "h1000"}}, "/v1/jobs")[1]["location"]
        wait_until(lambda: state_of(other, wrong)["state"] == "failed")
        assert state_of(other, wrong)["problem"]["status"] == 422
        process.kill()
        process.wait()
        assert state_of(one, path)["state"] == "done"
        assert other.get(path)[0] == 404
        long = one.post(LONG, "/v1/jobs")[1]["location"]
        with started_redis(int(url.removesuffix("/0").rpartition(":")[2]), tmp_path):
            wait_until(lambda: other.get(long)[0] == 200)
            assert state_of(other, long)["state"] == "going"
            assert other.ask("DELETE", long, None, {})[0] == 204
            assert [each.get(long)[0] for each in (one, other)] == [404, 404]
            wait_until(lambda: one.post({**GPT2, "id": "after"})[0] == 200)
    assert "Traceback" not in one.said + other.said


@pytest.mark.parametrize(
    ("body", "status"), [(b"{}", 422), (b'{"modle": 1}', 422), (b"[]", 422), (b"{", 400)]
)
def test_what_is_no_request_begins_no_job_and_is_told_as_a_plan_is(
    body: bytes, status: int
) -> None:
    client = client_of(jobs=1)
    sent: dict[str, Any] = {"content": body, "headers": {"content-type": "application/json"}}
    begun, planned = (client.post(path, **sent) for path in ("/v1/jobs", "/v1/suggest"))
    assert (begun.status_code, "location" in begun.headers) == (status, False)
    assert begun.headers["content-type"] == "application/problem+json"
    assert begun.json() == {**planned.json(), "instance": "/v1/jobs"}


def test_a_job_that_fails_says_why_and_more_than_may_go_on_are_refused() -> None:
    with served(processes=1, jobs=1, job_seconds=3) as service:
        path = service.post(LONG, "/v1/jobs")[1]["location"]
        refused = service.post(GPT2, "/v1/jobs")
        assert (refused[0], int(refused[1]["retry-after"])) == (429, 2)
        assert int(service.get(path)[1]["retry-after"]) > 0
        wait_until(lambda: state_of(service, path)["state"] == "failed")
        late = state_of(service, path)
        assert (late["problem"]["status"], late["answer"]) == (504, None)
        unknown = service.get("/v1/jobs/0")
        assert (unknown[0], json.loads(unknown[2])["field"]) == (404, "id")


def test_without_redis_answers_are_the_same(redis_server: Any) -> None:
    url, process = redis_server
    with served(processes=0, redis_url=url) as service:
        first = service.post({**GPT2, "id": "before"})
        process.kill()
        process.wait()
        assert service.post({**GPT2, "id": "before"})[2] == first[2]
        status, _, body = service.post({**GPT2, "id": "after"})
        assert (first[0], status, json.loads(body)["id"]) == (200, 200, "after")
    assert "Traceback" not in service.said


def test_a_redis_that_says_nothing_holds_up_one_request() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        assert ask(url, *[(suggestion, bytes([number])) for number in range(3)]) == [None] * 3
