"""One H100 that this project measured: what was predicted beside it; docs/accuracy/h100.md cannot lie.

`pytest --update-golden tests/accuracy/test_h100.py` rewrites its tables; read the diff.
"""

import json
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from test_docs import check_block

from planner.accuracy.predict import Prediction, predict
from planner.answers import answer_estimate
from planner.catalog import records
from planner.catalog.published_runs import run_source
from planner.core.units import GIB
from planner.request.schema import parse_request

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/accuracy/h100.md"
RECORD = json.loads((ROOT / "data/measurements/runs/h100_one_gpu.json").read_text())
KERNELS = tomllib.loads((ROOT / "data/measurements/h100_kernels.toml").read_text())
ROWS = {
    row[0]: dict(zip(RECORD["columns"], row, strict=True), number=number)
    for number, row in enumerate(RECORD["rows"])
}
MEMORY_TOLERANCE = 0.02
"""Of the allocated peak: what is further off is an open finding."""
KINDS = {
    "matmul": ("matmuls", "input_gradients", "weight_gradients"),
    "attention": ("attention",),
    "elementwise and loss": ("elementwise", "loss"),
    "optimizer": ("optimizer",),
}
"""Parts of a predicted step by the kind of the kernels that take their time."""


@pytest.fixture(scope="module")
def predictions() -> dict[str, Prediction]:
    """Every run by the id of its row; none is refused."""
    results = predict(run_source("h100_one_gpu"))
    assert all(isinstance(result, Prediction) for result in results)
    return dict(zip(ROWS, results, strict=True))


def off(quantity: str) -> set[str]:
    """Return the runs that an open finding says are predicted wrongly."""
    found = [each for each in RECORD["open_findings"] if each["quantity"] == quantity]
    return {run for finding in found for run in finding["runs"]}


def are_current(quantity: str, outside: set[str]) -> bool:
    """Return whether every finding still has a run that is predicted wrongly."""
    found = [each for each in RECORD["open_findings"] if each["quantity"] == quantity]
    return all(outside.intersection(finding["runs"]) for finding in found)


def is_in_range(each: Prediction) -> bool:
    seconds = each.run.step_seconds
    return seconds is not None and each.low_seconds <= seconds <= each.high_seconds


def test_a_step_is_in_range_or_an_open_finding(predictions: dict[str, Prediction]) -> None:
    outside = {name for name, each in predictions.items() if not is_in_range(each)}
    assert outside <= off("step time")
    assert are_current("step time", outside)


def test_memory_is_as_measured_or_an_open_finding(predictions: dict[str, Prediction]) -> None:
    errors = {name: each.memory_error or 0.0 for name, each in predictions.items()}
    outside = {name for name, by in errors.items() if abs(by) > MEMORY_TOLERANCE}
    assert outside <= off("memory")
    assert are_current("memory", outside)
    assert all(each.fits for each in predictions.values())


def test_every_finding_has_runs_and_a_reason() -> None:
    assert {each["quantity"] for each in RECORD["open_findings"]} == {"step time", "memory"}
    named = [(each["quantity"], run) for each in RECORD["open_findings"] for run in each["runs"]]
    assert max(Counter(named).values()) == 1
    assert {run for _, run in named} <= set(ROWS)
    assert all(each["reason"].endswith(".") for each in RECORD["open_findings"])


def test_a_row_is_in_itself_consistent() -> None:
    for row in ROWS.values():
        assert row["low_step_seconds"] <= row["step_seconds"] <= row["high_step_seconds"]
        assert row["peak_gib"] <= row["reserved_gib"] < row["process_gib"]
        parts = row["strategy.micro_batch_size"] * row["strategy.gradient_accumulation_steps"]
        assert parts == row["recipe.global_batch_size"]


@pytest.mark.parametrize("section", [name for name in KERNELS if name != "source"])
def test_a_section_of_kernels_is_a_table_of_positive_numbers(section: str) -> None:
    table = KERNELS[section]
    assert table["rows"]
    for row in table["rows"]:
        cells = dict(zip(table["columns"], row, strict=True))
        times = [value for name, value in cells.items() if name.rpartition("_")[2] in {"s", "ms"}]
        assert all(value >= 0 for value in times)


def test_no_matmul_is_faster_than_the_peak() -> None:
    peak = {"bf16": 989e12, "fp16": 989e12, "tf32": 494e12, "fp32": 67e12}
    for _, precision, tokens, inputs, outputs, *times in KERNELS["matmul"]["rows"]:
        for time in times:
            assert 0.03 < 2 * tokens * inputs * outputs / time / peak[precision] < 1


def test_a_profiled_step_is_no_shorter_than_its_kernels() -> None:
    for run, *_, busy, _ in KERNELS["profiles"]["rows"]:
        assert busy / 1e3 <= ROWS[run]["step_seconds"]


def run_lines(predictions: dict[str, Prediction]) -> Iterator[str]:
    head = ("run", "step", "predicted", "range", "error", "allocated", "predicted", "error")
    yield f"| {' | '.join((*head, 'process', 'predicted'))} |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, each in predictions.items():
        row = ROWS[name]
        answer = answer_estimate(parse_request(each.run.request), allow_paths=False)
        low, high = each.low_seconds * 1e3, each.high_seconds * 1e3
        yield (
            f"| {name} | {row['step_seconds'] * 1e3:,.0f} ms | {each.step_seconds * 1e3:,.0f} ms |"
            f" {low:,.0f} to {high:,.0f} |"
            f" {each.time_error:+.0%}{'' if is_in_range(each) else ' *'} |"
            f" {row['peak_gib']:.2f} GiB | {each.peak_bytes / GIB:.2f} GiB |"
            f" {each.memory_error:+.1%} | {row['process_gib']:.1f} GiB |"
            f" {answer['memory']['reserved_bytes'] / GIB:.1f} GiB |"
        )


def predicted_kinds(request: Mapping[str, Any]) -> dict[str, float]:
    """Return milliseconds of a predicted step by kind of kernel; recomputation is left out."""
    answer = answer_estimate(parse_request(request), allow_paths=False)
    spent: Counter[str] = Counter()
    for term in answer["time"]["terms"]:
        for part in term.get("parts") or [term]:
            spent[part["name"]] += part["seconds"] * 1e3
    return {kind: sum(spent[name] for name in names) for kind, names in KINDS.items()}


def kernel_lines(predictions: dict[str, Prediction]) -> Iterator[str]:
    yield f"| run | {' | '.join(KINDS)} | busy of the step |"
    yield f"| --- | {' | '.join('---:' for _ in KINDS)} | ---: |"
    for row in KERNELS["profiles"]["rows"]:
        spent = dict(zip(KERNELS["profiles"]["columns"], row, strict=True))
        if ROWS[spent["run"]]["strategy.recompute"] != "none":
            continue
        predicted = predicted_kinds(predictions[spent["run"]].run.request)
        measured = {
            "matmul": spent["matmul_ms"],
            "attention": spent["attention_ms"],
            "elementwise and loss": spent["elementwise_ms"] + spent["softmax_ms"],
            "optimizer": spent["optimizer_ms"],
        }
        cells = [f"{measured[kind]:.0f} ({predicted[kind]:.0f})" for kind in KINDS]
        busy = spent["busy_ms"] / 1e3 / ROWS[spent["run"]]["step_seconds"]
        yield f"| {spent['run']} | {' | '.join(cells)} | {busy:.0%} |"


def test_the_page_is_what_the_measurements_give(
    predictions: dict[str, Prediction], request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    findings = [
        f"- **{each['quantity'].capitalize()}** of {', '.join(each['runs'])}: {each['reason']}"
        for each in RECORD["open_findings"]
    ]
    for marker, lines in (
        ("runs", [*run_lines(predictions)]),
        ("kernels", [*kernel_lines(predictions)]),
        ("findings", ["", *findings, ""]),
    ):
        check_block(marker, "\n".join(lines) + "\n", update=update, page=PAGE)


def test_the_matmul_curve_has_the_shape_of_this_cards_kernels() -> None:
    """One factor apart, whatever the size: what the share that a run sustains can hold."""
    gpu = records.gpu("h100")
    curve, by_size = gpu.gemm, defaultdict[int, list[float]](list)
    for name, precision, tokens, inputs, outputs, *measured in KERNELS["matmul"]["rows"]:
        if precision != "bf16" or outputs % 8:
            continue
        flops = 2.0 * tokens * inputs * outputs
        read = 2.0 * (tokens * inputs + inputs * outputs + tokens * outputs)
        arithmetic = flops / (curve.peak_fraction * gpu.peak_flops["bf16"])
        memory = read / (curve.hbm_fraction * gpu.hbm_bytes_per_second)
        s = curve.sharpness
        predicted = curve.overhead_seconds + (arithmetic**s + memory**s) ** (1 / s)
        by_size[int(math.log10(flops))] += [predicted / seconds for seconds in measured]
        assert all(seconds > 0 for seconds in measured), name
    ratios = {size: median(found) for size, found in by_size.items() if size >= 10}
    assert len(ratios) >= 3
    assert max(ratios.values()) - min(ratios.values()) < 0.05
