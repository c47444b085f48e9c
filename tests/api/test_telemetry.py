"""Where a collector is named, it is told of requests, and of no key."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest
from served import served


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Its address, and what it is told, and where."""
    heard: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()


def test_a_collector_is_told_of_requests_but_of_no_key_and_no_probe(
    collector: tuple[str, list[tuple[str, bytes]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, heard = collector
    packages = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
    wanted = [f"{name}=={version('opentelemetry-api')}" for name in packages]
    uv = Path(sys.executable).with_name("uv")
    install = (uv, "pip", "install", "--quiet", "--system-certs", "--python", sys.executable)
    subprocess.run([*install, "--target", tmp_path, *wanted], check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-planner")
    with served(processes=1) as service:
        headers = {"x-api-key": "a-secret", "x-hf-token": "hf_secret"}
        assert service.get("/v1/gpus/h100", headers)[0] == 200
        assert service.ask("POST", "/v1/gpus", b'{"a": "privately"}', headers)[0] == 405
    assert "Traceback" not in service.said
    said = b"".join(body for path, body in heard if path == "/v1/traces")
    assert b"/v1/gpus/{name}" in said
    assert b"our-planner" in said
    for hidden in (b"secret", b"privately", b"healthz"):
        assert hidden not in said
