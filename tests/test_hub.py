"""A Hub on loopback answers the real client; nothing else is fake, and no test waits."""

import json
import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import hub
from planner.errors import (
    HubUnreachableError,
    InvalidInputError,
    ModelAccessError,
    ModelNotFoundError,
    PlannerError,
)

CONFIG = {"model_type": "gpt2", "n_embd": 16}
TEXT = json.dumps(CONFIG)
CLIENT = "huggingface_hub"


@dataclass(frozen=True)
class Answer:
    """What the fake Hub says when it is asked for a file."""

    body: str = ""
    status: int = 200
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)


MISSING = Answer(status=404, code="RepoNotFound")
ANSWERS = {
    "org/found": Answer(TEXT),
    "org/gated-401": Answer(status=401, code="GatedRepo"),
    "org/gated-403": Answer(status=403, code="GatedRepo"),
    "org/private": Answer(status=401, code="RepoNotFound"),
    "org/bad-token": Answer(
        status=401, headers={"X-Error-Message": "Invalid credentials in Authorization header"}
    ),
    "org/forbidden": Answer(status=403),
    "org/adapter": Answer(status=404, code="EntryNotFound"),
    "org/broken": Answer(status=500),
    "org/busy": Answer(status=503),
    "org/not-json": Answer("{not json"),
    "org/list": Answer("[1, 2]"),
    "org/large": Answer(json.dumps({"model_type": "x" * hub.LARGEST_CONFIG_BYTES})),
    "org/no-etag": Answer(TEXT, headers={"ETag": ""}),
}


class Hub(ThreadingHTTPServer):
    """`ANSWERS` over HTTP, as the Hub would give them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        repository, _, rest = self.path.removeprefix("/").partition("/resolve/")
        answer = ANSWERS.get(repository, MISSING) if rest.endswith("config.json") else MISSING
        self.server.asked.append(f"{self.command} {repository}")
        body = answer.body.encode()
        headers = {
            "Content-Length": str(len(body)),
            "ETag": f'"{hash(answer.body)}"',
            "X-Repo-Commit": "0" * 40,
            "X-Error-Code": answer.code,
        } | answer.headers
        self.send_response(answer.status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_GET = do_HEAD  # noqa: N815 - the base class's spelling

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def server() -> Generator[Hub]:
    with Hub() as running:
        Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield running
        running.shutdown()


def _forget_client() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.split(".")[0] == CLIENT]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[pytest.MonkeyPatch]:
    """Let the client be imported anew, with an empty cache, by whoever asks next."""
    for name in list(os.environ):
        if name.startswith("HF_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    before = _forget_client()
    yield monkeypatch
    http = sys.modules.get(f"{CLIENT}.utils._http")
    if http:
        http.close_session()
    _forget_client()
    sys.modules.update(before)


@pytest.fixture
def online(client: pytest.MonkeyPatch, server: Hub) -> Hub:
    client.setenv("HF_ENDPOINT", server.url)
    server.asked.clear()
    return server


def _refused(name: str, kind: type[PlannerError], *, allow_paths: bool = False) -> PlannerError:
    """Return the error that a name meets, after checking that it helps and takes no time."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        hub.find_model(name, allow_paths=allow_paths)
    assert time.monotonic() - started < 5
    assert caught.value.field == "model"
    assert len(caught.value.message) < 400
    return caught.value


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2", "GPT2"])
def test_a_model_that_ships_needs_no_network(client: pytest.MonkeyPatch, name: str) -> None:
    client.setitem(sys.modules, CLIENT, None)
    found = hub.find_model(name, allow_paths=False)
    assert found.name == "openai-community/gpt2"
    assert found.is_pretrained
    assert found.config["n_embd"] == 768


def test_a_model_is_found_on_the_hub(online: Hub) -> None:
    found = hub.find_model("org/found", allow_paths=False)
    assert found == hub.ModelSource(name="org/found", config=CONFIG, is_pretrained=True)
    assert "GET org/found" in online.asked


def test_the_second_time_nothing_is_asked(online: Hub) -> None:
    first = hub.find_model("org/found", allow_paths=False)
    online.asked.clear()
    assert hub.find_model("org/found", allow_paths=False) == first
    assert online.asked == []


def test_offline_a_cached_model_is_found_and_another_is_not(
    online: Hub, client: pytest.MonkeyPatch
) -> None:
    hub.find_model("org/found", allow_paths=False)
    _forget_client()
    client.setenv("HF_HUB_OFFLINE", "true")
    online.asked.clear()
    assert hub.find_model("org/found", allow_paths=False).config == CONFIG
    error = _refused("org/other", HubUnreachableError)
    assert "HF_HUB_OFFLINE is set" in error.message
    assert online.asked == []


def test_a_model_that_does_not_exist_names_a_similar_one(online: Hub) -> None:
    error = _refused("org/gpt2-mediun", ModelNotFoundError)
    assert type(error) is ModelNotFoundError
    assert "no model 'org/gpt2-mediun' on the Hub" in error.message
    assert "gpt2-medium" in error.hint
    assert online.asked == ["HEAD org/gpt2-mediun"]


@pytest.mark.usefixtures("online")
def test_a_private_model_looks_like_none() -> None:
    error = _refused("org/private", ModelNotFoundError)
    assert type(error) is ModelNotFoundError
    assert "a private model needs HF_TOKEN" in error.hint


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("name", ["org/gated-401", "org/gated-403"])
def test_a_gated_model_says_where_to_accept_its_terms(name: str) -> None:
    error = _refused(name, ModelAccessError)
    assert "gated" in error.message
    assert f"https://huggingface.co/{name}" in error.hint


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(("name", "status"), [("org/bad-token", 401), ("org/forbidden", 403)])
def test_a_refused_token_is_named_as_the_cause(name: str, status: int) -> None:
    error = _refused(name, ModelAccessError)
    assert f"HTTP {status}" in error.message
    assert "HF_TOKEN" in error.hint


@pytest.mark.usefixtures("online")
def test_a_repository_without_a_config_is_perhaps_an_adapter() -> None:
    error = _refused("org/adapter", ModelNotFoundError)
    assert error.message == "'org/adapter' has no config.json"
    assert "base model" in error.hint


@pytest.mark.parametrize(("name", "status"), [("org/broken", 500), ("org/busy", 503)])
def test_a_hub_in_trouble_is_not_waited_for(online: Hub, name: str, status: int) -> None:
    error = _refused(name, HubUnreachableError)
    assert f"did not answer (HTTP {status})" in error.message
    assert online.asked == [f"HEAD {name}"]


@pytest.mark.usefixtures("online")
def test_an_answer_the_client_cannot_use_is_no_answer() -> None:
    error = _refused("org/no-etag", HubUnreachableError)
    assert "did not answer" in error.message


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("name", "says"),
    [("org/not-json", "is not JSON"), ("org/list", "holds no JSON object")],
)
def test_a_malformed_config_says_so(name: str, says: str) -> None:
    assert says in _refused(name, InvalidInputError).message


def test_a_huge_config_is_not_even_downloaded(online: Hub, tmp_path: Path) -> None:
    error = _refused("org/large", InvalidInputError)
    assert "larger than 1 MiB" in error.message
    assert online.asked == ["HEAD org/large"]
    assert not list((tmp_path / "cache").rglob("config.json"))


def test_a_refused_connection_says_so_at_once(client: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        error = _refused("org/gpt2-medium", HubUnreachableError)
    assert "no connection to 127.0.0.1" in error.message
    assert "gpt2-medium" in error.hint
    assert "config.json" in error.hint


def test_a_network_that_swallows_everything_is_given_up_on(client: pytest.MonkeyPatch) -> None:
    given_up = Event()

    def swallow(*_: object, **__: object) -> socket.socket:
        given_up.wait(30)
        raise TimeoutError

    client.setattr(socket, "create_connection", swallow)
    client.setattr(hub, "CONNECT_TIMEOUT_SECONDS", 0.05)
    error = _refused("org/found", HubUnreachableError)
    given_up.set()
    assert "no connection to huggingface.co" in error.message


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("hub.example.org", "HF_ENDPOINT is not a URL"),
        ("http://", "HF_ENDPOINT is not a URL"),
        ("", "HF_ENDPOINT is not a URL"),
        ("http://[::1", "HF_ENDPOINT is not a URL"),
        ("http://127.0.0.1:port", "HF_ENDPOINT is not a URL"),
        (f"https://{'a' * 100}.invalid", "no connection to aaa"),
    ],
)
def test_a_malformed_endpoint_is_named(
    client: pytest.MonkeyPatch, endpoint: str, says: str
) -> None:
    client.setenv("HF_ENDPOINT", endpoint)
    assert says in _refused("org/found", HubUnreachableError).message


def test_behind_a_proxy_the_client_asks_the_proxy(client: pytest.MonkeyPatch, server: Hub) -> None:
    client.setenv("HF_ENDPOINT", "http://hub.invalid")
    client.setenv("HTTP_PROXY", server.url)
    error = _refused("org/found", ModelNotFoundError)
    assert server.asked[-1].startswith("HEAD http:")
    assert type(error) is ModelNotFoundError


def test_behind_a_dead_proxy_the_clients_own_error_is_told(client: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client.setenv("HF_ENDPOINT", "http://hub.invalid")
        client.setenv("ALL_PROXY", f"http://127.0.0.1:{closed.getsockname()[1]}")
        error = _refused("org/found", HubUnreachableError)
    assert "ConnectError" in error.message


def test_without_the_client_the_hint_names_the_extra(client: pytest.MonkeyPatch) -> None:
    client.setitem(sys.modules, CLIENT, None)
    error = _refused("org/gpt2-medium", ModelNotFoundError)
    assert "not among the models that ship" in error.message
    assert "pip install 'planner[hub]'" in error.hint
    assert "gpt2-medium" in error.hint


IMPOSSIBLE = {
    "empty": "",
    "a way out": "../../etc/passwd",
    "an absolute path": "/etc/passwd",
    "a command": "$(reboot)",
    "two lines": "gpt2\nmodel",
    "a line end": "org/found\n",
    "NUL": "org/mo\0del",
    "10 kB": "x" * 10_000,
    "10 kB of folders": "x/" * 5_000,
    "three parts": "a/b/c",
    "no organisation": "/model",
    "no model": "org/",
    "dots": "org/mo..del",
    "dashes": "org/mo--del",
    "a dot at the end": "org/model.",
    "a dash at the end": "org/model-",
    "a repository of git": "org/model.git",
    "letters of elsewhere": "org/mod\u00e8le",
    "a lone surrogate": "org/\ud800",
    "a URL": "https://huggingface.co/gpt2",
    "spaces": "org/my model",
}


@pytest.mark.parametrize("name", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_what_cannot_be_an_id_never_reaches_the_network(online: Hub, name: str) -> None:
    error = _refused(name, InvalidInputError)
    assert "is not a model id" in error.message
    assert "organisation/name" in error.hint
    assert online.asked == []


@settings(deadline=None)
@given(name=st.text(alphabet=st.characters(exclude_categories=()), max_size=300))
def test_any_name_is_found_or_refused(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, CLIENT, None)
        for allow_paths in (False, True):
            with suppress(InvalidInputError, ModelNotFoundError):
                hub.find_model(name, allow_paths=allow_paths)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder with a model under `model/config.json`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["model", "model/", "./model", "model/config.json", "~/model", "model/../model"]
)
@pytest.mark.usefixtures("folder")
def test_a_path_is_a_folder_or_its_config(name: str) -> None:
    found = hub.find_model(name, allow_paths=True)
    assert found == hub.ModelSource(name=name, config=CONFIG, is_pretrained=False)


def test_an_absolute_path_is_one_too(folder: Path) -> None:
    assert hub.find_model(str(folder / "model"), allow_paths=True).config == CONFIG


def test_a_config_from_an_editor_that_marks_its_encoding_is_read(folder: Path) -> None:
    (folder / "marked.json").write_text(TEXT, encoding="utf-8-sig")
    assert hub.find_model("marked.json", allow_paths=True).config == CONFIG


def test_a_model_that_ships_is_not_hidden_by_a_folder(folder: Path) -> None:
    (folder / "gpt2").mkdir()
    assert hub.find_model("gpt2", allow_paths=True).config["n_embd"] == 768


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent.json", "No such file"),
        ("./absent", "No such file"),
        ("model/config.json/deeper.json", "Not a directory"),
        (".", "config.json': No such file"),
        ("~nobody-of-that-name/model", "home directory"),
        ("/" + "x" * 5_000, "File name too long"),
        ("./\ud800", "surrogates not allowed"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_path_that_cannot_be_read_says_why(name: str, says: str) -> None:
    error = _refused(name, ModelNotFoundError, allow_paths=True)
    assert says in error.message
    assert "config.json" in error.hint


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00", "not a text file"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "no JSON object"),
        (b"3", "no JSON object"),
        (b"null", "no JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"n_embd": ' + b"9" * 5_000 + b"}", "not JSON"),
        (b" " * (hub.LARGEST_CONFIG_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_holds_no_config_says_so(folder: Path, content: bytes, says: str) -> None:
    (folder / "bad.json").write_bytes(content)
    assert says in _refused("bad.json", InvalidInputError, allow_paths=True).message


def test_an_endless_device_is_not_read_to_its_end() -> None:
    error = _refused("/dev/zero", InvalidInputError, allow_paths=True)
    assert "larger than 1 MiB" in error.message


def test_a_folder_without_a_config_says_so(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "empty/config.json" in _refused("empty", ModelNotFoundError, allow_paths=True).message


@pytest.mark.parametrize(
    "name", ["", "x" * 10_000, "x/" * 5_000, "org/mo\0del", "./mo\0del", "a/b/c"]
)
@pytest.mark.usefixtures("folder")
def test_a_name_that_is_neither_id_nor_path_is_refused(name: str) -> None:
    error = _refused(name, InvalidInputError, allow_paths=True)
    assert "is not a model id" in error.message


def test_a_request_from_elsewhere_never_touches_the_file_system(
    folder: Path, client: pytest.MonkeyPatch
) -> None:
    client.setitem(sys.modules, CLIENT, None)
    names = ["model", "./model", "model/config.json", "~/model", str(folder / "model")]
    opened: list[Any] = []

    def record(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir"} and watching:
            opened.extend(arguments[:1])

    hub.find_model("gpt2", allow_paths=False)
    for name in names:  # the records of the catalogue are read before we watch
        _refused(name, PlannerError)
    watching = True
    sys.addaudithook(record)
    for name in names:
        _refused(name, PlannerError)
    watching = False
    assert [path for path in opened if str(folder) in str(path) or "model" in str(path)] == []


def test_a_text_of_the_largest_size_is_still_read() -> None:
    text = TEXT.ljust(hub.LARGEST_CONFIG_BYTES)
    assert hub.parse_config(text, "config.json") == CONFIG
    with pytest.raises(InvalidInputError, match=r"config\.json is larger than 1 MiB"):
        hub.parse_config(text + " ", "config.json")
