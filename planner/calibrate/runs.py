"""Timed runs of one machine, from lines of JSON or from published ones -> tables of layouts with what was measured."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, TextIO

import numpy as np

from planner import __version__
from planner.core.errors import InvalidInputError, PlannerError
from planner.core.frozen import frozen
from planner.core.strict_json import parse_json
from planner.core.term import Column
from planner.domain.cluster import Cluster
from planner.domain.job import Job
from planner.domain.strategy import Layout, Table, tabulate
from planner.machine.document import Hardware, Machine, MeasuredRun
from planner.machine.reading import build, one_line
from planner.machine.writing import machine_json
from planner.request.cluster import resolve_cluster
from planner.request.schema import parse_request, resolve
from planner.request.strategy import requested_layout

MOST_RUNS = 1000
LONGEST_LINE = 2**20
_EXAMPLE = '{"request": {"model": "gpt2", "strategy": {...}}, "step_seconds": 1.9}'


@frozen
class TimedLayouts:
    """Runs of one job, and how long a step of each took."""

    job: Job
    layouts: Table
    seconds: Column
    numbers: tuple[int, ...]
    """Which runs they are, of those given."""


def read_runs_file(stream: TextIO) -> tuple[MeasuredRun, ...]:
    """Return the runs of a file of lines, of which no more is read than a line may have.

    Raises:
        InvalidInputError: see `read_runs`.
    """
    return read_runs(iter(partial(stream.readline, LONGEST_LINE + 2), ""))


def read_runs(lines: Iterable[str]) -> tuple[MeasuredRun, ...]:
    """Return the runs that lines of JSON hold.

    Raises:
        InvalidInputError: a line is no run, or there are none or too many; it says which line.
    """
    runs: list[MeasuredRun] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) > LONGEST_LINE or len(runs) == MOST_RUNS:
            said = f"is longer than {LONGEST_LINE:,}" if len(line) > LONGEST_LINE else "is one more"
            said = f"line {number} {said} than is read: {MOST_RUNS:,} runs, of 1 MiB each"
            raise InvalidInputError(said, field="--runs")
        runs.append(_run(line, number))
    if not runs:
        raise InvalidInputError(
            "no run in the file", hint=f"one a line: {_EXAMPLE}", field="--runs"
        )
    return tuple(runs)


def _run(line: str, number: int) -> MeasuredRun:
    try:
        run = build(MeasuredRun, parse_json(line), "")
    except ValueError as error:
        raise _wrong(number, f"is not JSON: {one_line(str(error))}") from None
    except InvalidInputError as error:
        where = error.field.removeprefix("machine").lstrip(".")
        raise _wrong(number, f"{where}: {error.message}".lstrip(": "), error.hint) from None
    if run.step_seconds is None and run.peak_bytes is None and run.reserved_bytes is None:
        raise _wrong(number, "says nothing that was measured")
    return run


def _wrong(number: int, said: str, hint: str = "") -> InvalidInputError:
    example = f"a run is a line such as {_EXAMPLE}"
    return InvalidInputError(f"line {number}: {said}", hint=hint or example, field="--runs")


def job_of(run: MeasuredRun, machine: Machine, *, allow_paths: bool = True) -> tuple[Job, Layout]:
    """Return what a run trained and how it was laid out, on a machine's own curves, without its anchors.

    Args:
        run: that was measured.
        machine: whose curves hold.
        allow_paths: whether its model may be a file of this machine.

    Raises:
        PlannerError: its request cannot be estimated, or is of other GPUs.
    """
    request = {key: value for key, value in run.request.items() if key != "machine"}
    request["machine"] = machine_json(machine)
    parsed = parse_request(request)
    job = resolve(parsed, allow_paths=allow_paths, of_a_run=True).job
    return job, requested_layout(parsed.strategy, job)


def timed_layouts(
    runs: Sequence[MeasuredRun], curves: Machine, *, allow_paths: bool = True
) -> tuple[TimedLayouts, ...]:
    """Return the timed runs, those of one job as one table.

    Args:
        runs: of one machine.
        curves: of that machine.
        allow_paths: whether their models may be files of this machine.

    Raises:
        InvalidInputError: a run's request cannot be estimated; it says which.
    """
    jobs: dict[str, tuple[Job, list[tuple[int, Layout]]]] = {}
    for number, run in enumerate(runs):
        if run.step_seconds is None:
            continue
        try:
            job, layout = job_of(run, curves, allow_paths=allow_paths)
        except PlannerError as error:
            raise _wrong_run(number, error) from None
        jobs.setdefault(_key(run.request), (job, []))[1].append((number, layout))
    return tuple(
        TimedLayouts(
            job=job,
            layouts=tabulate([layout for _, layout in found]),
            seconds=np.array([runs[number].step_seconds for number, _ in found]),
            numbers=tuple(number for number, _ in found),
        )
        for job, found in jobs.values()
    )


def _key(request: Mapping[str, Any]) -> str:
    parts = {key: request[key] for key in request if key not in ("id", "strategy", "machine")}
    has_batch = {"global_batch_size", "global_batch_tokens"} & set(_recipe(request))
    return json.dumps(parts if has_batch else {**request, "id": None}, sort_keys=True)


def _recipe(request: Mapping[str, Any]) -> Mapping[str, Any]:
    recipe = request.get("recipe")
    return recipe if isinstance(recipe, Mapping) else {}


def machine_of_runs(runs: Sequence[MeasuredRun], known: Machine | None = None) -> Machine:
    """Return a machine with those runs added, of the GPUs that all of them name; its anchors are not made yet.

    Raises:
        InvalidInputError: they are of several GPUs, or too many.
    """
    created = known.created if known else date.min.isoformat()
    if len(runs) + (len(known.runs) if known else 0) > MOST_RUNS:
        raise InvalidInputError(f"more than {MOST_RUNS:,} runs of one machine", field="--runs")
    if known is not None:
        return replace(known, runs=(*known.runs, *runs))
    clusters = [_cluster_of(run, number) for number, run in enumerate(runs)]
    names = sorted({cluster.gpu.name for cluster in clusters})
    if len(names) > 1:
        raise InvalidInputError(
            f"the runs are of several GPUs: {', '.join(names)}",
            hint="one machine file for each: split the runs",
            field="--runs",
        )
    largest = max(clusters, key=lambda cluster: cluster.world_size)
    hardware = Hardware(gpu=names[0], gpus_per_node=largest.gpus_per_node, nodes=largest.nodes)
    return Machine(created=created, cluster=hardware, planner=__version__, runs=tuple(runs))


def unrepeated(runs: Sequence[MeasuredRun], known: Machine | None) -> tuple[MeasuredRun, ...]:
    """Return the runs that are not in a machine yet, each once: one that is given twice is one run."""
    found = {_identity(run): run for run in runs}
    for run in known.runs if known else ():
        found.pop(_identity(run), None)
    return tuple(found.values())


def _identity(run: MeasuredRun) -> str:
    measured = (run.step_seconds, run.peak_bytes, run.reserved_bytes)
    return json.dumps([dict(run.request), *measured], sort_keys=True, default=str)


def _cluster_of(run: MeasuredRun, number: int) -> Cluster:
    try:
        return resolve_cluster(parse_request(run.request).cluster).cluster
    except PlannerError as error:
        raise _wrong_run(number, error) from None


def _wrong_run(number: int, error: PlannerError) -> InvalidInputError:
    said = f"run {number + 1} cannot be estimated: {error.message}"
    return InvalidInputError(said, hint=error.hint, field="--runs")
