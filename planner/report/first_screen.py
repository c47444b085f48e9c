"""Plan -> the first screen of a terminal: the answer, why, what else there is, what was assumed."""

from collections.abc import Sequence

from planner.advice.plan import Plan
from planner.advice.rules import (
    COMPILED,
    DISAGREEMENT,
    EXPOSED,
    FASTER,
    OFFLOADED,
    TOGETHER,
)
from planner.advice.rules.base import Finding, Severity
from planner.report.answer import answer_text, entries_text, others_text
from planner.report.layout_words import assumptions_words
from planner.report.plan import options_table
from planner.report.values import WIDTH, Figure, Terminal, table_text
from planner.request.remarks import Assumption

LINES = 20
"""Of the screen, at 100 columns."""
MOST_REASONS = 3
_MOST_OTHERS = 3
_FIRST = (OFFLOADED.code, DISAGREEMENT.code, TOGETHER.code)
"""What the answer hangs on."""
_AFTER_WARNINGS = len(_FIRST) + 1


def first_screen(
    plan: Plan, assumptions: Sequence[Assumption], command: str, terminal: Terminal
) -> str:
    """Return what fits 20 lines of 100 columns, or as much on a narrower terminal.

    Args:
        plan: what to show.
        assumptions: what the request left open.
        command: the command line that asked, to which `--out` can be added; "" where it has one.
        terminal: what it is shown on.
    """
    answer = answer_text(plan, command, terminal, is_brief=True)
    options = options_table(plan)
    numbers = table_text(options, terminal) if options else ""
    # As many reasons as leave the answer on one screen, then as many other choices; one of each in any case.
    for most, others in ((3, _MOST_OTHERS), (2, _MOST_OTHERS), (2, 1), (1, 1)):
        below = (
            _why(plan, most, terminal),
            others_text(plan, terminal, others),
            _assumed(assumptions, terminal),
            _more(plan, most, terminal),
        )
        text = _join((answer, "\n".join(part for part in below if part), numbers))
        if len(text.splitlines()) <= LINES * WIDTH / min(terminal.width, WIDTH):
            break
    return text


def _why(plan: Plan, most: int, terminal: Terminal) -> str:
    shown = reasons(plan.findings, most)
    labels = ("Why", *[""] * (len(shown) - 1))
    return entries_text(
        tuple(
            Figure(label=label, amount="", rest=f"{finding.message} ({finding.code})")
            for label, finding in zip(labels, shown, strict=True)
        ),
        terminal,
    )


def _assumed(assumptions: Sequence[Assumption], terminal: Terminal) -> str:
    said = assumptions_words(assumptions, is_brief=True)
    figure = Figure(label="Assumed", amount="", rest=said)
    return entries_text((figure,), terminal) if said else ""


def _more(plan: Plan, most: int, terminal: Terminal) -> str:
    left = len(plan.findings) - most
    rest_of_them = f", {left} more reason{'s'[: left > 1]}" if left > 0 else ""
    code = reasons(plan.findings, most)[0].code
    rest = f"-v shows memory, time, what else was tried{rest_of_them}; planner explain {code}"
    return entries_text((Figure(label="More", amount="", rest=rest),), terminal)


def reasons(findings: Sequence[Finding], most: int = MOST_REASONS) -> tuple[Finding, ...]:
    """Return the findings that weigh most, the tree's branch and what overrules it in front.

    Warnings and a faster layout weigh more than the branch, whose words are the same for many jobs; what
    exchanges cost stands beside the time already. Offload goes before the branch, which speaks of layouts
    that keep their states on the GPU.
    """
    branch = findings[0].code
    of_code = {each: place for place, each in enumerate(_FIRST)} | {
        FASTER.code: _AFTER_WARNINGS,
        EXPOSED.code: _AFTER_WARNINGS + 1,
        branch: _AFTER_WARNINGS + 2,
        COMPILED.code: _AFTER_WARNINGS + 3,
    }
    of_severity = {Severity.ADVICE: _AFTER_WARNINGS + 4}
    weight = {
        each.code: of_code.get(each.code, of_severity.get(each.severity, len(_FIRST)))
        for each in findings
    }
    ranked = sorted(findings, key=lambda each: weight[each.code])[:most]
    places = {code: place for place, code in enumerate((OFFLOADED.code, branch, DISAGREEMENT.code))}
    return tuple(sorted(ranked, key=lambda each: places.get(each.code, len(places))))


def _join(sections: Sequence[str]) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"
