"""Plans as somebody commits them: the answer to one request, and objects written as files."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from planner import answers
from planner.request.schema import parse_request

Write = Callable[..., str]

REQUEST = {
    "model": "gpt2",
    "cluster": {"instance": "p4d.24xlarge"},
    "recipe": {"framework": "torch", "training_tokens": 3_000_000_000},
}


@cache
def _answer() -> str:
    request = parse_request(REQUEST)
    return json.dumps(answers.answer_plan(*answers.suggest(request, allow_paths=False), None))


def plan_answer() -> dict[str, Any]:
    """Return the JSON of a plan with a length and a price."""
    read: dict[str, Any] = json.loads(_answer())
    return read


def writer(folder: Path) -> Write:
    """Return what writes an object, or a text as it is, as a file of that name, and its path."""

    def written(value: Any, name: str = "plan.json") -> str:
        path = folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return str(path)

    return written
