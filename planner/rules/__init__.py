"""What an expert would say, as a table of coded rules; no arithmetic about memory or time."""

from planner.errors import UnknownNameError, did_you_mean
from planner.rules import memory, shape, single_node
from planner.rules.base import Finding, Rule, Severity, Situation
from planner.rules.single_node import follows_search

BRANCHES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (Rule("ONE001", Severity.ADVICE, single_node.one_gpu_only), ("ddp",)),
    (Rule("ONE002", Severity.ADVICE, single_node.model_fits_on_one_gpu), ("ddp",)),
    (
        Rule("ONE003", Severity.ADVICE, single_node.model_exceeds_one_gpu_on_fast_links),
        ("ddp", "zero-1", "zero-2", "zero-3"),
    ),
    (
        Rule("ONE004", Severity.ADVICE, single_node.model_exceeds_one_gpu_on_slow_links),
        ("ddp", "zero-1", "zero-2", "zero-3"),
    ),
)
"""The decision tree: the first branch that applies names the families it prefers."""

CHECKS: tuple[Rule, ...] = (
    Rule("MEM001", Severity.BLOCKER, memory.out_of_memory),
    Rule("MEM002", Severity.WARNING, memory.tight_memory),
    Rule("SHP001", Severity.WARNING, shape.sequence_exceeds_positions),
)
"""What is asked of every layout that is shown."""

DISAGREEMENT = Rule("ONE005", Severity.ADVICE, single_node.search_disagrees_with_tree)
"""Asked of the tree's choice, against the search's."""

RULES: tuple[Rule, ...] = (*(rule for rule, _ in BRANCHES), DISAGREEMENT, *CHECKS)

__all__ = [
    "BRANCHES",
    "CHECKS",
    "DISAGREEMENT",
    "RULES",
    "Finding",
    "Rule",
    "Severity",
    "Situation",
    "blockers",
    "branch",
    "find_rule",
    "follows_search",
    "judge",
]


def branch(situation: Situation) -> tuple[Finding, tuple[str, ...]]:
    """Return the branch of the decision tree that the job takes, and its families."""
    for rule, families in BRANCHES:
        finding = rule.find(situation)
        if finding:
            return finding, families
    raise AssertionError("the branches of the tree cover every job")


def judge(situation: Situation) -> tuple[Finding, ...]:
    """Return what the checks find in the situation's layout."""
    found = (rule.find(situation) for rule in CHECKS)
    return tuple(finding for finding in found if finding)


def blockers(situation: Situation) -> tuple[Finding, ...]:
    """Return why the situation's layout cannot run."""
    return tuple(f for f in judge(situation) if f.severity == Severity.BLOCKER)


def find_rule(code: str) -> Rule:
    """Return the rule with that code, in any case.

    Raises:
        UnknownNameError: there is none.
    """
    by_code = {rule.code: rule for rule in RULES}
    rule = by_code.get(code.strip().upper())
    if rule is None:
        hint = did_you_mean(code, by_code) or f"known: {', '.join(by_code)}"
        raise UnknownNameError(f"unknown rule {code[:40]!r}", hint=hint, field="code")
    return rule
