"""Twice the GPUs, the links or the memory make no answer slower by more than a price can: a few of all kinds."""

import pytest
from doubled import Doubled, requests, slower

SAMPLE = 16


@pytest.mark.parametrize("case", list(requests(SAMPLE, 26)), ids=lambda case: case.kind)
def test_more_of_a_machine_makes_no_answer_slower(case: Doubled) -> None:
    assert slower(case) is None


def test_the_sample_doubles_everything() -> None:
    kinds = {case.kind for case in requests(SAMPLE, 26)}
    assert kinds == {"gpus_per_node", "nodes", "link", "memory"}
