"""Where a fault is in a script, as its rule says it."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """One fault: the node, what is wrong there, and other lines that belong to it."""

    node: ast.expr | ast.stmt
    message: str
    also: tuple[int, ...] = ()
    fix: str = ""
    """What to do in this script, where it is not what its rule says."""
