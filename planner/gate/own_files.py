"""Files of a launch folder that was written with a plan: what their scripts divide is in that plan."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.core.errors import PlannerError
from planner.core.frozen import frozen
from planner.gate.documents import read_json

_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")


@frozen
class OwnPlan:
    """The plan that files were written with."""

    folder: str
    """The launch folder, as it is named beside the files."""
    model_ranks: int
    """GPUs that share one copy of the model."""


def own_plan(files: Iterable[str]) -> OwnPlan | None:
    """Return the plan above the folder of the first of these files; None where there is none."""
    file = next(iter(files), None)
    if file is None:
        return None
    folder = Path(os.path.normpath(Path(file).parent / ".."))
    try:
        strategy = read_json(folder / "plan.json", "plan.json")["chosen"]["strategy"]
        return OwnPlan(folder=str(folder), model_ranks=_model_ranks(strategy))
    except (PlannerError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _model_ranks(strategy: Mapping[str, Any]) -> int:
    return math.prod(max(1, int(strategy.get(size) or 1)) for size in _SIZES)
