"""docs/accuracy/collectives.md cannot lie: its tables are computed here and compared.

`pytest --update-golden tests/accuracy/test_collectives_accuracy.py` rewrites them; read the diff.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits.collectives import FAMILIES, PUBLISHED, fit, timings
from made_clusters import cluster, link

from planner.catalog import records
from planner.catalog.collectives import (
    OPERATIONS,
    CollectiveSystem,
    collective_system,
    collective_systems,
)
from planner.catalog.interconnect import CollectiveShape
from planner.collectives import operations
from planner.collectives.within_node import measured, traffic, within_node
from planner.core.term import Column
from planner.core.units import GIGA, KIB, MIB, MICRO, format_bytes
from planner.domain.cluster import Cluster, Group

PAGE = Path(__file__).parents[2] / "docs/accuracy/collectives.md"
SMALLEST = 64 * KIB
LARGE = 16 * MIB
Curve = tuple[str, int, tuple[float, ...]]


def curves(system: CollectiveSystem) -> Iterator[Curve]:
    for operation in OPERATIONS:
        for ranks, seconds in system.seconds[operation].items():
            yield operation, ranks, seconds


def without_size(system: CollectiveSystem, index: int) -> CollectiveSystem:
    def rest(values: tuple[float, ...]) -> tuple[float, ...]:
        return (*values[:index], *values[index + 1 :])

    seconds = {
        operation: {ranks: rest(curve) for ranks, curve in by_ranks.items()}
        for operation, by_ranks in system.seconds.items()
    }
    return replace(system, sizes_bytes=rest(system.sizes_bytes), seconds=seconds)


def without_ranks(system: CollectiveSystem, ranks: int) -> CollectiveSystem:
    seconds = {
        operation: {n: curve for n, curve in by_ranks.items() if n != ranks}
        for operation, by_ranks in system.seconds.items()
    }
    return replace(system, seconds=seconds)


def errors_at_unseen_sizes(system: CollectiveSystem) -> Iterator[float]:
    for index, size in enumerate(system.sizes_bytes):
        if size >= SMALLEST:
            rest = without_size(system, index)
            for operation, ranks, seconds in curves(system):
                answer = measured(rest, operation, ranks, size, rest.bytes_per_second)
                yield float(answer) / seconds[index] - 1


def errors_at_unseen_ranks(system: CollectiveSystem) -> Iterator[float]:
    rest = without_ranks(system, 4)
    for operation, ranks, seconds in curves(system):
        if ranks == 4 and 8 in system.seconds[operation]:
            sizes = np.array(system.sizes_bytes)
            answer = measured(rest, operation, 4, sizes, rest.bytes_per_second)
            yield from (answer / np.array(seconds) - 1)[sizes >= SMALLEST].tolist()


def errors_of_unseen_generation(
    system: CollectiveSystem, smallest: float = SMALLEST
) -> Iterator[float]:
    family = next(media for media in FAMILIES.values() if system.media[0] in media)
    others = [
        other
        for other in collective_systems()
        if other.media[0] in family and other.generation != system.generation
    ]
    shapes = {operation: fit(others, operation) for operation in OPERATIONS}
    sizes = np.array(system.sizes_bytes)
    for operation, ranks, seconds in curves(system):
        answer = by_formula(system, shapes[operation], ranks, sizes)
        yield from (answer / np.array(seconds) - 1)[sizes >= smallest].tolist()


def by_formula(
    system: CollectiveSystem, shape: CollectiveShape, ranks: int, sizes: Column
) -> Column:
    bandwidth = system.bytes_per_second
    if system.media[0] != "nvswitch":
        largest = system.seconds["all_reduce"][ranks][-1]
        bandwidth = float(traffic("all_reduce", ranks)) * system.sizes_bytes[-1] / largest
    in_switch = system.reduces_in_switch
    return np.asarray(within_node(shape, ranks, sizes, bandwidth, in_switch=in_switch))


def summary(errors: Iterable[float]) -> str:
    sizes = np.abs(list(errors))
    if not sizes.size:
        return "| |"
    return f"{np.median(sizes):.0%} | {np.quantile(sizes, 0.9):.0%} |"


def test_the_tables_within_a_node(request: pytest.FixtureRequest) -> None:
    lines = [
        "| machine | link | size left out | 90 % | ranks left out | 90 % | never seen | 90 % |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    everything: list[list[float]] = [[], [], []]
    for system in collective_systems():
        found = [
            list(errors(system))
            for errors in (
                errors_at_unseen_sizes,
                errors_at_unseen_ranks,
                errors_of_unseen_generation,
            )
        ]
        for whole, part in zip(everything, found, strict=True):
            whole.extend(part)
        cells = " ".join(summary(errors) for errors in found)
        lines.append(f"| {system.name} | {system.generation} | {cells}")
    lines.append(f"| all | | {' '.join(summary(errors) for errors in everything)}")
    large = [
        error
        for system in collective_systems()
        for error in errors_of_unseen_generation(system, LARGE)
    ]
    median, ninth = np.quantile(np.abs(large), (0.5, 0.9))
    lines += [
        "",
        f"Never seen, from 16 MiB on: {median:.0%}, and {ninth:.0%} at the 90th percentile.",
    ]
    check_block("within", lines, update=request.config.getoption("--update-golden"))
    shipped = np.abs(everything[0])
    assert np.median(shipped) <= 0.10
    assert np.quantile(shipped, 0.9) <= 0.30


def test_the_tables_of_published_figures(request: pytest.FixtureRequest) -> None:
    lines = ["| what | published | predicted | error |", "| --- | ---: | ---: | ---: |"]
    lines += [curve_row(curve) for curve in PUBLISHED["curve"]]
    lines += [figure_row(figure) for figure in PUBLISHED["figure"]]
    check_block("published", lines, update=request.config.getoption("--update-golden"))


def curve_row(curve: Mapping[str, Any]) -> str:
    system = collective_system(curve["relative"])
    assert system is not None
    where = {
        "gpu": system.gpus[0],
        "medium": system.media[0],
        "link_gb_per_s": system.bytes_per_second / GIGA,
        "system": system.name,
    }
    sizes, seconds = (np.array(column) for column in zip(*timings(curve), strict=True))
    group = Group(ranks=curve["ranks"])
    errors = operations.all_reduce(machine(where | dict(curve)), group, sizes) / seconds - 1
    name = f"{curve['name']}, all-reduce, {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
    worst = errors[np.argmax(np.abs(errors))]
    cells = f"{len(sizes)} sizes | | median {np.median(np.abs(errors)):.0%}, worst {worst:+.0%} |"
    return f"| {name}{mark(curve)} | {cells}"


def figure_row(figure: Mapping[str, Any]) -> str:
    sizes = np.array(figure["sizes_kib"]) * float(KIB)
    operation = getattr(operations, figure["operation"])
    seconds = operation(machine(figure), Group(ranks=figure["ranks"]), sizes)
    if "microseconds" in figure:
        published, predicted, unit = figure["microseconds"], np.mean(seconds) / MICRO, "us"
    else:
        bus = traffic(figure["operation"], figure["ranks"]) * sizes / seconds
        published, predicted, unit = figure["bus_gb_per_s"], np.mean(bus) / GIGA, "GB/s"
    error = predicted / published - 1
    cells = f"{published:.3g} {unit} | {predicted:.3g} {unit} | {error:+.0%} |"
    return f"| {figure['name']}{mark(figure)} | {cells}"


def mark(record: Mapping[str, Any]) -> str:
    return " *" if record.get("fitted") else ""


def machine(record: Mapping[str, Any]) -> Cluster:
    """The machine of a record, on a network of which NCCL reaches 96 %, the best published."""
    nodes = record.get("nodes", 1)
    inner = link(record["link_gb_per_s"], record["medium"], system=record.get("system", ""))
    latency = record.get("latency_us", 0) * MICRO
    network = link(0.96 * record.get("node_gb_per_s", 1), "network", latency_seconds=latency)
    return cluster(
        nodes,
        gpu=records.gpu(record["gpu"]),
        gpus_per_node=record["ranks"] // nodes,
        intra_node=inner,
        inter_node=network,
    )


def check_block(marker: str, lines: list[str], *, update: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    body = "\n".join(lines) + "\n"
    expected = pattern.sub(lambda match: match[1] + body + match[2], text)
    if update:
        PAGE.write_text(expected, encoding="utf-8")
        text = expected
    assert text == expected
