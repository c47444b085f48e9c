from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner import rules
from planner.candidate import estimate
from planner.errors import UnknownNameError
from planner.plan import make_plan
from planner.rules import RULES, Situation
from planner.strategy import Strategy

LLAMA = "meta-llama/Llama-2-7b-hf"
Case = dict[str, Any]

FIRES: dict[str, Case] = {
    "ONE001": {"model": "gpt2", "gpus": 1},
    "ONE002": {"model": "gpt2", "gpus": 4},
    "ONE003": {"model": LLAMA, "gpus": 8},
    "ONE004": {"model": LLAMA, "gpus": 8, "gpu": "a40"},
    "ONE005": {"model": "gpt2", "gpus": 4},
    "SHP001": {"model": LLAMA, "gpus": 8, "recipe": {"sequence_length": 4096}},
}
SILENT: dict[str, Case] = {
    "ONE001": FIRES["ONE002"],
    "ONE002": FIRES["ONE003"],
    "ONE003": FIRES["ONE004"],
    "ONE004": FIRES["ONE003"],
    "ONE005": FIRES["ONE001"],
    "SHP001": FIRES["ONE002"],
}


def fired(make_job: JobMaker, case: Case) -> list[str]:
    arguments = dict(case)
    plan = make_plan(make_job(arguments.pop("model"), **arguments))
    return [finding.code for finding in plan.findings]


@pytest.mark.parametrize("code", FIRES)
def test_a_rule_fires_on_its_case_and_stays_silent_on_the_other(
    make_job: JobMaker, code: str
) -> None:
    assert code in fired(make_job, FIRES[code])
    assert code not in fired(make_job, SILENT[code])


def situation(make_job: JobMaker, micro_batch_size: int) -> Situation:
    job = make_job(gpus=1, gpu="rtx-3090")
    candidate = estimate(job, Strategy(micro_batch_size=micro_batch_size)).at(0)
    return Situation(job=job, candidate=candidate, smallest_replica=candidate, fastest=candidate)


MEMORY: dict[int, list[str]] = {1: [], 14: ["MEM002"], 64: ["MEM001"]}


@pytest.mark.parametrize("micro_batch_size", MEMORY)
def test_memory_is_roomy_tight_or_too_small(make_job: JobMaker, micro_batch_size: int) -> None:
    judged = rules.judge(situation(make_job, micro_batch_size))
    assert [finding.code for finding in judged] == MEMORY[micro_batch_size]
    blockers = rules.blockers(situation(make_job, micro_batch_size))
    assert [finding.code for finding in blockers] == [
        code for code in MEMORY[micro_batch_size] if code == "MEM001"
    ]


def test_every_rule_has_a_case() -> None:
    covered = {*FIRES, *(code for codes in MEMORY.values() for code in codes)}
    assert covered == {rule.code for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_says_why_what_instead_and_where_from(rule: rules.Rule) -> None:
    statement, *_ = rule.text.splitlines()
    assert statement.endswith(".")
    for heading in ("Why:", "Instead:", "Source:"):
        assert f"\n\n{heading} " in rule.text
    assert rule.name == rule.name.lower()
    assert "_" not in rule.name


def test_codes_are_unique_and_found_in_any_case() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert rules.find_rule(" one002 ").code == "ONE002"
    with pytest.raises(UnknownNameError) as caught:
        rules.find_rule("ONE009")
    assert "ONE00" in caught.value.hint


def test_the_search_is_followed_only_beyond_the_estimates_error(make_job: JobMaker) -> None:
    base = situation(make_job, 1)
    assert not rules.follows_search(base)
    faster = estimate(base.job, Strategy(micro_batch_size=8)).at(0)
    a_little, a_lot = (_sped_up(base, faster, factor) for factor in (1.1, 1.5))
    assert not rules.follows_search(a_little)
    assert "simpler ddp is followed" in (rules.DISAGREEMENT.judge(a_little) or "")
    assert rules.follows_search(a_lot)
    assert "so ddp is followed" in (rules.DISAGREEMENT.judge(a_lot) or "")


def _sped_up(base: Situation, other: Any, factor: float) -> Situation:
    seconds = base.candidate.step_time.step_seconds / factor
    time = replace(other.step_time, step_seconds=seconds)
    return replace(base, fastest=replace(other, step_time=time))
