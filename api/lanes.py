"""Which questions are small: known by their text before anything is searched, without a model of the Hub."""

import json
import sys
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import Any

from planner.catalog import records
from planner.catalog.model_names import model_called
from planner.core.errors import PlannerError
from planner.request.model import load_model

_FEW_GPUS = 16
_FEW_PARAMETERS = 2e9
"""Beyond these a search takes a second or more: 0.9 s for gpt2 on 16 GPUs, 2.6 s for 70B, 17 s for DeepSeek-V3."""
_SHORT = 4096
"""Bytes of a body that is looked into on the event loop."""
_LONGEST_NAME = 100
_MANY_SEARCHES = ("max_gpus", "deadline_hours", "why", "machine")
_USUAL_NODE = 8


def is_small(*arguments: object, is_search: bool = True) -> bool:
    """Return whether a job takes a moment: a plan for a small model on few GPUs, or one layout of any model that ships.

    Args:
        arguments: of the job, the first being a body, or a query string.
        is_search: for a plan; else one layout is estimated.
    """
    said = _said(arguments[0]) if arguments else {}
    cluster = said.get("cluster", said)
    if not isinstance(cluster, dict) or any(said.get(name) for name in _MANY_SEARCHES):
        return False
    if not is_search and said.get("job") == "grpo":
        return False  # its layout is searched all the same
    node = _USUAL_NODE if cluster.get("instance") else _whole(cluster.get("gpus_per_node"))
    gpus, model = node * _whole(cluster.get("nodes")), said.get("model")
    if gpus < 1 or not isinstance(model, str) or len(model) > _LONGEST_NAME:
        return False
    most_gpus, most = (_FEW_GPUS, _FEW_PARAMETERS) if is_search else (inf, sys.float_info.max)
    return gpus <= most_gpus and _parameters(model) <= most


def _said(asked: object) -> Mapping[str, Any]:
    if isinstance(asked, tuple):
        return {each[0]: each[1] for each in asked if isinstance(each, tuple)}
    if not isinstance(asked, bytes) or len(asked) > _SHORT:
        return {}
    try:
        said = json.loads(asked)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _whole(text: object) -> int:
    """Return a number of GPUs or nodes, 1 where nothing is said, 0 for what is no such number."""
    said = str(text or 1).strip()
    return int(said) if said.isascii() and said.isdigit() and len(said) <= len("1048576") else 0


@lru_cache(1024)
def _parameters(name: str) -> float:
    """Return the parameters of a model that ships with the planner, infinitely many of any other."""
    known = records.model(name)
    shipped = known.id if known else model_called(name)
    if shipped is None:
        return inf
    try:
        return float(load_model(shipped, allow_paths=False)[0].parameters)
    except PlannerError:
        return inf
