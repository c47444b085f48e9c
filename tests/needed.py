"""What a test needs of the machine: without it the test is skipped in one line, which says how to get it.

In CI (`CI=true`) it fails instead: what was not run there has shown nothing.
"""

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

SYSTEM_PROGRAMS = os.pathsep + os.pathsep.join(("/usr/sbin", "/sbin"))
"""Where daemons and `ip` lie, which a user's PATH need not name."""


def need(program: str, *, get: str) -> str:
    """Return where a program is; `get` is the command that installs it."""
    path = shutil.which(program, path=os.environ["PATH"] + SYSTEM_PROGRAMS)
    if path is None:
        _do_without(f"no {program}: {get}")
    return path


def need_module(name: str, *, get: str) -> None:
    """Go on where Python can import the module; `get` is the command that installs it."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a package above it
        found = None
    if found is None:
        _do_without(f"no Python module {name}: {get}")


def need_root() -> None:
    """Go on where this is root."""
    if os.geteuid() != 0:
        _do_without(f"not root: sudo .venv/bin/python -m pytest {_this_module()}")


def _this_module() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "tests").partition("::")[0]


def _do_without(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)
