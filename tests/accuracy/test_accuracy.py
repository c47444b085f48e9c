"""Published runs estimated again; docs/accuracy/runs.md cannot lie.

`pytest --update-golden tests/accuracy/test_accuracy.py` rewrites it; read the diff.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fits.kept_runs import as_kept
from test_docs import check_block

from planner import cli
from planner.accuracy.accuracy_text import (
    CHOICE_COLUMNS,
    MEMORY_COLUMNS,
    TIME_COLUMNS,
    Cells,
    accuracy_answer,
    accuracy_text,
    choice_rows,
    memory_rows,
    time_rows,
)
from planner.accuracy.kept import kept
from planner.accuracy.predict import (
    Accuracy,
    Prediction,
    Refusal,
    predict,
    rank_correlation,
    summarize,
    worst,
)
from planner.answers import answer_estimate
from planner.catalog.published_runs import Run, RunSource, run_source, source_names
from planner.core.errors import UnknownNameError
from planner.core.units import GIB
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.request.schema import parse_request, resolve

PAGE = Path(__file__).parents[2] / "docs/accuracy/runs.md"
KEPT = Path(__file__).parents[2] / "data/accuracy"
REQUEST: dict[str, Any] = {
    "model": "gpt2",
    "cluster": {"gpu": "a100", "gpus_per_node": 2},
    "recipe": {"sequence_length": 128, "global_batch_size": 8},
    "strategy": {"micro_batch_size": 2},
}

Results = tuple[Prediction | Refusal, ...]


@pytest.fixture(scope="module")
def results() -> dict[str, Results]:
    """Every published run, estimated once."""
    return {name: predict(run_source(name)) for name in source_names()}


@pytest.fixture(scope="module")
def figures(results: dict[str, Results]) -> list[Accuracy]:
    return [summarize(run_source(name), found) for name, found in results.items()]


def a_run(number: int = 0, **fields: Any) -> Run:
    empty: dict[str, Any] = {"step_seconds": None, "peak_bytes": None, "is_out_of_memory": False}
    known = empty | {"group": 1, "request": REQUEST} | fields
    return Run(id=f"made-{number}", **known)


def a_source(*runs: Run, **fields: Any) -> RunSource:
    known: dict[str, Any] = {"memory_kind": "", "is_first_rank": False} | fields
    said = {"source": "a paper", "hardware": "2 A100", "software": "torch", "caveats": ("none",)}
    return RunSource(name="made", runs=runs, **said, **known)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def job() -> Job:
    return resolve(parse_request(REQUEST), allow_paths=False).job


def a_prediction(job: Job, run: Run, seconds: float = 1.0, **fields: Any) -> Prediction:
    known: dict[str, Any] = {
        "fits": True,
        "low_seconds": 0.8 * seconds,
        "high_seconds": 1.2 * seconds,
        "peak_bytes": GIB,
        "shares": (("forward", 0.3), ("backward", 0.695), ("gradient_reduction", 0.005)),
    }
    strategy = Layout(data_parallel_replicate_size=2, micro_batch_size=2)
    return Prediction(run=run, job=job, strategy=strategy, step_seconds=seconds, **known | fields)


def test_every_published_run_is_estimated(results: dict[str, Results]) -> None:
    found = [result for each in results.values() for result in each]
    assert len(found) == 2876
    refused = [each for each in found if isinstance(each, Refusal)]
    assert all("nemotron_h" in each.reason for each in refused)
    for each in found:
        if isinstance(each, Prediction):
            assert 0 < each.low_seconds <= each.step_seconds <= each.high_seconds < math.inf
            assert 0 < each.peak_bytes < math.inf
            assert sum(share for _, share in each.shares) == pytest.approx(1)


def test_every_figure_is_a_number_in_its_range(figures: list[Accuracy]) -> None:
    for each in figures:
        assert each.time is not None
        assert each.time.median <= each.time.p90
        assert abs(each.time.bias) <= each.time.mean < math.inf
        # Two runs that take as long have no order.
        assert each.rank_correlation is not None or each.time.runs <= 2
        assert -1 <= (each.rank_correlation or 0) <= 1
        choice = asdict(each.choice) if each.choice else {}
        choice.pop("groups", None)
        shares = [each.coverage, each.ran_and_fits, each.ran_out_and_does_not_fit]
        assert all(0 <= share <= 1 for share in (*shares, *choice.values()) if share is not None)


@pytest.mark.parametrize("name", source_names())
def test_a_table_of_runs_says_what_one_request_says(name: str, results: dict[str, Results]) -> None:
    source = run_source(name)
    for result in results[name][:: max(1, len(source.runs) // 3)]:
        assert isinstance(result, Prediction)
        # What a published run leaves open is as its authors had it, not as these files train.
        recipe = {"weights_dtype": "config", **result.run.request["recipe"]}
        request = parse_request({**result.run.request, "recipe": recipe})
        answer = answer_estimate(request, allow_paths=False)
        time, memory = answer["time"], answer["memory"]
        peak = memory["reserved_bytes"]
        if source.memory_kind == "allocated":
            peak = memory["stages"][0]["peak_bytes"]
        assert answer["id"] == result.run.id
        assert answer["fits"] == result.fits
        assert result.peak_bytes == pytest.approx(peak, abs=1)
        for key in ("step_seconds", "low_seconds", "high_seconds"):
            assert getattr(result, key) == pytest.approx(time[key], rel=1e-12)


def test_allocated_memory_of_the_fullest_card_is_its_peak() -> None:
    (found,) = predict(a_source(a_run(), memory_kind="allocated"))
    answer = answer_estimate(parse_request(REQUEST), allow_paths=False)
    assert isinstance(found, Prediction)
    assert found.peak_bytes == pytest.approx(answer["memory"]["peak_bytes"], abs=1)


@pytest.mark.parametrize("name", source_names())
def test_runs_of_a_group_share_model_cluster_and_batch(name: str) -> None:
    jobs: dict[int, set[str]] = {}
    for run in run_source(name).runs:
        cluster = run.request["cluster"]
        same = [run.request["model"], run.request["recipe"]["global_batch_size"]]
        same += [cluster["gpu"].rpartition("-")[0], cluster["gpus_per_node"], cluster["nodes"]]
        jobs.setdefault(run.group, set()).add(json.dumps(same))
    assert [group for group, found in jobs.items() if len(found) > 1] == []


@pytest.mark.parametrize("name", source_names())
def test_every_source_says_what_it_is(name: str) -> None:
    source = run_source(name)
    assert source.name == name
    assert source.source
    assert source.hardware
    assert source.software
    assert source.caveats
    assert len({run.id for run in source.runs}) == len(source.runs)
    measured = any(run.peak_bytes for run in source.runs)
    assert source.memory_kind in ({"allocated", "reserved", "nvidia-smi"} if measured else {""})


def test_an_unknown_source_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as raised:
        run_source("nanotrom")
    assert raised.value.hint == "did you mean nanotron?"
    with pytest.raises(UnknownNameError) as raised:
        run_source("../" * 30)
    assert raised.value.hint.startswith("known: bloom")


def test_a_run_that_cannot_be_estimated_is_refused_and_the_rest_go_on() -> None:
    elsewhere = REQUEST | {"recipe": REQUEST["recipe"] | {"framework": "jax"}}
    uneven = REQUEST | {"strategy": {"micro_batch_size": 3}}
    runs = [a_run(i, request=request) for i, request in enumerate((elsewhere, uneven, REQUEST))]
    first, second, third = predict(a_source(*runs))
    assert isinstance(first, Refusal)
    assert "jax" in first.reason
    assert isinstance(second, Refusal)
    assert "micro_batch_size 3" in second.reason
    assert isinstance(third, Prediction)


def test_errors_by_hand(job: Job) -> None:
    measured = [1.0, 2.0, 0.8, 1.25, 0.5]
    found = [
        a_prediction(job, a_run(i, step_seconds=seconds, peak_bytes=GIB * 2**i))
        for i, seconds in enumerate(measured)
    ]
    figures = summarize(a_source(memory_kind="reserved"), found)
    assert figures.time is not None
    assert figures.time.runs == 5
    assert figures.time.median == pytest.approx(0.25)
    assert figures.time.mean == pytest.approx((0 + 0.5 + 0.25 + 0.2 + 1) / 5)
    assert figures.time.p90 == pytest.approx(1)
    assert figures.time.bias == pytest.approx((0 - 0.5 + 0.25 - 0.2 + 1) / 5)
    assert figures.memory is not None
    assert figures.memory.bias == pytest.approx(-(0 + 1 / 2 + 3 / 4 + 7 / 8 + 15 / 16) / 5)
    assert figures.coverage == pytest.approx(2 / 5)
    assert figures.rank_correlation is None
    assert figures.ran_and_fits == 1
    assert figures.ran_out_and_does_not_fit is None


def test_what_nobody_measured_has_no_figures(job: Job) -> None:
    out = a_run(is_out_of_memory=True)
    wrong, right = a_prediction(job, out), a_prediction(job, out, fits=False)
    said = (wrong, right, Refusal(run=out, reason=""))
    figures = summarize(a_source(), said)
    nothing = (figures.time, figures.memory, figures.choice, figures.coverage)
    assert nothing == (None,) * 4
    assert (figures.runs, figures.refused) == (3, 1)
    assert figures.ran_and_fits is None
    assert figures.ran_out_and_does_not_fit == pytest.approx(1 / 2)


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 100, 1000, 10000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert rank_correlation([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 2, 3], [5, 5, 5]) is None


def test_regret_by_hand(job: Job) -> None:
    """Measured, predicted, fits; the best of each group is 1 s."""
    tied = [(1.0, 3.0, True), (2.0, 3.0, True), (4.0, 5.0, True)]
    too_large = [(1.0, 2.0, True), (1.25, 1.0, False), (2.0, 3.0, True)]
    none_fits = [(1.0, 2.0, False), (1.01, 1.0, False), (2.0, 3.0, False)]
    pair = [(1.0, 2.0, True), (9.0, 1.0, True)]
    found = [
        a_prediction(job, a_run(step_seconds=measured, group=group), predicted, fits=fits)
        for group, rows in enumerate((tied, too_large, none_fits, pair))
        for measured, predicted, fits in rows
    ]
    choice = summarize(a_source(), found).choice
    assert choice is not None
    assert choice.groups == 3
    assert choice.right_fraction == pytest.approx((0.5 + 1 + 1) / 3)
    assert choice.mean_regret == pytest.approx((0.25 + 0 + 1 - 1 / 1.01) / 3)
    assert choice.p90_regret == pytest.approx(0.25)
    by_lot = [(0.5 + 0.75) / 3, (0.2 + 0.5) / 3, (1 - 1 / 1.01 + 0.5) / 3]
    assert choice.random_regret == pytest.approx(sum(by_lot) / 3)


def test_the_worst_come_first_and_say_why(job: Job) -> None:
    close = a_prediction(job, a_run(1, step_seconds=1.0, peak_bytes=4.0 * GIB), fits=False)
    slow = a_prediction(job, a_run(2, step_seconds=0.25))
    out = a_prediction(job, a_run(3, is_out_of_memory=True))
    refused = Refusal(run=a_run(4), reason="no such layout")
    found: Results = (out, close, refused, slow)
    listed = worst(found, 4)
    assert [each.run.id for each in listed] == ["made-4", "made-2", "made-1", "made-3"]
    assert worst(listed, 1) == (refused,)
    figures = summarize(a_source(), listed)
    text = accuracy_text([figures], {"made": listed}, str.upper)
    where = "1 node x 2 a100-sxm-80gb = 2 GPUs, DDP, micro-batch 2 x 1 accumulation"
    for line in (
        "WORST OF MADE",
        "made-4  refused: no such layout",
        "made-2  step +300 % (1.00 s, measured 250 ms)",
        "made-1  step +0 % (1.00 s, measured 1.00 s)  memory -75 % (1.00 GiB, measured 4.00 GiB)",
        "measured 4.00 GiB)  said not to fit, ran",
        "made-3  said to fit, ran out of memory",
        "    backward 70 %, forward 30 %\n",
    ):
        assert line in text + "\n"
    assert where in text
    assert "gradient reduction" not in text
    (answer,) = accuracy_answer([figures], {"made": listed})
    assert answer["worst"][0] == {"id": "made-4", "refused": "no such layout"}
    assert answer["worst"][2]["memory_error"] == pytest.approx(-0.75)
    assert answer["worst"][3]["measured_peak_bytes"] is None


def test_nothing_measured_leaves_cells_blank(job: Job) -> None:
    figures = summarize(a_source(), [a_prediction(job, a_run())])
    assert time_rows([figures]) == [("made", "1", "0", *[""] * 6)]
    assert memory_rows([figures]) == [("made", *[""] * 5, "100 %", "")]
    assert "Choice" not in accuracy_text([figures], {}, str)


def test_the_command_prints_tables_or_json() -> None:
    text = CliRunner().invoke(cli.cli, ("accuracy", "--source", "torchtitan", "--worst", "1"))
    assert text.exit_code == 0
    assert "torchtitan" in text.stdout
    assert "Worst of torchtitan" in text.stdout
    about = " ".join(text.stdout.partition("Step time")[0].split())
    source = run_source("torchtitan")
    assert all(each in about for each in (source.source, source.hardware, *source.caveats))
    printed = CliRunner().invoke(cli.cli, ("accuracy", "--source", "torchtitan", "--json"))
    (source,) = json.loads(printed.stdout)["sources"]
    assert (source["runs"], source["worst"]) == (10, [])
    wrong = CliRunner().invoke(cli.cli, ("accuracy", "--worst", "-1"))
    assert wrong.exit_code == 2


def markdown(head: Sequence[str], rows: Sequence[Cells]) -> str:
    """Return a table whose columns are numbers but for the first."""
    lines = (head, ("---", *["---:"] * (len(head) - 1)), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def furthest_off(results: Results) -> str:
    """Return the run whose step is predicted worst, with its error."""
    timed = [(each.time_error, each.run.id) for each in results if isinstance(each, Prediction)]
    error, name = max(
        ((error, name) for error, name in timed if error), key=lambda row: abs(row[0])
    )
    return f"{name} {error:+.0%}".replace("%", " %")


def test_the_page_is_what_the_runs_give(
    figures: list[Accuracy], results: dict[str, Results], request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    rows = [(*row, furthest_off(results[row[0]])) for row in time_rows(figures)]
    for marker, body in (
        ("time", markdown((*TIME_COLUMNS, "furthest off"), rows)),
        ("choice", markdown(CHOICE_COLUMNS, choice_rows(figures))),
        ("memory", markdown(MEMORY_COLUMNS, memory_rows(figures))),
    ):
        check_block(marker, body, update=update, page=PAGE)


@pytest.mark.parametrize("name", source_names())
def test_what_is_kept_is_what_the_runs_give(
    name: str,
    results: dict[str, Results],
    figures: list[Accuracy],
    request: pytest.FixtureRequest,
) -> None:
    (found,) = (each for each in figures if each.source == name)
    text, path = as_kept(found, results[name]), KEPT / f"{name}.json"
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
    read = kept(name)
    assert asdict(read.figures) == {"source": name, **json.loads(text)["figures"]}
    for one, other in zip(read.results, results[name], strict=True):
        assert one.run == other.run
        if isinstance(one, Refusal) or isinstance(other, Refusal):
            assert one == other
        else:
            assert one.step_seconds == pytest.approx(other.step_seconds, rel=1e-4)
            assert one.peak_bytes == pytest.approx(other.peak_bytes, rel=1e-4)


def test_nothing_else_is_kept() -> None:
    assert {file.stem for file in KEPT.iterdir()} <= set(source_names())
