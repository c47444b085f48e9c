"""plan.json: short, and all that the planner's own commands read of a plan."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner import answers
from planner.calibrate.logs.plans import request_of_plan
from planner.gate.facts import read_facts
from planner.generate.plan_json import own_digest, plan_json
from planner.request.schema import parse_request
from planner.verify.planned import read_planned

PLANS: dict[str, dict[str, Any]] = {
    "gpt2": {"model": "gpt2", "cluster": {"gpus_per_node": 4}},
    "DeepSeek-V3": {
        "model": "deepseek-ai/DeepSeek-V3",
        "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 32},
        "recipe": {"job": "pretrain"},
    },
}
FILES = {f"torchrun/{number}.py": str(number) for number in range(40)}


@pytest.fixture(scope="module", params=PLANS)
def answer(request: pytest.FixtureRequest) -> dict[str, Any]:
    resolved, plan = answers.suggest(parse_request(PLANS[request.param]), allow_paths=False)
    return dict(answers.answer_plan(resolved, plan, None))


def test_a_plan_has_at_most_400_lines_and_says_what_it_chose(answer: dict[str, Any]) -> None:
    text = plan_json(answer, FILES)
    assert len(text.splitlines()) <= 400
    assert max(map(len, text.splitlines()[:40])) < 400
    short = json.loads(text)
    terms = short["chosen"]["memory"]["terms"]
    assert all(term["bytes"] for term in terms)
    left = sum(term["bytes"] for term in answer["chosen"]["memory"]["terms"])
    assert sum(term["bytes"] for term in terms) == left
    assert all(term.keys() == {"name", "bytes"} for term in terms)


def test_its_readers_find_what_the_whole_answer_says(answer: dict[str, Any]) -> None:
    short, whole = json.loads(plan_json(answer, FILES)), json.loads(json.dumps(answer))
    assert request_of_plan(short) == request_of_plan(whole)
    ours, theirs = read_facts(short), read_facts(whole)
    assert (ours.targets, ours.findings, ours.assumptions) == (
        theirs.targets,
        theirs.findings,
        theirs.assumptions,
    )
    assert ours.values.keys() == theirs.values.keys()
    assert {path: ours.text(path) for path in ours.values} == {
        path: theirs.text(path) for path in theirs.values
    }


def test_verify_reads_the_same_of_it(answer: dict[str, Any], tmp_path: Path) -> None:
    texts = {"short": plan_json(answer, FILES), "whole": json.dumps(answer)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    short, whole = (read_planned(str(tmp_path / name)) for name in texts)
    assert short.step_seconds.high == pytest.approx(whole.step_seconds.high, rel=1e-6)
    assert short.stage_peak_bytes == whole.stage_peak_bytes
    assert (short.tokens_per_step, short.ranks) == (whole.tokens_per_step, whole.ranks)
    assert short.memory_terms == {name: size for name, size in whole.memory_terms.items() if size}


def test_its_own_digest_tells_an_edit_from_another_layout(answer: dict[str, Any]) -> None:
    plan = json.loads(plan_json(answer, FILES))
    own = plan["files"]["plan.json"]
    assert own_digest(json.loads(json.dumps(plan, indent=4))) == own
    plan["chosen"]["family"] = "edited"
    assert own_digest(plan) != own
