"""Which questions are small: known by their text before anything is searched, without a model of the Hub."""

import json
from collections.abc import Mapping
from functools import lru_cache
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


def is_small(*arguments: object) -> bool:
    """Return whether a job is a plan for a small model on few GPUs, by its first argument: a body, or a query string."""
    said = _said(arguments[0]) if arguments else {}
    cluster = said.get("cluster", said)
    if not isinstance(cluster, dict) or any(said.get(name) for name in _MANY_SEARCHES):
        return False
    node = _USUAL_NODE if cluster.get("instance") else _whole(cluster.get("gpus_per_node"))
    if not 0 < node * _whole(cluster.get("nodes")) <= _FEW_GPUS:
        return False
    model = said.get("model")
    return isinstance(model, str) and len(model) <= _LONGEST_NAME and _is_small_model(model)


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
def _is_small_model(name: str) -> bool:
    known = records.model(name)
    shipped = known.id if known else model_called(name)
    try:
        return (
            shipped is not None
            and load_model(shipped, allow_paths=False)[0].parameters <= _FEW_PARAMETERS
        )
    except PlannerError:
        return False
