"""Plan -> the first screen of a terminal: the answer, why, what was assumed, and how to run it."""

from collections.abc import Sequence
from dataclasses import replace

from planner.advice.plan import Plan
from planner.advice.rules import (
    DISAGREEMENT,
    EXPOSED,
    FASTER,
    OFFLOADED,
    TOGETHER,
)
from planner.advice.rules.base import Finding, Severity
from planner.report.launch import how_to_run
from planner.report.layout_words import assumptions_text
from planner.report.plan import (
    alternatives_table,
    findings_text,
    options_table,
    recommendation_text,
)
from planner.report.values import Figure, ReportTable, Terminal, figures_text, table_text
from planner.request.remarks import Assumption

LINES = 25
"""Of a terminal that nobody made larger."""
MOST_REASONS = 3
_FIRST = (OFFLOADED.code, DISAGREEMENT.code, TOGETHER.code)
"""What the answer hangs on."""
_AFTER_WARNINGS = len(_FIRST) + 1
_MOST_ROWS = 5
_FEWEST_ROWS = 3
"""Of a table, the choice among them: fewer compare nothing."""
_MORE = Figure(
    label="More",
    amount="--verbose (-v):",
    rest="the ledgers of memory and time, ranks, trade-offs, what was rejected",
)


def first_screen(
    plan: Plan, assumptions: Sequence[Assumption], command: str, terminal: Terminal
) -> str:
    """Return what fits a terminal of 25 lines and 100 columns.

    Args:
        plan: what to show.
        assumptions: what the request left open.
        command: the command line that asked, to which `--out` can be added; "" where it has one.
        terminal: what it is shown on; a narrower one takes more lines.
    """
    assumed = assumptions_text(assumptions, terminal)
    # As many reasons as leave the answer on one screen; the one that weighs most in any case, then
    # for the least that can be said of the rest, the nearest runs and a second offer given up last.
    whole = ((most, None, True) for most in range(MOST_REASONS, 0, -1))
    for most, most_offers, names_runs in (*whole, (1, 2, True), (1, 2, False), (1, 1, False)):
        is_brief = most_offers is not None
        headline = recommendation_text(plan, terminal, is_brief=is_brief, names_runs=names_runs)
        ways = how_to_run(plan, command, is_brief=is_brief, most_offers=most_offers)
        last = figures_text((*ways, _MORE), terminal)
        why = findings_text(reasons(plan.findings, most), len(plan.findings), terminal)
        left = LINES - len(_join([headline, why, assumed, last]).splitlines()) - 1
        if left >= -1:
            break
    table = _table(plan)
    shown = _shortened(table, left, terminal) if table else ""
    return _join([headline, why, assumed, shown, last])


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
    }
    of_severity = {Severity.ADVICE: _AFTER_WARNINGS + 3}
    weight = {
        each.code: of_code.get(each.code, of_severity.get(each.severity, len(_FIRST)))
        for each in findings
    }
    ranked = sorted(findings, key=lambda each: weight[each.code])[:most]
    places = {code: place for place, code in enumerate((OFFLOADED.code, branch, DISAGREEMENT.code))}
    return tuple(sorted(ranked, key=lambda each: places.get(each.code, len(places))))


def _table(plan: Plan) -> ReportTable | None:
    options = options_table(plan)
    if options is None and not plan.alternatives:
        return None
    return options or alternatives_table(plan)


def _shortened(table: ReportTable, left: int, terminal: Terminal) -> str:
    """Return as many rows of a table as there are lines left, or nothing where they say too little.

    Args:
        table: to be shown.
        left: lines of the screen.
        terminal: what it is shown on.
    """
    fewest = min(_FEWEST_ROWS, len(table.rows))
    for count in range(min(_MOST_ROWS, len(table.rows)), fewest - 1, -1):
        text = table_text(replace(table, rows=table.rows[:count]), terminal)
        if len(text.splitlines()) <= left:
            return text
    return ""


def _join(sections: Sequence[str]) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"
