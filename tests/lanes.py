"""Which tests run together, what they need, and the command that installs it: one table for make and pytest."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Tests that need what a plan does without."""

    name: str
    paths: tuple[str, ...]
    """Below tests/: folders, and modules by name."""
    packages: tuple[str, ...]
    """Without which none of them can be read."""
    finds: str

    @property
    def command(self) -> str:
        return f"make test-{self.name}"

    @property
    def missing(self) -> list[str]:
        return [name for name in self.packages if find_spec(name) is None]


LANES = (
    Lane(
        name="torch",
        paths=("against_torch", "dryrun", "calibrate/test_measuring.py"),
        packages=("torch", "transformers", "accelerate", "peft"),
        finds="estimates against PyTorch",
    ),
    Lane(
        name="engines",
        paths=("execution", "sweep/test_ray_cluster.py"),
        packages=(
            "torch",
            "transformers",
            "accelerate",
            "deepspeed",
            "liger_kernel",
            "megatron",
            "ray",
            "trl",
        ),
        finds="every file that is written, executed",
    ),
    Lane(
        name="browser",
        paths=("browser",),
        packages=("playwright", "axe_playwright_python"),
        finds="pages in Chromium",
    ),
    Lane(
        name="service",
        paths=(
            "test_dockerfile.py",
            "api/test_chart.py",
            "api/test_fuzzed.py",
            "api/test_generated_client.py",
            "api/test_proxy.py",
            "api/test_telemetry.py",
            "advice/test_doubled_requests.py",
        ),
        packages=("schemathesis",),
        finds="the image's steps, the chart, generated clients and generated requests",
    ),
)
BASE = "base"
"""All the others, which need neither PyTorch nor an engine nor a browser."""


_OF_ALL = ("hypothesis", "fastapi", "httpx2", "pytest_randomly", "xdist", "jsonschema")
"""What tests of every lane import."""


def without_packages() -> list[str]:
    """Return what the tests cannot be read without, where it is not installed."""
    return [name for name in _OF_ALL if find_spec(name) is None]


def lane_of(path: Path) -> Lane | None:
    """Return the lane that a test belongs to, None for the base."""
    for lane in LANES:
        if any(path.is_relative_to(TESTS / each) for each in lane.paths):
            return lane
    return None


def is_left_out(path: Path, asked: str | None) -> bool:
    """Return whether tests at a path are not to be read: of another lane, or without what they need."""
    lane = lane_of(path)
    if asked is None:
        return lane is not None and bool(lane.missing)
    if path.is_dir():
        return lane is not None and lane.name != asked
    return (lane.name if lane else BASE) != asked


def left_out(asked: str | None) -> Iterator[str]:
    """Yield a line for each lane that does not run, with the command that runs it."""
    for lane in LANES:
        if asked is None and lane.missing:
            yield f"not run: {lane.finds} (no {', '.join(lane.missing)} here): {lane.command}"
        elif asked == BASE:
            yield f"not run: {lane.finds}: {lane.command}"
