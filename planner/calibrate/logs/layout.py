"""What a log says of its run, and what else is given -> the run as machine.json has it."""

import copy
import math
from collections.abc import Mapping
from typing import Any

from planner.calibrate.logs.contradictions import (
    check_method,
    check_stage,
    contradiction,
    is_said,
    other_model,
)
from planner.calibrate.logs.gpus import Likeness, likeness
from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.per_step import other_batch, tokens_of_a_sample
from planner.calibrate.logs.reading import Reading
from planner.calibrate.logs.steps import StepLog
from planner.core.errors import InvalidInputError
from planner.core.units import format_ranks
from planner.machine.document import MeasuredRun
from planner.request.schema import parse_request, resolve

ONE_NODE = 8
"""Ranks that are taken as one node's, where nothing says how many nodes there were."""
_ROUNDED_TOKENS = 0.05
"""By which a global batch in tokens may be off: people call 524,288 tokens 0.5M."""
_ASKED = (
    ("model", "", "MODEL"),
    ("cluster", "gpu", "--gpu NAME"),
    ("cluster", "gpus_per_node", "--gpus N"),
    ("recipe", "sequence_length", "--seq-len N"),
)


def measured_run(
    reading: Reading, layout: Mapping[str, Any] | None
) -> tuple[MeasuredRun, tuple[str, ...]]:
    """Return the run that a log speaks of, and what was taken for granted.

    Leaves out: reserved memory, of which logs have the allocator's; a card also holds CUDA's context and NCCL's
    buffers, which machine.json counts in.

    Args:
        reading: of a training run, with at least one step.
        layout: an estimate request with what the log does not say; None for nothing.

    Raises:
        InvalidInputError: the layout contradicts the log, or both together do not say all of it.
    """
    request: dict[str, Any] = copy.deepcopy(dict(layout or {}))
    notes = _merge(request, reading)
    _take_tokens(request, reading)
    _check(request, reading)
    _settle_tokens(request, reading)
    parse_request(request)
    _check_data_ranks(request, reading)
    _check_batch(request, reading)
    _check_model(request, reading)
    check_method(request, reading, _ranks(request))
    log = reading.log
    run = MeasuredRun(
        request=request,
        step_seconds=step_seconds(reading, request),
        peak_bytes=log.peak_bytes if log else None,
        source=shown(f"{reading.kind} log {reading.file}"),
    )
    return run, notes


def step_seconds(reading: Reading, request: Mapping[str, Any]) -> float | None:
    """Return the seconds of a steady step; None where the log has none.

        tokens/s: tokens per step / rate;  per GPU: also / ranks;  samples/s: global batch / rate;
        seconds of a micro-batch: times those of a step

    Raises:
        InvalidInputError: the request lacks a size that the log's rate is of.
    """
    if reading.steady is None or reading.log is None:
        return None
    value, unit, log = reading.steady.value, reading.log.unit, reading.log
    if unit == "seconds":
        return value * _timed_per_step(reading, request)
    samples = _batch(request, reading)
    if unit == "samples/s":
        return samples / value
    tokens = log.tokens_per_step or samples * tokens_of_a_sample(request["recipe"])
    ranks = (log.world_size or _ranks(request)) if unit == "tokens/s per GPU" else 1
    return float(tokens / value / ranks)


def _timed_per_step(reading: Reading, request: Mapping[str, Any]) -> int:
    """Return how many of what a log times are one step.

    Raises:
        InvalidInputError: it may be micro-batches or steps, and a step has several.
    """
    accumulates = reading.log.accumulates if reading.log else False
    if accumulates is False:
        return 1
    steps = (request.get("strategy") or {}).get("gradient_accumulation_steps")
    if steps is None:
        micro_batch = (request.get("strategy") or {}).get("micro_batch_size") or 1
        replicas = max(1, _ranks(request) // _inner(request.get("strategy") or {}))
        steps = max(1, round(_batch(request, reading) / (micro_batch * replicas)))
    if accumulates is None and steps > 1:
        raise InvalidInputError(
            f"{shown(reading.file)}: an iteration of its progress bar may be a micro-batch or a step of {steps}",
            hint='write the run as a line of --runs, with "step_seconds"',
            field="--from",
        )
    return int(steps)


def _inner(strategy: Mapping[str, Any]) -> int:
    sizes = (strategy.get(f"{name}_parallel_size") for name in ("tensor", "pipeline", "context"))
    return math.prod(size or 1 for size in sizes)


def _merge(request: dict[str, Any], reading: Reading) -> tuple[str, ...]:
    """Fill the request with what the log says; return what was taken for granted."""
    log = reading.log
    if log is None:
        return ()
    for path, value in log.said.items():
        section, _, name = path.partition(".")
        fields = request.setdefault(section, {})
        if fields.get(name) is None:
            fields[name] = value
        elif not is_said(path, log.said, fields[name]):
            raise contradiction(reading, f"{name} {value}", f"{fields[name]}")
    for path in log.none_of:
        section, _, name = path.partition(".")
        if given := (request.get(section) or {}).get(name):
            raise contradiction(reading, f"no {name}", f"{given}")
    check_stage(request.get("strategy") or {}, reading)
    _suppose(request, log)
    cluster, notes = request.setdefault("cluster", {}), list[str]()
    given = cluster.get("gpu")
    if reading.gpu not in {"", "cpu"}:
        if given is None and not {"instance", "topology"} & cluster.keys():
            cluster["gpu"] = reading.gpu
        elif given is not None and likeness(reading.gpu, str(given)) != Likeness.SAME:
            notes.append(f"the log is of {reading.gpu}, and the layout of {shown(str(given))}")
    _take_ranks(log.world_size, cluster, reading, notes)
    return tuple(notes)


def _suppose(request: dict[str, Any], log: StepLog) -> None:
    """Fill in what follows from the log where the layout names no strategy of its own."""
    if (request.get("strategy") or {}).get("family"):
        return
    for path, value in log.supposed.items():
        section, _, name = path.partition(".")
        fields = request.setdefault(section, {})
        if fields.get(name) is None:
            fields[name] = value


def _take_tokens(request: dict[str, Any], reading: Reading) -> None:
    """Take the global batch of a log that says the tokens of a step, where nothing else says it."""
    recipe, strategy = request.setdefault("recipe", {}), request.get("strategy") or {}
    tokens, length = (
        reading.log.tokens_per_step if reading.log else None,
        tokens_of_a_sample(recipe),
    )
    is_open = not any(recipe.get(name) for name in ("global_batch_size", "global_batch_tokens"))
    is_implied = strategy.get("micro_batch_size") and strategy.get("gradient_accumulation_steps")
    if is_open and not is_implied and tokens and length and tokens % length == 0:
        recipe["global_batch_size"] = tokens // length


def _settle_tokens(request: dict[str, Any], reading: Reading) -> None:
    """Put sequences in place of a global batch in tokens: the log's, else as the estimate takes them.

    Raises:
        InvalidInputError: the log says another batch, beyond the rounding of 0.5M.
    """
    recipe = request["recipe"]
    tokens, said = recipe.get("global_batch_tokens"), recipe.get("global_batch_size")
    if not tokens:
        return
    if not said:
        said = resolve(parse_request(request), allow_paths=True, of_a_run=True).job.recipe
        said = said.global_batch_size
    elif abs(tokens / (said * tokens_of_a_sample(recipe)) - 1) > _ROUNDED_TOKENS:
        raise contradiction(reading, f"global_batch_size {said}", f"{tokens:,} tokens")
    del recipe["global_batch_tokens"]
    recipe["global_batch_size"] = said


def _check_data_ranks(request: Mapping[str, Any], reading: Reading) -> None:
    """Refuse a layout of other ranks than the log's, which may be those of data parallelism alone."""
    said = reading.log.data_ranks if reading.log else None
    strategy, ranks = request.get("strategy") or {}, _ranks(request)
    if said is not None and ranks not in {said, said * _inner(strategy)}:
        raise contradiction(reading, f"world_size {said}", format_ranks(ranks))


def _take_ranks(
    ranks: int | None, cluster: dict[str, Any], reading: Reading, notes: list[str]
) -> None:
    if ranks is None:
        return
    nodes = cluster.get("nodes")
    if cluster.get("gpus_per_node") is None:
        if (nodes is None and ranks > ONE_NODE) or ranks % (nodes or 1):
            return
        cluster["gpus_per_node"] = ranks // (nodes or 1)
        if nodes is None:
            notes.append(f"{ranks} ranks are taken as one node's")
    elif nodes is None and ranks % cluster["gpus_per_node"] == 0:
        cluster["nodes"] = ranks // cluster["gpus_per_node"]
    elif cluster["gpus_per_node"] * (nodes or 1) != ranks:
        planned = f"{nodes or 1} x {cluster['gpus_per_node']} GPUs"
        raise contradiction(reading, format_ranks(ranks), planned)


def _check(request: Mapping[str, Any], reading: Reading) -> None:
    """Refuse what is not a whole layout, with the flags that are missing."""
    cluster = request.get("cluster") or {}
    has_gpu = {"gpu", "instance", "topology"} & {k for k, v in cluster.items() if v is not None}
    missing = []
    for section, name, flag in _ASKED:
        part = request.get(section)
        value = part.get(name) if name and isinstance(part, Mapping) else part
        is_of_instance = section == "cluster" and bool(
            cluster.get("instance") or cluster.get("topology")
        )
        if not value and not is_of_instance and not (name == "gpu" and has_gpu):
            missing.append(flag)
    if not _implied_batch(request, reading):
        missing.append("--global-batch-size N")
    if not (request.get("strategy") or {}).get("micro_batch_size"):
        missing.append("--micro-batch-size N")
    if missing:
        raise InvalidInputError(
            f"{shown(reading.file)} ({reading.kind}{reading.figures and f': {reading.figures}'}) does not say the"
            f" whole layout of its run: {', '.join(missing)} missing",
            hint=f"--layout '{' '.join(missing)}', with --tp, --pp and --strategy as it ran; or --layout plan.json",
            field="--layout",
        )


def _check_batch(request: Mapping[str, Any], reading: Reading) -> None:
    """Refuse a layout whose step holds more or less than the log's."""
    batch = _batch(request, reading)
    for said in reading.log.per_step if reading.log else ():
        if other := other_batch(said, batch, request, _ranks(request)):
            of = (
                batch
                if other.startswith("global")
                else batch * tokens_of_a_sample(request["recipe"])
            )
            planned = f"{of / _ranks(request) if 'rank' in other else of:,.0f}"
            raise contradiction(reading, other, planned)


def _check_model(request: Mapping[str, Any], reading: Reading) -> None:
    """Refuse a layout whose model has other sizes than the log's."""
    if reading.log and reading.log.model_sizes:
        other = other_model(reading.log.model_sizes, request["model"])
        if other is not None:
            raise contradiction(reading, *other)


def _implied_batch(request: Mapping[str, Any], reading: Reading) -> int | None:
    """Return the global batch: as said, else of micro-batches, or None."""
    said: int | None = (request.get("recipe") or {}).get("global_batch_size")
    if said:
        return said
    strategy = request.get("strategy") or {}
    length = tokens_of_a_sample(request.get("recipe") or {})
    wanted: int | None = (request.get("recipe") or {}).get("global_batch_tokens")
    if wanted and length:
        return max(1, round(wanted / length))
    micro_batch = strategy.get("micro_batch_size")
    steps = strategy.get("gradient_accumulation_steps")
    if micro_batch and steps:
        return int(micro_batch * steps * max(1, _ranks(request) // _inner(strategy)))
    tokens = reading.log.tokens_per_step if reading.log else None
    return tokens // length if tokens and length and tokens % length == 0 else None


def _batch(request: Mapping[str, Any], reading: Reading) -> int:
    batch = _implied_batch(request, reading)
    if batch is None:
        raise InvalidInputError(
            f"{shown(reading.file)} says its speed in {reading.log.unit if reading.log else 'rates'},"
            " and not how large a step is",
            hint="add --global-batch-size N to --layout",
            field="--layout",
        )
    return batch


def _ranks(request: Mapping[str, Any]) -> int:
    cluster = request.get("cluster") or {}
    return int(cluster.get("nodes") or 1) * int(cluster.get("gpus_per_node") or 1)
