"""The command line as it is started, in this process."""

import pytest

from planner import cli


def planner(
    *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Return how the command ends, and what it prints."""
    monkeypatch.setattr("sys.argv", ["planner", *arguments])
    code = 0
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err
