"""The way through the decision tree: what was asked at each node, the number tested, and where it led."""

from collections.abc import Callable, Mapping

from planner.advice.rules import BRANCHES
from planner.advice.rules.base import Situation
from planner.advice.rules.multi_node import network
from planner.advice.rules.single_node import link
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_gpus


@frozen
class Node:
    """One question of the tree, and the branch that it can lead to."""

    question: str
    tested: str
    """The number that answered it."""
    answer: str
    """"yes" or "no"."""
    code: str
    """The rule of its branch."""
    is_taken: bool
    """Whether the job took that branch; else the next question was asked."""


def decision_path(situation: Situation, taken: str) -> tuple[Node, ...]:
    """Return the questions up to the branch that was taken, each once.

    Args:
        situation: what the rules judged.
        taken: the code of the branch.
    """
    asked: dict[str, Node] = {}
    for rule, _ in BRANCHES:
        if rule.code in _elsewhere(situation):
            continue
        question, tested = _QUESTIONS[rule.code]
        is_taken = rule.code == taken
        asked[question] = Node(
            question=question,
            tested=tested(situation),
            answer="yes" if is_taken and rule.code not in _OTHERWISE else "no",
            code=rule.code,
            is_taken=is_taken,
        )
        if rule.code == taken:
            break
    return tuple(asked.values())


def _elsewhere(situation: Situation) -> tuple[str, ...]:
    of_one, of_many = ("ONE002", "ONE003", "ONE004"), ("MUL001", "MUL002", "MUL003")
    return of_one if situation.is_multi_node else of_many


def _gpus(situation: Situation) -> str:
    cluster = situation.job.cluster
    nodes = f", {cluster.nodes:,} nodes" if cluster.nodes > 1 else ""
    return f"{format_gpus(cluster.world_size)}{nodes}"


def _replica(situation: Situation) -> str:
    return _of_usable(situation, situation.smallest_replica_bytes)


def _layer(situation: Situation) -> str:
    return _of_usable(situation, situation.largest_layer_bytes)


def _of_usable(situation: Situation, needed_bytes: float) -> str:
    return f"{format_bytes(needed_bytes)} of {format_bytes(situation.job.usable_bytes)}"


_REPLICA = ("A replica on one GPU?", _replica)
_LINKS = ("Fast links?", link)
_NETWORK = ("Fast links?", network)
_QUESTIONS: Mapping[str, tuple[str, Callable[[Situation], str]]] = {
    "ONE001": ("A single GPU?", _gpus),
    "ONE002": _REPLICA,
    "MUL001": _REPLICA,
    "ONE006": ("A layer too large for one?", _layer),
    "ONE003": _LINKS,
    "ONE004": _LINKS,
    "MUL002": _NETWORK,
    "MUL003": _NETWORK,
}
"""What each branch of the tree asks, and the number that it tests."""
_OTHERWISE = ("ONE004", "MUL003")
"""Branches for the jobs that no other branch takes: where the answer to their question is no."""
