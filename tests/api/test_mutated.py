"""Bodies with keys in capitals, twice or unknown: each is refused, by the name of the key.

`make fuzz-api` makes 50,000 of them.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from random_requests import random_request

from api.body import MalformedError, read_request
from planner.core.errors import MOST_PROBLEMS, InvalidRequestError

BODIES = int(os.environ.get("FUZZ_BODIES", "400"))
"""Of each kind."""
ODD = ("__class__", "$ref", "0", " ", "Ключ", "a.b", "Str", "gpu\n", "\u202e", "x" * 300, "Cluster")

Mutation = Callable[[dict[str, Any], random.Random], tuple[str, str]]
"""Returns the body as text, and the key that is wrong with it."""


def capitalised(body: dict[str, Any], chance: random.Random) -> tuple[str, str]:
    owner, key = chance.choice([(owner, key) for owner, key in _keys(body) if key != key.upper()])
    odd = chance.choice((str.upper, str.capitalize, str.title))(key)
    owner[odd] = owner.pop(key)
    return json.dumps(body), odd


def unknown(body: dict[str, Any], chance: random.Random) -> tuple[str, str]:
    owners = [body, *(owner for owner, _ in _keys(body))]
    odd = chance.choice((*ODD, f"f{chance.random()}"))
    chance.choice(owners)[odd] = chance.choice(
        (None, 1, "x", [], {}, {"a": {"b": []}}, 1e308, True)
    )
    return json.dumps(body), odd


def repeated(body: dict[str, Any], chance: random.Random) -> tuple[str, str]:
    owner, key = chance.choice(list(_keys(body)))
    owner["\0"] = owner[key]
    again = json.dumps(body).replace(json.dumps("\0"), json.dumps(key))
    return again, key


def _body(number: int) -> dict[str, Any]:
    """Return a body that may be changed."""
    return deepcopy(random_request(number % 1000))


def _keys(body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every key of the contract, with the object that it is in."""
    for key, value in body.items():
        yield body, key
        if isinstance(value, dict):
            yield from _keys(value)


@pytest.mark.parametrize("mutate", [capitalised, unknown])
def test_a_key_that_is_not_of_the_contract_is_named(mutate: Mutation) -> None:
    for number in range(BODIES):
        text, odd = mutate(_body(number), random.Random(number))
        with pytest.raises(InvalidRequestError) as refused:
            read_request(text.encode())
        problems = refused.value.problems
        assert 1 <= len(problems) <= MOST_PROBLEMS, text
        assert any(each.field.endswith(odd) for each in problems), (text, problems)
        assert all(len(each.message) + len(each.hint) < 600 for each in problems), problems


def test_a_key_that_is_there_twice_is_named() -> None:
    for number in range(BODIES):
        text, odd = repeated(_body(number), random.Random(number))
        with pytest.raises(MalformedError) as refused:
            read_request(text.encode())
        assert f"{odd!r} twice" in refused.value.message, text


def test_bytes_that_were_changed_are_read_or_refused() -> None:
    """Whatever is sent, no other error leaves the reader than those that it documents."""
    found = {_read_or_refused(_damaged(number)) for number in range(BODIES)}
    assert found <= {"read", "no JSON", *range(1, MOST_PROBLEMS + 1)}
    assert {"read", "no JSON", 1} <= found


def _damaged(number: int) -> bytes:
    chance = random.Random(number)
    body = bytearray(json.dumps(_body(number)).encode())
    for _ in range(chance.randrange(1, 4)):
        body[chance.randrange(len(body))] = chance.choice(b'{}[]",:0eE-. \\u\xff\0tn')
    return bytes(body)


def _read_or_refused(body: bytes) -> str | int:
    """Return that a body was read, that it is no JSON, or how many problems it has."""
    try:
        read_request(body)
    except MalformedError:
        return "no JSON"
    except InvalidRequestError as refused:
        return len(refused.problems)
    return "read"
