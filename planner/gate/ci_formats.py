"""Verdicts -> what CI systems read: workflow commands of GitHub, JUnit XML, SARIF."""

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from planner import __version__
from planner.catalog.findings import findings
from planner.configs.rules import RULES
from planner.doctor.scripts import Fault
from planner.gate.facts import one_line
from planner.gate.limits import Check
from planner.gate.verdict import Verdict
from planner.report.values import Terminal

_SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def as_github(verdicts: tuple[Verdict, ...], _terminal: Terminal) -> str:
    """Return workflow commands: an error or warning at its file for each, and a notice of the plan.

    Source: GitHub, "Workflow commands for GitHub Actions": %, CR and LF are escaped in messages, in
    properties also : and the comma.
    """
    lines: list[str] = []
    for verdict in verdicts:
        told = (check for check in verdict.checks if check.level != "pass")
        lines += (_command(check, verdict) for check in told)
        text = f"{verdict.title}: {verdict.sentence}"
        lines.append(f"::notice title=planner check::{_message(text)}")
    return "\n".join(lines)


def _command(check: Check, verdict: Verdict) -> str:
    hint = f" ({check.hint})" if check.hint else ""
    title = _property(f"{check.code} {check.name}")
    file = _property(check.file or verdict.document.place)
    return f"::{check.level} file={file},line={check.line},title={title}::{_message(check.message + hint)}"


def faults_github(faults: Sequence[Fault]) -> str:
    """Return workflow commands: an error, warning or notice at its line for each fault of a script."""
    levels = {"error": "error", "warning": "warning", "advice": "notice"}
    return "\n".join(
        f"::{levels[fault.level]} file={_property(fault.file)},line={fault.line},"
        f"title={_property(f'{fault.code} {fault.name}')}::{_message(f'{fault.message} ({fault.fix})')}"
        for fault in faults
    )


def _message(text: str) -> str:
    return one_line(text).replace("%", "%25")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def as_junit(verdicts: tuple[Verdict, ...], _terminal: Terminal) -> str:
    """Return a test suite per file, a test case per check; warnings are passed, and say so."""
    cases = [check for verdict in verdicts for check in verdict.checks]
    root = ET.Element("testsuites", {"name": "planner check", **_counts(cases)})
    for verdict in verdicts:
        name = one_line(verdict.document.file)
        suite = ET.SubElement(root, "testsuite", {"name": name, **_counts(verdict.checks)})
        for check in verdict.checks:
            case = ET.SubElement(
                suite, "testcase", classname=name, name=f"{check.code} {check.name}", time="0"
            )
            if check.level == "error":
                failure = ET.SubElement(case, "failure", message=check.message, type=check.code)
                failure.text = check.hint
            else:
                ET.SubElement(case, "system-out").text = check.message
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _counts(checks: Sequence[Check]) -> dict[str, str]:
    failed = sum(check.level == "error" for check in checks)
    return {"tests": str(len(checks)), "failures": str(failed), "errors": "0", "time": "0"}


def as_sarif(verdicts: tuple[Verdict, ...], _terminal: Terminal) -> str:
    """Return what is broken or warned of as results of SARIF 2.1.0, with the rules they name.

    Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
    """
    shown = [
        (verdict, check)
        for verdict in verdicts
        for check in verdict.checks
        if check.level != "pass"
    ]
    rules = {check.code: check for _, check in shown}
    driver = {
        "name": "planner",
        "semanticVersion": __version__,
        "rules": [_rule(check) for check in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(verdict, check) for verdict, check in shown],
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(check: Check) -> dict[str, Any]:
    known = {**findings("check"), **{rule.code: rule.text for rule in RULES}}
    text = " ".join(known.get(check.code, f"`planner explain {check.code}` says more.").split())
    return {
        "id": check.code,
        "name": check.name,
        "shortDescription": {"text": _sentence(text.partition(" Why: ")[0])},
        "help": {"text": _sentence(text)},
        "defaultConfiguration": {"level": check.level},
    }


def _result(verdict: Verdict, check: Check) -> dict[str, Any]:
    hint = f" ({check.hint})" if check.hint else ""
    region = {"startLine": check.line}
    location = {
        "artifactLocation": {"uri": _uri(check.file or verdict.document.place)},
        "region": region,
    }
    return {
        "ruleId": check.code,
        "level": check.level,
        "message": {"text": _sentence(f"{verdict.title}: {check.message}{hint}")},
        "locations": [{"physicalLocation": location}],
    }


def _sentence(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _uri(file: str) -> str:
    if file == "-":
        return "stdin"
    path = PurePath(file)
    encoded = quote(path.as_posix().encode(errors="surrogateescape"))
    return f"file://{encoded}" if path.is_absolute() else encoded
