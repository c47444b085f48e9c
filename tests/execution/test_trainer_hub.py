"""--push_to_hub against a stub of the Hub: what it takes arrives, and a refusal is a line before training."""

import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from launched import LLAMA, TINY
from trainer_runs import tokens, train

SPEC = replace(TINY, model_config=LLAMA)
REPOSITORY = "me/tiny"
PUSH = ("--push_to_hub", "true", "--hub_model_id", REPOSITORY)


class Hub(ThreadingHTTPServer):
    """Takes files as they are, and keeps their names."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.refuses = ""
        self.taken: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/api/repos/create":
            self._answer({"url": f"{self.server.url}/{REPOSITORY}", "name": REPOSITORY})
        elif "/preupload/" in self.path:
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            files = [{"path": each["path"], **modes} for each in json.loads(body)["files"]]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines()]
            self.server.taken += [
                str(line["value"]["path"]) for line in lines if line["key"] == "file"
            ]
            url = f"{self.server.url}/{REPOSITORY}/commit/{'0' * 40}"
            self._answer({"commitUrl": url, "commitOid": "0" * 40, "success": True})
        else:
            self._answer({})

    def do_GET(self) -> None:
        self._answer({"id": REPOSITORY, "siblings": [], "name": "me", "sha": "0" * 40})

    def _answer(self, value: object) -> None:
        refused = {"error": self.server.refuses}
        text = json.dumps(refused if self.server.refuses else value).encode()
        self.send_response(403 if self.server.refuses else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as running:
        Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield running
        running.shutdown()


def online(hub: Hub) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_secret"}


def test_the_trained_model_is_pushed(hub: Hub, tmp_path: Path) -> None:
    run = train(tmp_path, SPEC, *tokens(tmp_path), *PUSH, **online(hub)).finish()
    assert "model.safetensors" in hub.taken
    assert len(run.losses) == 3
    assert "hf_secret" not in run.printed


def test_a_hub_that_refuses_is_one_line_before_training(hub: Hub, tmp_path: Path) -> None:
    hub.refuses = "You need a token that may write"
    for where in (
        online(hub),
        {**online(hub), "HF_ENDPOINT": "http://127.0.0.1:9"},
    ):
        printed = train(tmp_path, SPEC, *PUSH, **where).fail()
        assert printed.count("cannot train on random data: ") == 1
        assert "Traceback" not in printed
        assert '"loss"' not in printed
