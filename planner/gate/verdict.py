"""What was judged of every file, as values: the formats decide how it looks."""

from typing import Any, TypedDict

from planner.answers import SCHEMA_VERSION
from planner.catalog.findings import finding_names
from planner.core.frozen import frozen
from planner.gate.differences import Change
from planner.gate.documents import Document
from planner.gate.limits import FITS, Check

CONFIGURATION = "configuration"
"""The kind of other tools' files."""


@frozen
class Verdict:
    """One file, judged."""

    document: Document
    checks: tuple[Check, ...]
    baseline: str | None = None
    """What it is compared with, in words; None where with nothing."""
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    """What a configuration amounts to, and what would be better."""
    patch: str = ""
    """What mends it, as a unified difference."""

    @property
    def broken(self) -> tuple[Check, ...]:
        """Return what does not hold."""
        return tuple(check for check in self.checks if check.level == "error")

    @property
    def fits(self) -> bool:
        """Return whether there is a layout that fits."""
        return not any(check.code == FITS for check in self.broken)

    @property
    def title(self) -> str:
        """Return what the file plans."""
        facts = self.document.facts
        return facts.title if facts else self.document.title or "no plan"

    @property
    def sentence(self) -> str:
        """Return the outcome in one sentence."""
        if self.document.kind == CONFIGURATION:
            return self._found
        judged = [check for check in self.checks if check.level != "warning"]
        if self.broken:
            return f"{len(self.broken)} of {len(judged)} checks failed"
        return f"{len(judged)} {'check' if len(judged) == 1 else 'checks'} passed"

    @property
    def _found(self) -> str:
        errors = len(self.broken)
        warnings = sum(check.level == "warning" for check in self.checks)
        if not errors and not warnings:
            return "nothing wrong found"
        words = (
            f"{count} {name}{'' if count == 1 else 's'}"
            for count, name in ((errors, "error"), (warnings, "warning"))
            if count
        )
        return ", ".join(words)


def nothing_fits(document: Document) -> Check:
    """Return the check of a request that no layout of fits."""
    return Check(
        code=FITS,
        name=finding_names("check")[FITS],
        level="error",
        message=document.refusal,
        hint=document.hint,
    )


class DifferenceAnswer(TypedDict):
    """A field that is not the same, amounts in base units."""

    field: str
    label: str
    before: str | float | bool | None
    after: str | float | bool | None
    growth: float | None


class CheckAnswer(TypedDict):
    """One thing that was judged."""

    code: str
    name: str
    level: str
    message: str
    hint: str
    file: str
    line: int


class VerdictAnswer(TypedDict):
    """One file, or the configurations of one run, judged."""

    file: str
    kind: str
    ok: bool
    facts: dict[str, Any] | None
    checks: list[CheckAnswer]
    baseline: str | None
    changes: list[DifferenceAnswer]
    notes: list[str]
    patch: str


class VerdictsAnswer(TypedDict):
    """Everything that was judged."""

    schema_version: str
    ok: bool
    files: list[VerdictAnswer]


def change_answer(change: Change) -> DifferenceAnswer:
    """Return a change as JSON, amounts in base units."""
    return {
        "field": change.field,
        "label": change.label,
        "before": change.before,
        "after": change.after,
        "growth": change.growth,
    }


def verdicts_answer(verdicts: tuple[Verdict, ...]) -> VerdictsAnswer:
    """Return all verdicts as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": not any(verdict.broken for verdict in verdicts),
        "files": [
            {
                "file": verdict.document.file,
                "kind": verdict.document.kind,
                "ok": not verdict.broken,
                "facts": dict(verdict.document.facts.values) if verdict.document.facts else None,
                "checks": [
                    {
                        "code": check.code,
                        "name": check.name,
                        "level": check.level,
                        "message": check.message,
                        "hint": check.hint,
                        "file": check.file or verdict.document.file,
                        "line": check.line,
                    }
                    for check in verdict.checks
                ],
                "baseline": verdict.baseline,
                "changes": [change_answer(change) for change in verdict.changes],
                "notes": list(verdict.notes),
                "patch": verdict.patch,
            }
            for verdict in verdicts
        ],
    }
