"""What takes long says so, on a terminal alone."""

import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli, output
from planner.cli.output import busy


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_is_said_and_its_line_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "_PATIENCE_SECONDS", 0)
    with busy("looking at layouts"):
        while not stream.getvalue():
            pass
    assert stream.getvalue().startswith("\rlooking at layouts: 0 s")
    assert stream.getvalue().endswith(" \r")


def test_nothing_is_said_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "_PATIENCE_SECONDS", 0)
    with busy("looking at layouts"):
        pass
    assert stream.getvalue() == ""


def test_short_work_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with busy("looking at layouts"):
        pass
    assert stream.getvalue() == ""


def test_a_batch_has_a_bar_where_a_terminal_shows_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"model": "gpt2"}\n{"model": 3}\n')
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    cli.main(["estimate", "--batch", str(file)], standalone_mode=False)
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["ok"] for answer in answers] == [True, False]
    assert "planning" in stream.getvalue()
    assert "100%" in stream.getvalue()
    piped = CliRunner().invoke(cli, ["estimate", "--batch", str(file)])
    assert (piped.stderr, len(piped.stdout.splitlines())) == ("", 2)
