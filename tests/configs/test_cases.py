"""Each planted fault is found by code and line, and nothing else; on what is right, nothing."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.configs.fixes import mended
from planner.configs.found import Setup
from planner.configs.recognise import recognise
from planner.configs.rules import RULES, faults
from planner.request.cluster import resolve_cluster
from planner.request.model import load_model
from planner.request.schema import parse_request

HERE = Path(__file__).parent
SAID = HERE / "said.txt"
"""Messages, hints and edits of every wrong setup: rules that are data are read for what they say, too."""


def cases(name: str) -> list[Any]:
    read = tomllib.loads((HERE / name).read_text(encoding="utf-8"))["case"]
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in read]


def setup_of(case: dict[str, Any], texts: dict[str, str]) -> Setup:
    cluster = model = None
    if "flags" in case:
        request = parse_request({"model": "gpt2", "cluster": case["flags"]})
        cluster = resolve_cluster(request.cluster).cluster
    if "model" in case:
        model = load_model(case["model"], allow_paths=False)[0]
    settings = tuple(each for file, text in texts.items() for each in recognise(text, file))
    gpu = cluster.gpu if cluster else None
    return Setup(found=settings, texts=texts, gpu=gpu, cluster=cluster, model=model)


def found(case: dict[str, Any], texts: dict[str, str]) -> list[tuple[str, str]]:
    setup = setup_of(case, texts)
    return [(rule.code, f"{fault.at.file}:{fault.at.line}") for rule, fault in faults(setup)]


@pytest.mark.parametrize("case", cases("wrong.toml"))
def test_a_wrong_setup_has_these_faults_and_no_others(case: dict[str, Any]) -> None:
    wrong = [" ".join(each) for each in found(case, case["files"])]
    assert sorted(wrong) == sorted(case["expected"])


@pytest.mark.parametrize("case", cases("right.toml"))
def test_nothing_is_found_on_a_right_setup(case: dict[str, Any]) -> None:
    assert found(case, case["files"]) == []


@pytest.mark.parametrize("case", cases("wrong.toml"))
def test_what_to_write_says_where_it_goes(case: dict[str, Any]) -> None:
    advice = [fault.advice for _, fault in faults(setup_of(case, case["files"])) if fault.hint]
    assert [each for each in advice if re.fullmatch(r"[\w.+]+", each)] == []


@pytest.mark.parametrize("case", cases("wrong.toml"))
def test_an_edit_mends_its_fault_and_makes_no_other(case: dict[str, Any]) -> None:
    wrong = faults(setup_of(case, case["files"]))
    before = [rule.code for rule, _ in wrong]
    for rule, fault in wrong:
        if fault.edit is None:
            continue
        after = mended(case["files"], [fault.edit])
        assert after != case["files"], f"{rule.code} changes nothing"
        codes = [code for code, _ in found(case, after)]
        assert codes.count(rule.code) < before.count(rule.code), rule.code
        assert set(codes) <= set(before), rule.code


@pytest.mark.parametrize("case", cases("wrong.toml"))
def test_all_edits_together_leave_only_what_has_none(case: dict[str, Any]) -> None:
    wrong = faults(setup_of(case, case["files"]))
    after = mended(case["files"], [fault.edit for _, fault in wrong if fault.edit is not None])
    left = {code for code, _ in found(case, after)}
    assert left <= {rule.code for rule, fault in wrong if fault.edit is None}


def test_what_is_said_is_the_golden_page(request: pytest.FixtureRequest) -> None:
    lines = []
    for param in cases("wrong.toml"):
        case = param.values[0]
        for rule, fault in faults(setup_of(case, case["files"])):
            mends = (
                fault.edit and f"{fault.edit.action} {fault.edit.setting.key} {fault.edit.value}"
            )
            place = f"{rule.code} {fault.at.file}:{fault.at.line} {fault.at.key}"
            lines.append(f"{place}: {fault.message} | {fault.hint} | {mends or ''}".rstrip())
    said = "\n".join(lines) + "\n"
    if request.config.getoption("--update-golden"):
        SAID.write_text(said, encoding="utf-8")
    assert said == SAID.read_text(encoding="utf-8"), "pytest --update-golden tests/configs"


def test_every_rule_has_a_case() -> None:
    read = tomllib.loads((HERE / "wrong.toml").read_text(encoding="utf-8"))["case"]
    fired = {each.split()[0] for case in read for each in case["expected"]}
    assert {rule.code for rule in RULES} - fired == set()


def test_a_name_that_was_guessed_is_never_written() -> None:
    for case in cases("wrong.toml"):
        values = case.values[0]
        for rule, fault in faults(setup_of(values, values["files"])):
            if rule.code in {"CFG090", "CFG091"}:
                assert fault.edit is None, fault.message


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("save_strategy='epoch'", 'eval_strategy "epoch", as save_strategy'),
        ("eval_strategy='epoch'", 'save_strategy "epoch", as eval_strategy'),
    ],
)
def test_the_other_strategy_is_the_one_to_take(arguments: str, hint: str) -> None:
    text = f"TrainingArguments(output_dir='o', load_best_model_at_end=True, {arguments})"
    setup = Setup(found=recognise(text, "a.py"), texts={"a.py": text})
    assert [fault.hint for rule, fault in faults(setup) if rule.code == "CFG060"] == [hint]
