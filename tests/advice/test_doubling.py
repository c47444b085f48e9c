"""Twice the GPUs, the links or the memory make no answer slower by more than a price can: a few of all kinds."""

import pytest
from doubled import requests, slower

CASES = list(requests(16, 26))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_more_of_a_machine_makes_no_answer_slower(number: int) -> None:
    assert slower(CASES[number]) is None


def test_the_sample_doubles_everything() -> None:
    assert {case.kind for case in CASES} == {"gpus_per_node", "nodes", "link", "memory"}
