"""Twice the GPUs, the links or the memory make no answer slower by more than a price can: 300 requests, or DOUBLED x 20."""

import os

import pytest
from doubled import requests, slower

SEEDS = range(20)
EACH = int(os.environ.get("DOUBLED", "15"))


def slower_ones(seed: int) -> list[str]:
    return [told for case in requests(EACH, seed) if (told := slower(case))]


class TestMoreOfAMachineMakesNoAnswerSlower:
    """Half of them: the tests of a class stay on one core, and the other has the other half."""

    @pytest.mark.parametrize("seed", SEEDS[::2])
    def test_in_even_seeds(self, seed: int) -> None:
        assert not slower_ones(seed)


class TestMoreOfAMachineMakesNoAnswerSlowerEither:
    """The other half."""

    @pytest.mark.parametrize("seed", SEEDS[1::2])
    def test_in_odd_seeds(self, seed: int) -> None:
        assert not slower_ones(seed)
