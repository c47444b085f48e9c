"""Anchors move by the information that runs hold, and ranges by how well each run is predicted from the others."""

from dataclasses import replace
from typing import Any

import pytest

from planner import answers
from planner.calibrate.anchors import anchored
from planner.calibrate.machine_text import checks_text
from planner.calibrate.runs import machine_of_runs
from planner.core.errors import InvalidInputError
from planner.core.units import GIB
from planner.machine.document import Anchors, Machine, MeasuredRun
from planner.machine.reading import parse_machine
from planner.machine.writing import machine_json
from planner.report.values import Terminal

EXCHANGING: dict[str, Any] = {
    "model": "meta-llama/Llama-2-7b-hf",
    "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 2, "inter_node": "100Gbit/s"},
    "recipe": {"sequence_length": 2048, "global_batch_size": 64},
    "strategy": {"zero_stage": 3, "micro_batch_size": 1},
}
COMPUTING: dict[str, Any] = {
    "model": "meta-llama/Llama-2-7b-hf",
    "cluster": {"gpu": "h100", "gpus_per_node": 8},
    "recipe": {"sequence_length": 4096, "global_batch_size": 256},
    "strategy": {"zero_stage": 3, "micro_batch_size": 4, "recompute": "full"},
}


def _answers(requests: list[dict[str, Any]]) -> list[Any]:
    return list(answers.answer_batch(requests, allow_paths=False))


def _steps(request: dict[str, Any], machine: Machine | None = None) -> tuple[float, float, float]:
    given = request | ({"machine": machine_json(machine)} if machine else {})
    (answer,) = _answers([given])
    time = answer["time"]
    return time["step_seconds"], time["low_seconds"], time["high_seconds"]


def _machine(*runs: tuple[dict[str, Any], float]) -> Machine:
    """Return the machine of runs that took so many times what the catalogue says."""
    timed = [
        MeasuredRun(request=request, step_seconds=slower * _steps(request)[0])
        for request, slower in runs
    ]
    machine, _ = anchored(machine_of_runs(timed))
    return machine


def _with(request: dict[str, Any], **strategy: Any) -> dict[str, Any]:
    return request | {"strategy": request["strategy"] | strategy}


def test_a_run_faster_than_its_gpus_is_refused() -> None:
    """As of a layout padded to 4,096 tokens whose sequences were a quarter as long."""
    with pytest.raises(InvalidInputError) as refusal:
        _machine((EXCHANGING, 1.0), (COMPUTING, 0.25))
    assert "run 2 took" in refusal.value.message
    assert "times as fast as 8 x h100-sxm-80gb can compute" in refusal.value.message
    assert "sequence length" in refusal.value.hint


def test_a_run_far_from_its_estimate_is_named() -> None:
    timed = [
        MeasuredRun(request=request, step_seconds=slower * _steps(request)[0], source=source)
        for request, slower, source in (
            (COMPUTING, 2.5, "slow.log"),
            (EXCHANGING, 1.5, "run.log"),
        )
    ]
    machine, checks = anchored(machine_of_runs(timed))
    said = checks_text(machine, checks, Terminal())
    assert "slow.log took 2.5 times as long as estimated" in said
    assert "run.log took" not in said


def test_runs_as_the_catalogue_says_leave_the_factors_at_one() -> None:
    anchors = _machine((COMPUTING, 1.0), (EXCHANGING, 1.0)).anchors
    assert anchors.compute is not None
    assert anchors.communication is not None
    assert anchors.compute.factor == pytest.approx(1, abs=1e-6)
    assert anchors.communication.factor == pytest.approx(1, abs=1e-6)


def _twice(request: dict[str, Any], slower: float) -> Machine:
    """Return the machine of a run, and of one of twice the batch, that took so many times what the catalogue says."""
    recipe = request["recipe"]
    larger = recipe | {"global_batch_size": 2 * recipe["global_batch_size"]}
    return _machine((request, slower), (request | {"recipe": larger}, slower))


def test_a_run_speaks_of_what_it_spends_its_time_on() -> None:
    computing = _twice(COMPUTING, 1.3).anchors
    exchanging = _twice(EXCHANGING, 1.3).anchors
    assert computing.compute is not None
    assert computing.compute.factor > 1.05
    assert exchanging.compute is None  # what computes longer hides more of the exchanges
    assert exchanging.communication is not None
    assert exchanging.communication.factor > 1.1


def test_a_kind_of_work_that_no_run_has_gets_no_anchor() -> None:
    alone = COMPUTING | {"cluster": {"gpu": "h100", "gpus_per_node": 1}, "model": "gpt2"}
    alone = alone | {"recipe": {"sequence_length": 1024, "global_batch_size": 64}}
    alone = _with(alone, zero_stage=0, micro_batch_size=32)
    assert _machine((alone, 1.2)).anchors.communication is None


def test_more_runs_that_agree_say_more() -> None:
    layouts = [_with(COMPUTING, micro_batch_size=size) for size in (1, 2, 4, 8)]
    one = _machine((layouts[0], 1.3)).anchors.compute
    four = _machine(*((layout, 1.3) for layout in layouts)).anchors.compute
    assert one is not None
    assert four is not None
    assert 1 < one.factor < four.factor < 1.4
    assert four.factor == pytest.approx(1.3, abs=0.06)
    assert four.spread < one.spread
    assert (one.runs, four.runs) == (1, 4)


def test_a_run_far_from_all_others_hardly_counts() -> None:
    layouts = [
        _with(COMPUTING, micro_batch_size=size, recompute=recompute)
        for size in (1, 2, 4)
        for recompute in ("full", "none")
    ]
    agreed = [(layout, 1.1) for layout in layouts[:-1]]
    usual = _machine(*agreed, (layouts[-1], 1.1)).anchors.compute
    stalled = _machine(*agreed, (layouts[-1], 2.5)).anchors.compute
    assert usual is not None
    assert stalled is not None
    assert stalled.factor == pytest.approx(usual.factor, abs=0.04)


def test_the_range_shrinks_where_each_run_is_predicted_from_the_others_and_not_where_none_is() -> (
    None
):
    layouts = [_with(COMPUTING, micro_batch_size=size) for size in (1, 2, 4, 8)]
    alike = _machine(*((layout, 1.2) for layout in layouts))
    slower = (0.6, 1.7, 0.7, 1.6)
    apart = _machine(*zip(layouts, slower, strict=True))
    assert alike.anchors.range_share is not None
    assert apart.anchors.range_share is not None
    assert alike.anchors.range_share < 0.9
    assert apart.anchors.range_share > 1.2
    (_, low, high), step = _steps(layouts[1], alike), 1.2 * _steps(layouts[1])[0]
    assert low < step < high


def test_a_run_left_out_is_predicted_as_a_machine_without_it_predicts_it() -> None:
    layouts = [_with(COMPUTING, micro_batch_size=size) for size in (1, 2, 4)]
    slower = (1.25, 1.3, 1.28)
    timed = [
        MeasuredRun(request=layout, step_seconds=each * _steps(layout)[0])
        for layout, each in zip(layouts, slower, strict=True)
    ]
    _, checks = anchored(machine_of_runs(timed))
    without, _ = anchored(machine_of_runs(timed[1:]))
    again = _steps(layouts[0], without)[0]
    assert checks[0].left_out_seconds == pytest.approx(again, rel=0.05)
    assert abs(checks[0].after_seconds / checks[0].measured_seconds - 1) < 0.1


def test_what_is_reserved_besides_is_learnt_of_runs() -> None:
    (answer,) = _answers([COMPUTING])
    reserved = answer["memory"]["reserved_bytes"]
    run = MeasuredRun(request=COMPUTING, reserved_bytes=reserved + 2 * GIB)
    machine, checks = anchored(machine_of_runs([run]))
    assert checks == ()
    assert machine.anchors.memory is not None
    assert machine.anchors.memory.more_bytes == pytest.approx(0.8 * 2 * GIB, rel=1e-3)
    given = COMPUTING | {"machine": machine_json(machine)}
    (again,) = _answers([given])
    more = again["memory"]["reserved_bytes"] - reserved
    assert more == pytest.approx(0.8 * 2 * GIB, rel=1e-3)


def test_anchors_are_made_anew_of_all_runs_and_are_read_back() -> None:
    machine = _machine((COMPUTING, 1.3))
    again, _ = anchored(replace(machine, anchors=Anchors()))
    assert again == machine
    assert parse_machine(machine_json(machine)) == machine


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        ({"step_seconds": 8100.0}, "run 1 took 2.25 h a step"),
        ({"step_seconds": 1e-9}, "run 1 took"),
        (
            {"reserved_bytes": 2e12},
            "run 1 reserved 1,863 GiB of one h100-sxm-80gb, which has 80.0 GiB",
        ),
        ({"reserved_bytes": 70.0}, "run 1 reserved 70 B"),
    ],
)
def test_a_run_in_other_units_is_refused(measured: dict[str, Any], says: str) -> None:
    run = MeasuredRun(request=COMPUTING, **measured)
    with pytest.raises(InvalidInputError) as refusal:
        anchored(machine_of_runs([run]))
    assert says in refusal.value.message


@pytest.mark.parametrize("slower", [1.2, 6.0])
def test_a_single_run_left_out_is_what_the_catalogue_says(slower: float) -> None:
    run = MeasuredRun(request=EXCHANGING, step_seconds=slower * _steps(EXCHANGING)[0])
    _, (check,) = anchored(machine_of_runs([run]))
    assert check.left_out_seconds == pytest.approx(check.before_seconds)


def test_a_run_with_adapters_says_more_of_such_runs_than_of_others() -> None:
    adapted = COMPUTING | {"recipe": COMPUTING["recipe"] | {"method": "lora"}}
    machine = _twice(adapted, 1.3)
    assert machine.anchors.adapters is not None
    again, full = (
        _steps(request, machine)[0] / _steps(request)[0] for request in (adapted, COMPUTING)
    )
    assert 1.02 < full < again < 1.3
    assert _machine((COMPUTING, 1.3)).anchors.adapters is None


@pytest.mark.parametrize("slower", [0.8, 1.3, 4.0])
def test_one_run_alone_moves_an_estimate_by_two_percent_at_most(slower: float) -> None:
    machine = _machine((COMPUTING, slower))
    for request in (COMPUTING, EXCHANGING):
        assert _steps(request, machine)[0] == pytest.approx(_steps(request)[0], rel=0.02)


def test_a_run_counts_when_a_second_agrees_and_not_when_a_third_is_odd_alone() -> None:
    layouts = [_with(COMPUTING, micro_batch_size=size) for size in (1, 2, 4)]
    agreed = [(layouts[0], 1.3), (layouts[1], 1.3)]
    usual = (layouts[0], 1.0)
    learnt, with_odd, alone = (
        _machine(*runs).anchors.compute
        for runs in (agreed, [*agreed, (layouts[2], 4.0)], [usual, (layouts[2], 4.0)])
    )
    assert learnt is not None
    assert with_odd is not None
    assert alone is not None
    assert alone.runs == 1
    assert 1.08 < learnt.factor < 1.3
    assert 1.08 < with_odd.factor < 1.3
    assert alone.factor < 1.02


def test_what_no_other_run_bears_out_is_said() -> None:
    layouts = [_with(COMPUTING, micro_batch_size=size) for size in (1, 2)]
    for slower, counted in (((1.6, 1.0), [False, True]), ((1.6, 1.5), [True, True])):
        timed = [
            MeasuredRun(request=layout, step_seconds=each * _steps(layout)[0])
            for layout, each in zip(layouts, slower, strict=True)
        ]
        _, checks = anchored(machine_of_runs(timed))
        assert [check.counts for check in checks] == counted
