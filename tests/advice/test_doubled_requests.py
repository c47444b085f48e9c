"""Twice the GPUs, the links or the memory make no answer slower by more than a price can: 500 requests."""

import pytest
from doubled import requests, slower

SEEDS = range(20)
EACH = 25


@pytest.mark.parametrize("seed", SEEDS)
def test_more_of_a_machine_makes_no_answer_slower(seed: int) -> None:
    assert not [told for case in requests(EACH, seed) if (told := slower(case))]
