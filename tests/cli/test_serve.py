"""`planner serve` becomes uvicorn, with api/ and web/ from where they lie."""

import os
import sys
from pathlib import Path

import pytest

from planner.cli import serve as module
from planner.cli.serve import applications, serve
from planner.core.errors import UnsupportedError


def test_it_starts_the_app_of_this_checkout_and_hands_on_what_is_uvicorns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: started.append((program, words)))
    serve.main(["--port", "9000", "--root-path", "/plans", "--backlog=9"], standalone_mode=False)
    ((program, words),) = started
    assert program == sys.executable
    assert words[words.index("--app-dir") + 1] == str(applications())
    assert (applications() / "api/main.py").is_file()
    assert (applications() / "web/routes.py").is_file()
    assert words[words.index("--port") + 1] == "9000"
    assert words[-3:] == ["--root-path", "/plans", "--backlog=9"]


def test_an_installed_wheel_has_them_inside_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "apps").mkdir()
    monkeypatch.setattr("planner.__file__", str(tmp_path / "__init__.py"))
    assert applications() == tmp_path / "apps"


def test_without_what_serves_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(UnsupportedError) as caught:
        serve.main([], standalone_mode=False)
    assert "trainplan[serve]" in caught.value.hint
