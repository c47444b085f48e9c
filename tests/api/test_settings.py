"""What the environment may say, and what stops the start with one line."""

import os
import subprocess
import sys

import pytest

from api.settings import Settings, read_settings


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("PLANNER_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("text", ["first,second", "first, second", '["first", "second"]'])
def test_a_list_has_commas_between_or_is_json(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PLANNER_API_KEYS", text)
    monkeypatch.setenv("PLANNER_TRUSTED_HOSTS", text)
    settings = read_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["first", "second"]
    assert settings.trusted_hosts == ["first", "second"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DEADLINE_SECONDS", "0", "should be greater than 0, not '0'"),
        ("DEADLINE_SECONDS", "abc", "should be a valid number"),
        ("RATE", "banana", "should be a rate, such as 60/minute, not 'banana'"),
        ("TRUSTED_HOSTS", "[1", "should be a list in JSON, or entries with commas between"),
        ("TRUSTED_HOSTS", "a*b", "should be hosts, such as planner.example.org"),
        ("LOGS", "yaml", "should be 'json' or 'text', not 'yaml'"),
        ("API_KEYS", '["hidden', "should be a list in JSON, or entries with commas between"),
        ("API_KEYS", "hidden,", "should have no empty entry"),
        ("API_KEYS", '["hidden", 1]', "should be a valid string"),
        ("API_KEYS", "", "should have no empty entry"),
    ],
)
def test_a_value_that_cannot_be_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"PLANNER_{name}", value)
    with pytest.raises(SystemExit) as stopped:
        read_settings()
    (line,) = str(stopped.value).splitlines()
    assert line.startswith(f"PLANNER_{name} {said}")
    assert "hidden" not in line


def test_a_misspelt_name_is_told_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_BODY_SECOND", "5")
    with pytest.raises(SystemExit, match=r"^PLANNER_BODY_SECOND .* mean PLANNER_BODY_SECONDS\?$"):
        read_settings()


def test_what_others_set_under_the_prefix_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kubernetes does of a service that is called planner."""
    for name in ("CACHE_DIR", "PORT", "SERVICE_HOST", "SERVICE_PORT", "PORT_8000_TCP_ADDR"):
        monkeypatch.setenv(f"PLANNER_{name}", "1")
    assert read_settings() == Settings()


def test_a_service_that_cannot_start_says_one_line() -> None:
    command = [sys.executable, "-c", "import api.main"]
    environment = {**os.environ, "PLANNER_RATE": "banana"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "PLANNER_RATE should be a rate, such as 60/minute, not 'banana'"
    assert "Traceback" not in done.stderr
