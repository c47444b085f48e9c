from typing import Any

import pytest
from committed import plan_answer

from planner.core.errors import InvalidInputError
from planner.gate.facts import Facts, read_facts
from planner.gate.limits import Check, judge, read_growth, read_limit


@pytest.fixture
def plan() -> dict[str, Any]:
    return plan_answer()


def outcome(facts: Facts, flag: str, text: str, baseline: Facts | None = None) -> Check:
    limit = read_limit(text, flag)
    return next(
        each for each in judge(facts, [limit], baseline) if each.code == limit.quantity.code
    )


@pytest.fixture
def facts(plan: dict[str, Any]) -> Facts:
    plan["chosen"]["memory"] |= {"reserved_bytes": 30 * 2**30, "usable_bytes": 40 * 2**30}
    plan["chosen"]["time"]["step_seconds"] = 1.0
    plan["chosen"]["training"] |= {"gpu_hours": 1000.0, "usd": 500.0}
    plan["findings"] = []
    return read_facts(plan)


@pytest.mark.parametrize(
    ("flag", "holds", "breaks"),
    [
        ("--max-memory", "30GiB", "29.9GiB"),
        ("--max-memory", "32.3 GB", "32GB"),
        ("--max-memory", "75%", "74%"),
        ("--max-step", "1s", "999ms"),
        ("--max-step", "0.1min", "1us"),
        ("--max-gpu-hours", "1k", "999"),
        ("--max-cost", "500", "499.99"),
        ("--max-cost", "$500", "$0.4k"),
        ("--max-cost", "500 USD", "1usd"),
    ],
)
def test_a_limit_holds_up_to_itself(facts: Facts, flag: str, holds: str, breaks: str) -> None:
    assert outcome(facts, flag, holds).level == "pass"
    broken = outcome(facts, flag, breaks)
    assert broken.level == "error"
    assert "over" in broken.message
    assert f"({flag}" in broken.message


@pytest.mark.parametrize("flag", ["--max-memory", "--max-step", "--max-gpu-hours", "--max-cost"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "NaN",
        "inf",
        "-1",
        "1e9",
        "0",
        "5 parsecs",
        "101%",
        "0x10",
        "1GiB/s",
        "+5",
        "9" * 400,
    ],
)
def test_what_is_no_amount_is_refused(flag: str, text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_limit(text, flag)
    assert caught.value.field == flag
    assert caught.value.hint.startswith("such as ")
    assert len(caught.value.message) < 100


def test_a_growth_is_over_the_baseline(facts: Facts, plan: dict[str, Any]) -> None:
    plan["chosen"]["time"]["step_seconds"] = 0.9
    baseline = read_facts(plan)
    assert outcome(facts, "--max-step", "+12%", baseline).level == "pass"
    assert outcome(facts, "--max-step", "+10%", baseline).level == "error"
    with pytest.raises(InvalidInputError, match="needs something to grow from"):
        judge(facts, [read_limit("+5%", "--max-step")])


def test_a_baseline_alone_lets_nothing_grow_by_more_than_a_twentieth(
    facts: Facts, plan: dict[str, Any]
) -> None:
    plan["chosen"]["time"]["step_seconds"] = 0.9
    plan["chosen"]["training"]["usd"] = 480.0
    baseline = read_facts(plan)
    levels = {each.name: each.level for each in judge(facts, [], baseline)}
    assert levels == {
        "fits": "pass", "memory": "pass", "step": "error", "gpu-hours": "pass", "cost": "pass"
    }  # fmt: skip
    assert {each.level for each in judge(facts, [], baseline, read_growth("12%"))} == {"pass"}
    assert len(judge(facts, [], baseline, read_growth("any"))) == 1
    limited = judge(facts, [read_limit("2s", "--max-step")], baseline)
    assert {each.level for each in limited} == {"pass"}


@pytest.mark.parametrize("flag", ["--max-gpu-hours", "--max-cost"])
def test_what_the_plan_does_not_say_cannot_be_judged(plan: dict[str, Any], flag: str) -> None:
    plan["chosen"]["training"] = None
    with pytest.raises(InvalidInputError, match="cannot be judged") as caught:
        judge(read_facts(plan), [read_limit("5", flag)])
    assert "--tokens" in caught.value.hint


def test_a_plan_that_does_not_fit_or_cannot_run_is_broken(plan: dict[str, Any]) -> None:
    plan["chosen"]["fits"] = False
    plan["findings"] = [
        {"code": "MEM002", "severity": "warning", "message": "tight"},
        {"code": "LAY001", "severity": "blocker", "message": "cannot run"},
        {"code": "ONE002", "severity": "advice", "message": "all is well"},
        {"code": 3, "severity": [], "message": {}},
    ]
    levels = [(each.code, each.level) for each in judge(read_facts(plan), [])]
    assert levels == [("CHK001", "error"), ("MEM002", "warning"), ("LAY001", "error")]


@pytest.mark.parametrize("text", ["", "5", "nan%", "-5%", "some", "inf"])
def test_what_is_no_growth_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_growth(text)
    assert caught.value.field == "--max-growth"
