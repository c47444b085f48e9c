from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.advice.budget import plan_within
from planner.advice.plan import Plan, make_plan
from planner.advice.rules.base import Finding, Severity
from planner.answers import suggest
from planner.report.first_screen import LINES, MOST_REASONS, first_screen, reasons
from planner.report.plan import options_table, plan_text
from planner.report.values import Terminal
from planner.request.schema import parse_request, resolve

COMMAND = "planner suggest gpt2 --gpus 4"
JOBS: dict[str, dict[str, Any]] = {
    "one GPU": {"model": "gpt2"},
    "four GPUs": {"model": "gpt2", "cluster": {"gpus_per_node": 4}},
    "four nodes": {
        "model": "meta-llama/Meta-Llama-3.1-70B",
        "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 4},
    },
    "adapters": {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": {"gpu": "4090", "gpus_per_node": 1},
        "recipe": {"method": "qlora"},
    },
}


def screen(job: dict[str, Any], width: int = 100) -> str:
    resolved = resolve(parse_request(job), allow_paths=False)
    plan = make_plan(resolved.job)
    return first_screen(plan, resolved.assumptions, COMMAND, Terminal(width=width))


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_answer_is_one_screen(job: dict[str, Any]) -> None:
    lines = screen(job).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 100
    beginnings = [
        "Train ",
        "Memory  ",
        "Time    ",
        "Trust   ",
        "Why (",
        "Assumed ",
        "Run it  ",
        "More    ",
    ]
    found = [start for line in lines for start in beginnings if line.startswith(start)]
    assert found == beginnings


@pytest.mark.parametrize("width", [60, 72, 140])
def test_a_screen_is_folded_to_its_terminal(width: int) -> None:
    for job in JOBS.values():
        lines = [line for line in screen(job, width).splitlines() if COMMAND not in line]
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [60, 100])
def test_the_whole_plan_is_folded_too(width: int) -> None:
    for job in JOBS.values():
        resolved = resolve(parse_request(job), allow_paths=False)
        plan = make_plan(resolved.job)
        text = plan_text(plan, resolved.assumptions, "", Terminal(width=width))
        assert max(map(len, text.splitlines())) <= width


def test_rows_that_are_not_shown_take_no_room(make_job: JobMaker) -> None:
    """Further down stands a pipeline whose schedule has a long name: the rows above keep their columns."""
    plan = make_plan(make_job("gpt2", gpus=2, gpu="h100"))
    assert any(
        "interleaved" in str(a.candidate.strategy.pipeline_schedule) for a in plan.alternatives
    )
    assert "micro-batch  recompute" in first_screen(with_room(plan), (), COMMAND, Terminal())


def with_room(plan: Plan) -> Plan:
    """Return a plan of which a screen says little more: its first reason, and no other command."""
    return replace(plan, findings=plan.findings[:1], offers=())


def test_alternatives_fill_what_is_left_of_the_screen(make_job: JobMaker) -> None:
    plan = with_room(make_plan(make_job("gpt2", gpus=4)))
    short = first_screen(plan, (), COMMAND, Terminal())
    assert "  *  ddp " in short
    assert len(short.splitlines()) <= LINES
    assert "Alternatives" not in first_screen(plan, (), COMMAND, Terminal(width=60))


def test_other_numbers_of_gpus_stand_in_their_place(make_job: JobMaker) -> None:
    plan = plan_within([make_job("gpt2", gpus=4)], {}, "cost", max_gpus=4, deadline_seconds=None)
    assert "Numbers of GPUs" in first_screen(plan, (), COMMAND, Terminal())


def finding(code: str, severity: Severity) -> Finding:
    return Finding(code=code, name="", severity=severity, message="")


def test_a_price_below_a_cent_is_told(make_job: JobMaker) -> None:
    cluster = {"instance": "g5.xlarge", "gpu": None}
    plan = plan_within([make_job("gpt2", gpus=1, cluster=cluster)], {}, "gpus", max_gpus=2)
    options = options_table(plan)
    assert options is not None
    prices = [row.cells[-1] for row in options.rows]
    assert all(0 < float(price.removeprefix("$")) < 0.02 for price in prices)


def test_the_branch_stands_first_then_warnings() -> None:
    found = [
        finding("ONE002", Severity.ADVICE),
        finding("COM004", Severity.ADVICE),
        finding("COM001", Severity.WARNING),
        finding("BAT001", Severity.WARNING),
    ]
    shown = reasons(found)
    assert [each.code for each in shown] == ["ONE002", "BAT001", "COM001"]
    assert len(shown) == MOST_REASONS
    followed = [*found, finding("ONE005", Severity.ADVICE)]
    assert [each.code for each in reasons(followed)] == ["ONE005", "BAT001", "COM001"]


def test_the_branch_gives_way_to_what_the_answer_hangs_on() -> None:
    """A faster layout is of this job alone."""
    found = [
        finding("MUL002", Severity.ADVICE),
        finding("ONE007", Severity.ADVICE),
        finding("EFF002", Severity.ADVICE),
        finding("COM001", Severity.WARNING),
    ]
    assert [each.code for each in reasons(found, 2)] == ["EFF002", "COM001"]
    assert next(iter(reasons(found, 3))).code == "MUL002"
    mixture = [*found, finding("SHP006", Severity.WARNING)]
    assert [each.code for each in reasons(mixture, 1)] == ["SHP006"]
    offloaded = [*mixture, finding("MEM003", Severity.WARNING)]
    assert [each.code for each in reasons(offloaded, 1)] == ["MEM003"]


def test_a_cost_is_told_by_the_step_where_the_run_has_no_length() -> None:
    def costs(**recipe: int) -> str:
        request = parse_request(
            {
                "model": "gpt2",
                "cluster": {"instance": "g6e.48xlarge", "nodes": 2},
                "recipe": recipe,
                "objective": "cost",
            }
        )
        resolved, plan = suggest(request, allow_paths=False)
        return first_screen(plan, resolved.assumptions, COMMAND, Terminal())

    (line,) = [line for line in costs().splitlines() if line.startswith("Cost ")]
    assert " a step, on demand (2026-01-21);" in line
    assert line.endswith(" on 16 GPUs")
    assert "\nCost " not in costs(training_tokens=10**9)


def test_reasons_that_are_left_out_are_counted(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4, gpu="4090", recipe={"global_batch_size": 16}))
    assert len(plan.findings) > MOST_REASONS
    text = first_screen(plan, (), COMMAND, Terminal())
    assert f"Why (3 of {len(plan.findings)} reasons; planner explain CODE says more)" in text


def test_an_answer_that_is_long_says_the_rest_in_brief() -> None:
    """Offload, a run's length and a second command: what more there is of trust is in the whole plan."""
    request = {
        "model": "Qwen/Qwen2.5-72B",
        "cluster": {"instance": "p5.48xlarge"},
        "recipe": {
            "framework": "accelerate",
            "optimizer": "lion",
            "sequence_length": 128,
            "training_tokens": 10**11,
        },
    }
    resolved, plan = suggest(parse_request(request), allow_paths=False)
    command = "planner suggest Qwen/Qwen2.5-72B --instance p5.48xlarge --framework accelerate --optimizer lion --seq-len 128"
    text = first_screen(plan, resolved.assumptions, f"{command} --tokens 1e11", Terminal())
    assert len(text.splitlines()) <= LINES
    (instead,) = (line for line in text.splitlines() if line.startswith("Instead "))
    assert instead.startswith("Instead the same with --")
    assert " --out DIR" in instead
    assert plan.confidence.reason not in " ".join(text.split())
    whole = plan_text(plan, resolved.assumptions, command, Terminal())
    assert plan.confidence.reason in " ".join(whole.split())
