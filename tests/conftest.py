"""Shared by all tests: `--lane`, `--update-golden`, common jobs, and CI's rule that nothing is skipped."""

import gc
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from lanes import BASE, LANES, is_left_out, left_out, without_packages

if missing := without_packages():
    raise SystemExit(f"The tests need {', '.join(missing)}, which are not here: make test")

from hypothesis import settings
from preloading import preloading

from planner.domain.job import Job
from planner.request.schema import parse_request, resolve

# Durations on shared machines say nothing about the code: no deadline for an example.
settings.register_profile("planner", deadline=None)
settings.load_profile("planner")

EXECUTION = Path(__file__).parent / "execution"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane", choices=[BASE, *(lane.name for lane in LANES)], help="the tests of one lane alone"
    )
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden; read the diff"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests of other lanes, and of those whose packages are not here."""
    return is_left_out(collection_path, config.getoption("--lane")) or None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in left_out(config.getoption("--lane")):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what trains first: the longest module, begun last, would run alone on one core."""
    items.sort(key=lambda item: EXECUTION not in item.path.parents)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was read to find the tests stays: looked through anew by each collection it took a sixth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def own_leftovers() -> Generator[None]:
    """What a module left open warns here, and not in whichever test of another module comes next."""
    yield
    gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one, unless it needs a GPU."""
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and "gpu" not in item.keywords:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped in CI ({call.when})"
    return report


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """No test reads or fills the user's own cache of the Hub, and all have a terminal of one width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        patch.setenv("PLANNER_CACHE_DIR", str(tmp_path_factory.mktemp("hub")))
        yield


@pytest.fixture(autouse=True)
def own_surroundings() -> Generator[None]:
    """What a test does to the variables and the folder of this process ends with it."""
    folder, variables = Path.cwd(), dict(os.environ)
    yield
    os.chdir(folder)
    if {**os.environ, "PYTEST_CURRENT_TEST": ""} != {**variables, "PYTEST_CURRENT_TEST": ""}:
        os.environ.clear()
        os.environ.update(variables)


@pytest.fixture(scope="session")
def python_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    path = tmp_path_factory.mktemp("python") / "socket"
    with preloading(path):
        yield str(path)


@pytest.fixture
def preloaded(python_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the launched scripts find PyTorch and transformers imported; some tests do without."""
    monkeypatch.setenv("PRELOADED", python_server)


JobMaker = Callable[..., Job]


@pytest.fixture
def make_job() -> JobMaker:
    """`make_job("gpt2", gpus=4, gpu="h100", recipe={...})`: a Job by way of the wire request."""

    def make(model: Any = "gpt2", *, gpus: int = 4, **parts: Any) -> Job:
        cluster = {"gpu": parts.pop("gpu", "a100"), "gpus_per_node": gpus}
        cluster |= parts.pop("cluster", {})
        payload = {"model": model, "cluster": cluster, **parts}
        return resolve(parse_request(payload), allow_paths=False).job

    return make
