"""A Hub on loopback answers the real client; nothing else is fake, and no test waits."""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.core.errors import (
    HubUnreachableError,
    InvalidInputError,
    ModelAccessError,
    ModelNotFoundError,
    PlannerError,
)
from planner.models import hub, hub_cache, hub_client

CONFIG = {"model_type": "gpt2", "n_embd": 16}
NEWER = CONFIG | {"n_embd": 32}
TEXT = json.dumps(CONFIG)
CLIENT = "huggingface_hub"
TOKEN = "hf_" + "oNlyForThisTest" * 2
PATIENCE_SECONDS = hub_client.PATIENCE_SECONDS
BUSY_SECONDS = 20
"""What an answer may take on a machine that does much else; the client's own retries take longer."""
NEVER_SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """What the fake Hub says when it is asked for a file."""

    body: str = ""
    status: int = 200
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def _adapter(**values: object) -> Answer:
    return Answer(json.dumps({"peft_type": "LORA"} | values))


def _info(**values: object) -> Answer:
    return Answer(json.dumps({"id": "any"} | values))


def _files(*names: str, tags: tuple[str, ...] = ()) -> Answer:
    return _info(siblings=[{"rfilename": name} for name in names], tags=tags)


MISSING = Answer(status=404, code="RepoNotFound")
NO_FILE = Answer(status=404, code="EntryNotFound")
NO_REVISION = Answer(status=404, code="RevisionNotFound")
GGUF = ("README.md", "q4.gguf", "q8.gguf", "LICENSE")
ANSWERS = {
    "org/found": Answer(TEXT),
    "org/found resolve/v2/config.json": Answer(json.dumps(NEWER)),
    "org/found resolve/absent/config.json": NO_REVISION,
    "org/found api": _info(
        safetensors={"parameters": {"F32": 10, "BF16": 1000, "I8": 5}, "total": 1015}
    ),
    "org/gated-401": Answer(status=401, code="GatedRepo"),
    "org/gated-403": Answer(status=403, code="GatedRepo"),
    "org/private": Answer(status=401, code="RepoNotFound"),
    "org/bad-token": Answer(
        status=401, headers={"X-Error-Message": "Invalid credentials in Authorization header"}
    ),
    "org/forbidden": Answer(status=403),
    "org/broken": Answer(status=500),
    "org/busy": Answer(status=503),
    "org/not-json": Answer("{not json"),
    "org/list": Answer("[1, 2]"),
    "org/not-text": Answer("\udcff"),
    "org/large": Answer(json.dumps({"model_type": "x" * hub.LARGEST_CONFIG_BYTES})),
    "org/sly": Answer("x" * (hub.LARGEST_CONFIG_BYTES + 1), headers={"X-Linked-Size": "10"}),
    "org/no-etag": Answer(TEXT, headers={"ETag": ""}),
    "org/renamed": Answer(status=307, headers={"Location": "/org/found/resolve/main/config.json"}),
    "org/circle": Answer(status=307, headers={"Location": "/org/circle/resolve/main/config.json"}),
    "org/no-safetensors": Answer(TEXT),
    "org/no-safetensors api": _info(),
    "org/odd-safetensors": Answer(TEXT),
    "org/odd-safetensors api": _info(safetensors={"parameters": {}, "total": "many"}),
    "org/custom": Answer(json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "c.C"}})),
    "org/gpt2-custom": Answer(TEXT[:-1] + ', "auto_map": {"AutoConfig": "c.C"}}'),
    "datasets/org/text": Answer("# Text"),
    "datasets/org/gated-text": Answer(status=403, code="GatedRepo"),
    "datasets/org/bare-text": NO_FILE,
    "org/bare": NO_FILE,
    "org/weights": NO_FILE,
    "org/weights api": _files("README.md", "model.onnx", "a.onnx"),
    "org/lora": NO_FILE,
    "org/lora adapter_config.json": _adapter(base_model_name_or_path="org/found"),
    "org/lora-of-gpt2": NO_FILE,
    "org/lora-of-gpt2 adapter_config.json": _adapter(base_model_name_or_path="gpt2"),
    "org/ia3": NO_FILE,
    "org/ia3 adapter_config.json": _adapter(peft_type="IA3", base_model_name_or_path="org/custom"),
    "org/lora-of-lora": NO_FILE,
    "org/lora-of-lora adapter_config.json": _adapter(base_model_name_or_path="org/lora"),
    "org/lora-of-itself": NO_FILE,
    "org/lora-of-itself adapter_config.json": _adapter(
        base_model_name_or_path="org/lora-of-itself"
    ),
    "org/lora-of-a-folder": NO_FILE,
    "org/lora-of-a-folder adapter_config.json": _adapter(base_model_name_or_path="./model"),
    "org/lora-of-nothing": NO_FILE,
    "org/lora-of-nothing adapter_config.json": _adapter(),
    "org/lora-of-gated": NO_FILE,
    "org/lora-of-gated adapter_config.json": _adapter(base_model_name_or_path="org/gated-403"),
    "org/lora-malformed": NO_FILE,
    "org/lora-malformed adapter_config.json": Answer("{"),
    "org/gguf": NO_FILE,
    "org/gguf api": _files(*GGUF, tags=("gguf", "base_model:org/found")),
    "org/gguf-quantized": NO_FILE,
    "org/gguf-quantized api": _files(*GGUF, tags=("base_model:quantized:org/found",)),
    "org/gguf-of-nothing": NO_FILE,
    "org/gguf-of-nothing api": _files(*GGUF),
}


class Hub(ThreadingHTTPServer):
    """`ANSWERS` over HTTP, as the Hub would give them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.may_answer = Event()
        self.renew()

    def renew(self) -> None:
        self.asked.clear()
        self.tokens.clear()
        self.answers = dict(ANSWERS)
        self.may_answer.set()

    def break_down(self) -> None:
        self.answers = dict.fromkeys(ANSWERS, Answer(status=502))

    def handle_error(self, *_: object) -> None:
        """Say nothing about clients that hung up."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        key = self._key()
        self.server.asked.append(f"{self.command} {key}")
        self.server.tokens.append(self.headers.get("Authorization", ""))
        self.server.may_answer.wait(NEVER_SECONDS)
        answer = self.server.answers.get(key)
        if answer is None:
            is_known = key.split(" ")[0] in self.server.answers
            answer = NO_FILE if is_known and " api" not in key else MISSING
        body = answer.body.encode(errors="surrogateescape")
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
            with suppress(ConnectionError):
                self.wfile.write(body)

    do_GET = do_HEAD  # noqa: N815 - the base class's spelling

    def _key(self) -> str:
        """Return the key of `ANSWERS`: a bare id stands for its config.json on main."""
        path = self.path.partition("?")[0].removeprefix("/")
        if path.startswith("api/models/"):
            return "/".join(path.split("/")[2:4]) + " api"
        repository, _, rest = path.partition("/resolve/")
        file = rest.removeprefix("main/")
        if file == "config.json" or repository.startswith("datasets/"):
            return repository
        return f"{repository} {file}" if file != rest else f"{repository} resolve/{rest}"

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def server() -> Generator[Hub]:
    with Hub() as running:
        Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield running
        running.may_answer.set()
        running.shutdown()


def _forget_client() -> dict[str, ModuleType]:
    """Take the client's modules out, so that it is imported anew."""
    names = [name for name in sys.modules if name.split(".")[0] == CLIENT]
    return {name: sys.modules.pop(name) for name in names}


def _close_client() -> None:
    """Close the client's connections: a socket that is collected open warns in some other test."""
    http = sys.modules.get(f"{CLIENT}.utils._http")
    if http:
        http.close_session()


@pytest.fixture
def client(tmp_path: Path) -> Generator[pytest.MonkeyPatch]:
    """Let the client be imported anew, with an empty cache, by whoever asks next."""
    before = _forget_client()
    # A patch of its own: undone after the modules are put back, it would take them out again.
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("HF_") or name.lower().endswith("_proxy"):
                patch.delenv(name)
        patch.setenv("HF_HOME", str(tmp_path / "cache"))
        patch.setenv("PLANNER_CACHE_DIR", str(tmp_path / "own"))
        patch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        patch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        # Importing the client counts, and takes seconds where the machine is busy.
        patch.setattr(hub_client, "PATIENCE_SECONDS", NEVER_SECONDS)
        yield patch
        _close_client()
    _forget_client()
    sys.modules.update(before)


@pytest.fixture
def online(client: pytest.MonkeyPatch, server: Hub) -> Hub:
    client.setenv("HF_ENDPOINT", server.url)
    server.renew()
    return server


def _refused(name: str, kind: type[PlannerError], *, allow_paths: bool = False) -> PlannerError:
    """Return the error that a name meets, after checking that it helps and takes no longer than one question."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        hub.find_model(name, allow_paths=allow_paths)
    assert time.monotonic() - started < BUSY_SECONDS
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


def _find(name: str, revision: str | None = None) -> hub.ModelSource:
    return hub.find_model(name, allow_paths=False, revision=revision)


FOUND = hub.ModelSource(
    name="org/found",
    config=CONFIG,
    is_pretrained=True,
    safetensors_parameters=1015,
    safetensors_dtype="BF16",
)


def test_a_model_is_found_on_the_hub(online: Hub) -> None:
    assert _find("org/found") == FOUND
    assert online.asked == ["HEAD org/found", "GET org/found", "GET org/found api"]


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("name", ["org/no-safetensors", "org/odd-safetensors", "org/no-etag"])
def test_a_count_of_the_weights_is_not_needed(name: str) -> None:
    assert _find(name) == hub.ModelSource(name=name, config=CONFIG, is_pretrained=True)


def test_a_slow_count_of_the_weights_is_not_waited_for(
    online: Hub, client: pytest.MonkeyPatch
) -> None:
    _find("org/no-safetensors")  # imports the client, which the seconds below need not hold
    client.setattr(hub_client, "PATIENCE_SECONDS", 2.0)
    online.answers["org/found api"] = Answer("1", headers={"Content-Length": "1000"})
    assert _find("org/found").safetensors_parameters is None


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("revision", ["v2", None])
def test_a_revision_is_a_flag_or_part_of_the_name(revision: str | None) -> None:
    found = _find("org/found" if revision else "org/found@v2", revision)
    assert found.config == NEWER
    assert (found.name, found.revision) == ("org/found", "v2")
    assert _find("org/found").config == CONFIG
    assert _find("org/found@main").config == CONFIG


def test_main_of_a_model_that_ships_needs_no_network(online: Hub) -> None:
    assert _find("gpt2@main").config["n_embd"] == 768
    assert online.asked == []
    with pytest.raises(ModelNotFoundError):
        _find("org/gpt2", "v2")


@pytest.mark.usefixtures("online")
def test_a_revision_that_does_not_exist_is_named() -> None:
    error = _refused("org/found@absent", ModelNotFoundError)
    assert error.message == "'org/found' has no revision 'absent'"
    assert "the default is main" in error.hint


@pytest.mark.parametrize(
    "revision", ["", " ", "a b", "../main", "a/../b", "-main", "v\n", "x" * 200, "v2@v3"]
)
def test_what_cannot_be_a_revision_never_reaches_the_network(online: Hub, revision: str) -> None:
    error = _refused(f"org/found@{revision}", InvalidInputError)
    assert "is not a revision" in error.message
    assert online.asked == []


@pytest.mark.usefixtures("online")
def test_a_renamed_model_is_found() -> None:
    assert _find("org/renamed").config == CONFIG


@pytest.mark.usefixtures("online")
def test_a_model_renamed_in_a_circle_is_not_followed_for_ever() -> None:
    assert "TooManyRedirects" in _refused("org/circle", HubUnreachableError).message


@pytest.fixture
def aged(online: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub whose answer about org/found was kept more than a day ago."""
    _find("org/found")
    monkeypatch.setattr(hub_cache, "TTL_SECONDS", 0)
    online.asked.clear()
    return online


def test_within_a_day_nothing_is_asked(online: Hub, client: pytest.MonkeyPatch) -> None:
    _find("org/found")
    online.asked.clear()
    client.setitem(sys.modules, CLIENT, None)
    assert _find("org/found") == FOUND
    assert online.asked == []


def test_after_a_day_an_unchanged_config_is_not_downloaded_again(
    aged: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _find("org/found") == FOUND
    assert aged.asked == ["HEAD org/found"]
    monkeypatch.setattr(hub_cache, "TTL_SECONDS", 60)
    assert _find("org/found") == FOUND
    assert aged.asked == ["HEAD org/found"]


def test_after_a_day_a_changed_config_is_downloaded(aged: Hub) -> None:
    aged.answers["org/found"] = Answer(json.dumps(NEWER))
    assert _find("org/found").config == NEWER
    assert "GET org/found" in aged.asked


def test_after_a_day_a_model_may_be_gone(aged: Hub) -> None:
    aged.answers["org/found"] = Answer(status=403, code="GatedRepo")
    assert "gated" in _refused("org/found", ModelAccessError).message


def test_a_hub_that_is_down_leaves_the_copy_of_another_day(aged: Hub) -> None:
    aged.break_down()
    found = _find("org/found")
    assert found.config == CONFIG
    assert "the Hub did not answer" in found.note
    assert f"'org/found' is shown as of {time.strftime('%Y-%m-%d', time.gmtime())}" in found.note


def test_offline_an_old_copy_is_shown_with_a_note(aged: Hub, client: pytest.MonkeyPatch) -> None:
    _close_client()
    _forget_client()
    client.setenv("HF_HUB_OFFLINE", "true")
    found = _find("org/found")
    assert (found.config, bool(found.note)) == (CONFIG, True)
    assert aged.asked == []


def test_offline_a_fresh_copy_is_found_and_another_model_is_not(
    online: Hub, client: pytest.MonkeyPatch
) -> None:
    _find("org/found")
    _close_client()
    _forget_client()
    client.setenv("HF_HUB_OFFLINE", "true")
    online.asked.clear()
    assert _find("org/found") == FOUND
    error = _refused("org/other", HubUnreachableError)
    assert "HF_HUB_OFFLINE is set" in error.message
    assert online.asked == []


def test_offline_what_other_programs_downloaded_is_found(
    online: Hub, client: pytest.MonkeyPatch
) -> None:
    import huggingface_hub  # noqa: PLC0415 - as the fixture lets it be imported anew

    huggingface_hub.hf_hub_download("org/found", "config.json")
    _close_client()
    _forget_client()
    client.setenv("HF_HUB_OFFLINE", "true")
    online.asked.clear()
    found = _find("org/found")
    assert found.config == CONFIG
    assert "shown as last downloaded" in found.note
    assert online.asked == []
    assert not list((Path(os.environ["PLANNER_CACHE_DIR"])).rglob("*.json"))


def _kept_files() -> list[Path]:
    return sorted((Path(os.environ["PLANNER_CACHE_DIR"]) / "hub").iterdir())


DAMAGED = {
    "empty": "",
    "cut": '{"format": 1, "entry": {"config": {"mod',
    "not an object": "[]",
    "another format": '{"format": 2, "entry": {}}',
    "no entry": '{"format": 1}',
    "no config and no base": '{"format": 1, "entry": {"checked_at": 1}}',
    "unknown field": '{"format": 1, "entry": {"checked_at": 1, "config": {}, "colour": 1}}',
    "a list for a config": '{"format": 1, "entry": {"checked_at": 1, "config": []}}',
    "a number for an ETag": '{"format": 1, "entry": {"checked_at": 1, "config": {}, "etag": 1}}',
    "text for a time": '{"format": 1, "entry": {"checked_at": "now", "config": {}}}',
    "too deep": "[" * 100_000,
    "too large": " " * (hub_cache.LARGEST_ENTRY_BYTES + 1),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_file_of_the_cache_is_no_file(online: Hub, text: str) -> None:
    _find("org/found")
    [file] = _kept_files()
    file.write_text(text, encoding="utf-8")
    online.asked.clear()
    assert _find("org/found") == FOUND
    assert "GET org/found" in online.asked
    online.asked.clear()
    assert _find("org/found") == FOUND
    assert online.asked == []


def test_a_clock_that_was_set_back_makes_the_copy_old(online: Hub) -> None:
    _find("org/found")
    [file] = _kept_files()
    kept = json.loads(file.read_text(encoding="utf-8"))
    kept["entry"]["checked_at"] = time.time() + 1000
    file.write_text(json.dumps(kept), encoding="utf-8")
    online.asked.clear()
    assert _find("org/found") == FOUND
    assert online.asked == ["HEAD org/found"]


def test_a_cache_that_cannot_be_written_is_no_error(online: Hub, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("a file", encoding="utf-8")
    assert _find("org/found") == FOUND
    assert _find("org/found") == FOUND
    assert online.asked.count("GET org/found") == 2


def test_a_write_that_fails_leaves_nothing_behind(
    online: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    assert _find("org/found") == FOUND
    assert _kept_files() == []
    assert online.asked


@pytest.mark.usefixtures("online")
def test_the_cache_forgets_its_oldest_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_cache, "MOST_ENTRIES", 2)
    for age, name in ((30, "org/found"), (20, "org/renamed"), (10, "org/no-safetensors")):
        _find(name)
        newest = max(_kept_files(), key=lambda file: file.stat().st_mtime)
        os.utime(newest, (time.time() - age, time.time() - age))
    names = [file.name.split(".")[0] for file in _kept_files()]
    assert names == ["org--no-safetensors", "org--renamed"]


def test_hubs_and_revisions_are_kept_apart(online: Hub, client: pytest.MonkeyPatch) -> None:
    _find("org/found")
    _find("org/found@v2")
    assert len(_kept_files()) == 2
    _close_client()
    _forget_client()
    client.setenv("HF_ENDPOINT", f"{online.url}/")
    online.asked.clear()
    _find("org/found")
    assert online.asked


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.usefixtures("online")
def test_without_a_chosen_folder_the_users_own_is_taken(
    client: pytest.MonkeyPatch, tmp_path: Path, *, is_installed: bool
) -> None:
    client.delenv("PLANNER_CACHE_DIR")
    client.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if not is_installed:
        client.setitem(sys.modules, "platformdirs", None)
    assert _find("org/found") == FOUND
    assert bool(list((tmp_path / "xdg").rglob("org--found.*.json"))) == is_installed


def test_a_model_that_does_not_exist_names_a_similar_one(online: Hub) -> None:
    error = _refused("org/gpt2-mediun", ModelNotFoundError)
    assert type(error) is ModelNotFoundError
    assert "no model 'org/gpt2-mediun' on the Hub" in error.message
    assert "gpt2-medium" in error.hint
    assert online.asked == ["HEAD org/gpt2-mediun", "HEAD datasets/org/gpt2-mediun"]


def test_a_model_that_ships_is_found_by_what_people_call_it(online: Hub) -> None:
    found = _find("Qwen2.5-7B-Instruct")
    assert (found.name, found.is_pretrained) == ("Qwen/Qwen2.5-7B-Instruct", True)
    assert found.note.endswith("architecture and sizes of Qwen/Qwen2.5-7B")
    assert _find("qwen2.5 7b").name == "Qwen/Qwen2.5-7B"
    assert online.asked == []


def test_a_name_with_an_owner_is_asked_of_the_hub_first(online: Hub) -> None:
    found = _find("meta-llama/Llama-3-8B")
    assert found.name == "meta-llama/Meta-Llama-3-8B"
    assert online.asked[0] == "HEAD meta-llama/Llama-3-8B"
    assert "no model 'meta-llama/Llama-3-8B' on the Hub" in found.note
    assert found.note.endswith("is planned as meta-llama/Meta-Llama-3-8B")


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("name", ["org/text", "org/gated-text", "org/bare-text"])
def test_a_data_set_is_named_as_one(name: str) -> None:
    error = _refused(name, ModelNotFoundError)
    assert error.message == f"{name!r} is a data set, not a model"
    assert "the id of the model" in error.hint


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
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org/bare", "'org/bare' has no config.json"),
        ("org/weights", "'org/weights' has no config.json, only 2 .onnx, 1 .md"),
    ],
)
def test_a_repository_without_a_config_says_what_it_has(name: str, message: str) -> None:
    error = _refused(name, ModelNotFoundError)
    assert error.message == message
    assert "base model" in error.hint


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("name", "base", "says"),
    [
        ("org/lora", "org/found", "is a LoRA adapter"),
        ("org/lora-of-gpt2", "openai-community/gpt2", "is a LoRA adapter"),
        ("org/ia3", "org/custom", "is an adapter"),
        ("org/gguf", "org/found", "only GGUF weights (2 .gguf, 1 .md, 1 other)"),
        ("org/gguf-quantized", "org/found", "only GGUF weights"),
    ],
)
def test_what_was_made_from_a_model_stands_for_that_model(name: str, base: str, says: str) -> None:
    found = _find(name)
    assert found == replace(_find(base), note=found.note)
    assert found.note.startswith(repr(name))
    assert says in found.note
    assert f"this is its base model {base!r}" in found.note
    assert ("auto_map" in found.note) == (base == "org/custom")


def test_an_adapter_is_kept_too(online: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _find("org/lora")
    online.asked.clear()
    assert _find("org/lora") == first
    assert online.asked == []
    monkeypatch.setattr(hub_cache, "TTL_SECONDS", 0)
    assert _find("org/lora") == first
    assert "GET org/lora adapter_config.json" in online.asked
    online.break_down()
    assert _find("org/lora").note.count("the Hub did not answer") == 2


@pytest.mark.parametrize("name", ["org/lora-of-itself", "org/lora-of-a-folder"])
@pytest.mark.usefixtures("online", "folder")
def test_a_base_that_is_no_other_model_of_the_hub_is_not_followed(name: str) -> None:
    error = _refused(name, ModelNotFoundError, allow_paths=True)
    assert error.message == f"{name!r} is a LoRA adapter, and names no base model on the Hub"
    assert "give its id" in error.hint


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("name", ["org/lora-of-nothing", "org/gguf-of-nothing"])
def test_a_base_that_nobody_names_cannot_be_followed(name: str) -> None:
    assert "names no base model" in _refused(name, ModelNotFoundError).message


@pytest.mark.usefixtures("online")
def test_an_adapter_of_an_adapter_is_not_followed() -> None:
    error = _refused("org/lora-of-lora", ModelNotFoundError)
    assert "its base model 'org/lora' is a LoRA adapter too" in error.message


@pytest.mark.usefixtures("online")
def test_an_adapter_of_a_gated_model_says_both() -> None:
    error = _refused("org/lora-of-gated", ModelAccessError)
    assert error.message == "'org/lora-of-gated' is a LoRA adapter, and 'org/gated-403' is gated"
    assert "https://huggingface.co/org/gated-403" in error.hint


@pytest.mark.usefixtures("online")
def test_a_malformed_adapter_says_so() -> None:
    error = _refused("org/lora-malformed", InvalidInputError)
    assert "adapter_config.json of 'org/lora-malformed' is not JSON" in error.message


@pytest.mark.usefixtures("online")
def test_code_of_a_model_is_not_run_and_the_note_says_so() -> None:
    assert "auto_map" in _find("org/custom").note
    assert _find("org/gpt2-custom").note == ""


@pytest.mark.parametrize(("name", "status"), [("org/broken", 500), ("org/busy", 503)])
def test_a_hub_in_trouble_is_not_waited_for(online: Hub, name: str, status: int) -> None:
    error = _refused(name, HubUnreachableError)
    assert f"did not answer (HTTP {status})" in error.message
    assert online.asked == [f"HEAD {name}"]


def test_a_config_of_endless_brackets_is_refused_in_plain_words() -> None:
    with pytest.raises(InvalidInputError, match=r"^config.json is nested too deeply$"):
        hub.parse_config("[" * 100_000, "config.json")


def test_infinity_is_read_as_published_configs_have_it() -> None:
    assert hub.parse_config('{"time_step_limit": [0.0, Infinity]}', "config.json")


@pytest.mark.usefixtures("online")
def test_another_revision_of_a_model_that_ships_is_named_when_the_hub_is_silent(
    client: pytest.MonkeyPatch,
) -> None:
    client.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubUnreachableError) as caught:
        _find("gpt2", "deadbeef")
    assert "'gpt2' at revision 'deadbeef' does not ship" in caught.value.message
    assert caught.value.hint.startswith("leave the revision out, try again")


def test_a_hub_that_never_answers_is_given_up_on(online: Hub, client: pytest.MonkeyPatch) -> None:
    assert PATIENCE_SECONDS < 5
    client.setattr(hub_client, "PATIENCE_SECONDS", 0.3)
    online.may_answer.clear()
    error = _refused("org/found", HubUnreachableError)
    assert "no answer from 127.0.0.1 within" in error.message
    online.may_answer.set()


def test_a_download_that_drips_is_given_up_on(online: Hub, client: pytest.MonkeyPatch) -> None:
    client.setattr(hub_client, "PATIENCE_SECONDS", 0.3)
    online.answers["org/found"] = Answer(TEXT, headers={"Content-Length": "1000"})
    assert "no answer" in _refused("org/found", HubUnreachableError).message


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("org/not-json", "config.json of 'org/not-json' is not JSON"),
        ("org/list", "holds no JSON object"),
        ("org/not-text", "is not a text file"),
    ],
)
def test_a_malformed_config_says_so(name: str, says: str) -> None:
    assert says in _refused(name, InvalidInputError).message


def test_a_huge_config_is_not_even_downloaded(online: Hub, tmp_path: Path) -> None:
    error = _refused("org/large", InvalidInputError)
    assert "larger than 1 MiB" in error.message
    assert online.asked == ["HEAD org/large"]
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.usefixtures("online")
def test_a_config_that_is_larger_than_it_says_is_not_read_to_its_end() -> None:
    assert "larger than 1 MiB" in _refused("org/sly", InvalidInputError).message


def test_a_refused_connection_says_so_at_once(client: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        error = _refused("org/gpt2-medium", HubUnreachableError)
    assert error.message.endswith("(no connection to 127.0.0.1)")
    assert "gpt2-medium" in error.hint
    assert "config.json" in error.hint


def test_a_network_that_swallows_everything_is_given_up_on(client: pytest.MonkeyPatch) -> None:
    given_up = Event()

    def swallow(*_: object, **__: object) -> list[Any]:
        given_up.wait(NEVER_SECONDS)
        raise TimeoutError

    client.setattr(socket, "getaddrinfo", swallow)
    client.setattr(hub_client, "PATIENCE_SECONDS", 0.3)
    error = _refused("org/found", HubUnreachableError)
    given_up.set()
    assert "no answer from huggingface.co" in error.message


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("hub.example.org", "HF_ENDPOINT is not a URL"),
        ("http://", "HF_ENDPOINT is not a URL"),
        ("", "HF_ENDPOINT is not a URL"),
        ("http://[::1", "HF_ENDPOINT is not a URL"),
        ("http://127.0.0.1:port", "HF_ENDPOINT is not a URL"),
        ("http://127.0.0.1:0", "HF_ENDPOINT is not a URL"),
        (f"https://{'a' * 100}.invalid", "did not answer"),
    ],
)
def test_a_malformed_endpoint_is_named(
    client: pytest.MonkeyPatch, endpoint: str, says: str
) -> None:
    client.setenv("HF_ENDPOINT", endpoint)
    assert says in _refused("org/found", HubUnreachableError).message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("acme/secret-large", ""),
        ("acme/Llama-2-7b", "did you mean huggyllama/llama-7b or meta-llama/Llama-2-7b-hf? "),
        ("gtp2", "did you mean gpt2? "),
    ],
)
def test_a_name_that_nobody_could_ask_the_hub_for_may_be_right(
    client: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    client.setenv("HF_ENDPOINT", "http://127.0.0.1:0")
    hint = _refused(name, HubUnreachableError).hint
    assert hint.startswith(f"{meant}try again when the Hub can be reached, or give the model's")
    assert "config.json" in hint


def test_behind_a_proxy_the_client_asks_the_proxy(client: pytest.MonkeyPatch, server: Hub) -> None:
    client.setenv("HF_ENDPOINT", "http://hub.invalid")
    client.setenv("HTTP_PROXY", server.url)
    server.renew()
    error = _refused("org/found", ModelNotFoundError)
    assert server.asked[0].startswith("HEAD http:")
    assert type(error) is ModelNotFoundError


def test_behind_a_dead_proxy_the_proxy_is_named(client: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client.setenv("HF_ENDPOINT", "http://hub.invalid")
        client.setenv("ALL_PROXY", f"http://127.0.0.1:{closed.getsockname()[1]}")
        error = _refused("org/found", HubUnreachableError)
    assert "no connection to hub.invalid through the proxy" in error.message


def test_without_the_client_the_hint_names_it(client: pytest.MonkeyPatch) -> None:
    client.setitem(sys.modules, CLIENT, None)
    error = _refused("org/gpt2-medium", ModelNotFoundError)
    assert "not among the models that ship" in error.message
    assert "pip install huggingface_hub" in error.hint
    assert "gpt2-medium" in error.hint


def _told(name: str) -> str:
    """Return all that a user is told about a name."""
    try:
        found = _find(name)
    except PlannerError as error:
        return f"{error.message} {error.hint}"
    return f"{found.note} {found.name}"


def test_the_token_is_sent_to_the_hub_and_told_to_nobody_else(
    online: Hub,
    client: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    client.setenv("HF_TOKEN", TOKEN)
    caplog.set_level(logging.DEBUG)
    names = [name for name in ANSWERS if " " not in name and "datasets" not in name]
    told = " ".join(_told(name) for name in names)
    assert set(online.tokens) == {f"Bearer {TOKEN}"}
    kept = " ".join(file.read_text("utf-8") for file in tmp_path.rglob("*") if file.is_file())
    assert "n_embd" in kept
    for text in (told, caplog.text, kept, *capfd.readouterr()):
        assert TOKEN not in text


def test_the_token_does_not_follow_a_redirect_to_elsewhere(
    online: Hub, client: pytest.MonkeyPatch
) -> None:
    client.setenv("HF_TOKEN", TOKEN)
    with Hub() as elsewhere:
        Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.01}).start()
        location = f"{elsewhere.url}/org/found/resolve/main/config.json"
        online.answers["org/moved"] = Answer(status=302, headers={"Location": location})
        assert _find("org/moved").config == CONFIG
        elsewhere.shutdown()
        assert elsewhere.tokens == [""]


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("token", ["hf_two\twords", "hf_\u00e9t\u00e9", "hf_a\x7fb"])
def test_a_token_that_cannot_be_sent_is_not_told(
    client: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    client.setenv("HF_TOKEN", token)
    caplog.set_level(logging.DEBUG)
    assert token not in _told("org/found") + caplog.text


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
    "a URL": "https://example.com/gpt2",
    "a URL of no model": "https://huggingface.co/",
    "a data set": "https://huggingface.co/datasets/a/b",
    "half a URL": "https://[huggingface.co/gpt2",
    "spaces": "org/my model",
}


@pytest.mark.parametrize("name", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_what_cannot_be_an_id_never_reaches_the_network(online: Hub, name: str) -> None:
    error = _refused(name, InvalidInputError)
    assert "is not a model id" in error.message
    assert "organisation/name" in error.hint
    assert online.asked == []


@pytest.mark.parametrize(
    "address",
    [
        "https://huggingface.co/gpt2",
        "https://huggingface.co/openai-community/gpt2/",
        "http://www.huggingface.co/openai-community/gpt2?library=transformers#use",
        "https://hf.co/openai-community/gpt2/tree/main",
        "https://huggingface.co/openai-community/gpt2/blob/main/config.json",
        "huggingface.co/openai-community/gpt2",
        '"openai-community/gpt2"',
        "'gpt2'",
    ],
)
def test_the_address_of_a_models_page_or_a_quoted_name_is_its_id(address: str) -> None:
    assert hub.find_model(address, allow_paths=False).name == "openai-community/gpt2"


def test_the_address_of_a_revision_names_it() -> None:
    page = "https://huggingface.co/org/found/tree/v2..3"
    assert "'v2..3' is not a revision" in _refused(page, InvalidInputError).message


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
def test_a_path_is_a_folder_or_its_config(name: str, folder: Path) -> None:
    found = hub.find_model(name, allow_paths=True)
    here = Path(found.folder).resolve()
    assert here == (folder / "model").resolve()
    assert Path(found.folder).is_absolute()
    known = hub.ModelSource(name=name, config=CONFIG, is_pretrained=False, folder=found.folder)
    assert found == known


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin.index.json"])
@pytest.mark.parametrize("name", ["model", "model/config.json", "~/model"])
def test_weights_beside_a_config_are_trained_from(name: str, weights: str, folder: Path) -> None:
    (folder / "model" / weights).touch()
    found = hub.find_model(name, allow_paths=True)
    assert (found.is_pretrained, found.folder) == (True, str(folder / "model"))


def test_weights_of_another_config_or_of_adapters_are_not(folder: Path) -> None:
    (folder / "model" / "adapter_model.safetensors").touch()
    assert not hub.find_model("model", allow_paths=True).is_pretrained
    (folder / "model" / "model.safetensors").touch()
    (folder / "model" / "smaller.json").write_text(TEXT, encoding="utf-8")
    found = hub.find_model("model/smaller.json", allow_paths=True)
    assert (found.is_pretrained, found.folder) == (False, "")


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
        (b"[" * 100_000, "nested too deeply"),
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
    own = os.environ["PLANNER_CACHE_DIR"]
    seen = [str(path) for path in opened if not str(path).startswith(own)]
    assert [path for path in seen if str(folder) in path or "model" in path] == []


def test_a_text_of_the_largest_size_is_still_read() -> None:
    text = TEXT.ljust(hub.LARGEST_CONFIG_BYTES)
    assert hub.parse_config(text, "config.json") == CONFIG
    with pytest.raises(InvalidInputError, match=r"config\.json is larger than 1 MiB"):
        hub.parse_config(text + " ", "config.json")
