import json

import pytest
from random_requests import random_request

from planner import answers
from planner.answers.shapes import SuggestionAnswer
from planner.core.errors import PlannerError
from planner.request.schema import parse_request

TOGETHER = 15
"""Requests of one test."""


def answered(number: int) -> SuggestionAnswer | PlannerError:
    """Return the answer to a random request, or what it is told is wrong."""
    try:
        request = parse_request(random_request(number))
        resolved, plan = answers.suggest(request, allow_paths=False)
    except PlannerError as error:
        return error
    return answers.answer_suggestion(request, resolved, plan)


@pytest.mark.parametrize("first", range(0, 150, TOGETHER))
def test_any_request_ends_in_a_plan_or_in_an_error_with_a_hint(first: int) -> None:
    """3,000 of them did; `range` above says which ones are tried each time."""
    for number in range(first, first + TOGETHER):
        found = answered(number)
        if isinstance(found, PlannerError):
            assert found.hint, (number, found.message)
            assert found.field, (number, found.message)
        else:
            assert json.loads(json.dumps(found, allow_nan=False))["ok"]
