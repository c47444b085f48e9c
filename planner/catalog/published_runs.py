"""Published training runs: `data/measurements/runs` -> requests, and what was measured of each."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from planner.catalog.records import data_root
from planner.core.errors import UnknownNameError, did_you_mean
from planner.core.frozen import frozen
from planner.core.units import GIB

FOLDER = "measurements/runs"


@frozen
class Run:
    """One published run: a request of the wire contract, and what its authors measured."""

    id: str
    group: int
    """Runs of one group train one model on one cluster with one batch, laid out differently."""
    request: Mapping[str, Any]
    is_out_of_memory: bool
    step_seconds: float | None
    peak_bytes: float | None
    """Of the kind, and on the rank, that the source states."""


@frozen
class RunSource:
    """Runs that were published together, and what to know before comparing with them."""

    name: str
    source: str
    hardware: str
    software: str
    caveats: tuple[str, ...]
    memory_kind: str
    """ "allocated", "reserved" or "nvidia-smi"; empty where no memory was measured."""
    is_first_rank: bool
    """Whether memory was measured on the first pipeline stage, not on the fullest."""
    runs: tuple[Run, ...]


@cache
def source_names() -> tuple[str, ...]:
    """Return the names of all sources of runs."""
    files = (data_root() / FOLDER).iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in files))


@cache
def run_source(name: str) -> RunSource:
    """Return the runs of one source.

    Raises:
        UnknownNameError: there is no such source.
    """
    if name not in source_names():
        raise UnknownNameError(
            f"unknown source {name[:60]!r}",
            hint=did_you_mean(name, source_names()) or f"known: {', '.join(source_names())}",
        )
    record = json.loads((data_root() / FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    memory = record.get("memory", {"kind": "", "rank": ""})
    return RunSource(
        name=record["name"],
        source=record["source"],
        hardware=record["hardware"],
        software=record["software"],
        caveats=tuple(record["caveats"]),
        memory_kind=memory["kind"],
        is_first_rank=memory["rank"] == "first",
        runs=tuple(_run(record, row) for row in record["rows"]),
    )


def _run(record: Mapping[str, Any], row: list[Any]) -> Run:
    """Return one row as a request: what all rows share, and the columns in dotted names on top; null says nothing."""
    cells = dict(zip(record["columns"], row, strict=True))
    request: dict[str, Any] = {
        "id": f"{record['name']}-{cells['id']}",
        "model": record["models"][cells["model"]],
        "cluster": record["clusters"][cells["cluster"]],
        **{section: dict(values) for section, values in record["shared"].items()},
    }
    for column, value in cells.items():
        section, _, field = column.partition(".")
        if field and value is not None:
            request[section][field] = value
    peak_gib = cells.get("peak_gib")
    return Run(
        id=request["id"],
        group=cells["group"],
        request=request,
        is_out_of_memory=cells.get("is_out_of_memory", False),
        step_seconds=cells["step_seconds"],
        peak_bytes=None if peak_gib is None else peak_gib * GIB,
    )
