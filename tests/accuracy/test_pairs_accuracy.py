"""Published runs on pairs of answers, planned as they ran, beside what they took: `docs/accuracy/post_training.md`."""

import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_docs import check_block

from planner.catalog.kinds import steps_of_pairs
from planner.catalog.records import read
from planner.core.frozen import frozen
from planner.core.units import MIB, format_bytes
from planner.request.schema import parse_request, resolve
from planner.request.sections import StrategyRequest
from planner.request.strategy import requested_layout
from planner.search.candidate import Candidate, estimate

PAGE = Path(__file__).parents[2] / "docs/accuracy/post_training.md"
_CLUSTER = ("gpu", "gpus_per_node", "nodes")
_LAYOUT = ("zero_stage", "micro_batch_size", "gradient_accumulation_steps", "recompute", "offload")
_READ = ("model", "peak_mib", "reserved", "step_seconds", "ran")


@frozen
class PairsRun:
    """One published run, and its layout estimated."""

    name: str
    said: Mapping[str, Any]
    candidate: Candidate
    usable_bytes: float

    @property
    def bytes(self) -> float:
        """Return what is said where the run says what it held."""
        memory = self.candidate.memory
        return float(memory.reserved_bytes if self.said.get("reserved") else memory.peak_bytes)

    @property
    def fits(self) -> bool:
        return float(self.candidate.memory.reserved_bytes) <= self.usable_bytes


@cache
def runs() -> tuple[PairsRun, ...]:
    return tuple(
        _run(group["name"], group["common"] | dict(zip(group["columns"], row, strict=True)))
        for group in read("measurements/post_training", "pairs")["group"]
        for row in group["rows"]
    )


def _run(name: str, said: Mapping[str, Any]) -> PairsRun:
    gpus = said["gpus_per_node"] * said["nodes"]
    layout = {key: said[key] for key in _LAYOUT if key in said}
    if gpus > 1:
        sharded = said["zero_stage"] > 0
        layout[f"data_parallel_{'shard' if sharded else 'replicate'}_size"] = gpus
    known = {*_CLUSTER, *_LAYOUT, *_READ}
    recipe = {"optimizer": "adamw", **{key: said[key] for key in said if key not in known}}
    pairs = said["micro_batch_size"] * said.get("gradient_accumulation_steps", 1)
    request = {
        "model": said["model"],
        "cluster": {key: said[key] for key in _CLUSTER},
        "recipe": {**recipe, "global_batch_size": gpus * pairs},
        "strategy": layout,
    }
    job = resolve(parse_request(request), allow_paths=False, of_a_run=True).job
    candidate = estimate(job, requested_layout(StrategyRequest(**layout), job))
    return PairsRun(name=name, said=said, candidate=candidate, usable_bytes=job.usable_bytes)


def peaks() -> list[tuple[PairsRun, float]]:
    """Return the runs that say what they held, and the error of what is said."""
    return [
        (run, run.bytes / (run.said["peak_mib"] * MIB) - 1)
        for run in runs()
        if run.said.get("peak_mib")
    ]


def steps() -> list[tuple[PairsRun, float]]:
    """Return the runs that say their seconds, and the error of the estimate."""
    return [
        (run, float(run.candidate.step_time.step_seconds) / run.said["step_seconds"] - 1)
        for run in runs()
        if run.said.get("step_seconds")
    ]


def in_range() -> int:
    return sum(
        run.candidate.step_time.low_seconds
        <= run.said["step_seconds"]
        <= run.candidate.step_time.high_seconds
        for run, _ in steps()
    )


def ran() -> list[PairsRun]:
    return [run for run in runs() if run.said.get("ran", True)]


def test_peaks_of_pairs_are_where_is_said_at_the_median() -> None:
    errors = [error for _, error in peaks()]
    assert len(errors) >= 15
    assert statistics.median(map(abs, errors)) <= 0.1


def test_what_ran_on_pairs_is_said_to_fit() -> None:
    assert len(ran()) >= 25
    assert statistics.fmean(run.fits for run in ran()) >= 0.95


def test_a_run_that_ran_out_by_far_is_said_not_to_fit() -> None:
    (run,) = (run for run in runs() if run.name == "TRL, as it comes")
    assert not run.fits


def test_what_an_answer_says_of_published_steps_of_pairs_is_so() -> None:
    known = steps_of_pairs()
    assert known.steps == len(steps()) == in_range()
    assert known.within == round(max(abs(error) for _, error in steps()), 2)


def test_the_page_is_what_the_code_says(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    check_block("pairs", peaks_table(), update=update, page=PAGE)
    check_block("pairs-steps", steps_table(), update=update, page=PAGE)
    check_block("pairs-fit", fits_table(), update=update, page=PAGE)


def _cells(run: PairsRun) -> str:
    said = run.said
    method = f"{said['job']}, {said['method']}" if "method" in said else said["job"]
    return (
        f"| {run.name} | {said['model']} | {said['gpus_per_node'] * said['nodes']} x {said['gpu']}"
        f" | {method} | {said['micro_batch_size']} x {said['sequence_length']:,}"
    )


_HEADER = "| run | model | GPUs | job | pairs x tokens"


def peaks_table() -> str:
    lines = [
        f"{_HEADER} | offload | measured | said | error |",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"{_cells(run)} | {run.said.get('offload', 'none')} |"
        f" {format_bytes(run.said['peak_mib'] * MIB)} | {format_bytes(run.bytes)} | {error:+.0%} |"
        for run, error in peaks()
    ]
    errors = [error for _, error in peaks()]
    text = (
        f"Median error {statistics.median(map(abs, errors)):.0%} of {len(errors)},"
        f" {statistics.median(errors):+.0%} with its sign."
    )
    return "\n".join((*lines, "", text, ""))


def steps_table() -> str:
    lines = [
        f"{_HEADER} | published | predicted | error |",
        "| --- | --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for run, error in steps():
        time = run.candidate.step_time
        lines.append(
            f"{_cells(run)} | {run.said['step_seconds']:.3g} s | {float(time.step_seconds):.3g} s"
            f" ({float(time.low_seconds):.2g} to {float(time.high_seconds):.2g}) | {error:+.0%} |"
        )
    errors = [abs(error) for _, error in steps()]
    text = f"Median error {statistics.median(errors):.0%}, {in_range()} of {len(errors)} in range."
    return "\n".join((*lines, "", text, ""))


def fits_table() -> str:
    lines = [
        f"{_HEADER} | said | of | |",
        "| --- | --- | --- | --- | --- | ---: | ---: | --- |",
    ]
    others = [run for run in runs() if "ran" in run.said]
    for run in others:
        said = "ran" if run.said["ran"] else "ran out"
        lines.append(
            f"{_cells(run)} | {format_bytes(float(run.candidate.memory.reserved_bytes))} |"
            f" {format_bytes(run.usable_bytes)} | {said}, said {'' if run.fits else 'not '}to fit |"
        )
    out = [run for run in others if not run.said["ran"]]
    text = (
        f"Of {len(ran())} that ran, those above among them, {sum(run.fits for run in ran())} are said"
        f" to fit; of {len(out)} that ran out of memory, {sum(not run.fits for run in out)} not to."
    )
    return "\n".join((*lines, "", text, ""))
