"""The command that serves REST and the pages."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

import planner
from planner.core.errors import UnsupportedError

_LIMITS = {
    "--timeout-graceful-shutdown": "8",
    "--limit-concurrency": "1000",
    "--backlog": "256",
    "--timeout-keep-alive": "5",
}
"""Of uvicorn's own, for a small machine; one that is typed comes after them and wins."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.argument("uvicorn", nargs=-1, type=click.UNPROCESSED, metavar="[UVICORN FLAG]...")
def serve(host: str, port: int, uvicorn: tuple[str, ...]) -> None:
    """Serve the web form and REST.

    Further flags are uvicorn's. Limits, keys and logs are environment variables: PLANNER_PROCESSES, PLANNER_API_KEYS and others.
    """
    if find_spec("uvicorn") is None or find_spec("fastapi") is None:
        raise UnsupportedError("serving needs FastAPI", hint="pip install 'trainplan[serve]'")
    listening = ("--host", host, "--port", str(port), "--http", "api.connections:Connection")
    limits = [word for flag in _LIMITS.items() for word in flag]
    program = ("-P", "-m", "uvicorn", "api.main:app", "--app-dir", str(applications()))
    # In place of this process, so that signals reach the server.
    os.execv(sys.executable, [sys.executable, *program, *listening, *limits, *uvicorn])  # noqa: S606


def applications() -> Path:
    """Find the folder of api/ and web/: `planner/apps` in an installed wheel, else the checkout."""
    folder = Path(planner.__file__).parent
    return folder / "apps" if (folder / "apps").is_dir() else folder.parent
