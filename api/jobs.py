"""What a process of the service is asked to do: a request in as it came, the answer's bytes out.

Nothing here knows the server: it may be called in any process.
"""

import hashlib
import json
from typing import Any, NamedTuple

from api.body import parse_topology_request, read_request
from planner import answers
from planner.core.errors import InvalidInputError
from planner.hardware.topology import parse_topology
from planner.request.model import load_model


class Reply(NamedTuple):
    """An answer as it goes out."""

    body: bytes
    tag: str
    """The same for the same answer, whenever and wherever it was computed."""


def warm() -> None:
    """Read what every plan needs."""
    suggestion(b'{"model": "gpt2"}')


def suggestion(body: bytes) -> Reply:
    """Recommend a strategy."""
    asked = read_request(body)
    resolved, plan = answers.suggest(asked, allow_paths=False)
    answer = answers.answer_suggestion(asked, resolved, plan)
    timeless = {**answer, "search": {**answer["search"], "seconds": 0}}
    return _reply(answer, timeless)


def estimation(body: bytes) -> Reply:
    """Estimate one strategy."""
    return _reply(answers.answer_estimate(read_request(body), allow_paths=False))


def topology(body: bytes) -> Reply:
    """Read how the GPUs of one node are connected."""
    asked = parse_topology_request(body)
    try:
        parsed = parse_topology(asked.text)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, error.hint, field="text") from None
    return _reply(parsed.to_wire())


def model(name: str) -> Reply:
    """Describe a model."""
    described, notes = load_model(name, allow_paths=False)
    return _reply({**answers.answer_model(described), "notes": notes})


def to_json(content: Any) -> bytes:
    """Return JSON in ASCII: a request may hold half of a surrogate pair, and answers echo it."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _reply(answer: Any, hashed: Any = None) -> Reply:
    body = to_json(answer)
    told_apart = body if hashed is None else to_json(hashed)
    return Reply(body, hashlib.sha256(told_apart).hexdigest())
