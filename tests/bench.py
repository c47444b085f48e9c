"""Time what a user waits for: `make bench`. Medians of several runs; never part of the tests."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields

import numpy as np

from planner.candidate import estimate
from planner.request import parse_request, resolve
from planner.space import strategies
from planner.strategy import Strategy

RUNS = 7
PLAN = [
    sys.executable,
    "-c",
    "from planner.cli import main; main()",
    "suggest",
    "gpt2",
    "--gpus",
    "4",
]
TORCH = [sys.executable, "-c", "import torch, transformers.models.gpt2.modeling_gpt2"]


def median_seconds(work: Callable[[], object], runs: int = RUNS) -> float:
    """Return the median duration of several runs, after one that warms the caches."""
    work()
    durations = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations)


def process(command: list[str]) -> Callable[[], object]:
    """Return a function that runs a whole process, its output thrown away."""
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def widened(table: Strategy, rows: int) -> Strategy:
    """Return the table repeated to that many rows."""
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    return Strategy(
        **{
            name: np.resize(value, rows) if isinstance(value, np.ndarray) else value
            for name, value in columns.items()
        }
    )


def main() -> None:
    """Print the figures."""
    plan, torch = median_seconds(process(PLAN)), median_seconds(process(TORCH), runs=3)
    print(f"planner suggest gpt2 --gpus 4                  {plan:6.3f} s   (at most 0.4)")
    print(f"import torch, transformers gpt2                {torch:6.3f} s")
    print(f"ratio                                          {torch / plan:6.1f}     (at least 8)")
    request = parse_request({"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 8}})
    job = resolve(request, allow_paths=False).job
    table = strategies(job)
    one = median_seconds(lambda: estimate(job, table.at(0)))
    many = median_seconds(lambda: estimate(job, widened(table, 100_000)), runs=3)
    print(f"one layout in process                          {1e3 * one:6.3f} ms")
    print(f"100,000 layouts in process                     {many:6.3f} s")


if __name__ == "__main__":
    main()
