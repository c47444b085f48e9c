import pytest

from planner.catalog import records
from planner.catalog.batches import usual_tokens_per_step


def test_the_published_points_are_met() -> None:
    for parameters, tokens in records.usual_batches():
        assert usual_tokens_per_step(parameters) == pytest.approx(tokens, rel=1e-6)


@pytest.mark.parametrize("parameters", [1, 10**6, 10**9, 30 * 10**9, 10**12])
def test_larger_models_never_have_smaller_batches(parameters: int) -> None:
    assert usual_tokens_per_step(parameters) <= usual_tokens_per_step(2 * parameters)
    known = [tokens for _, tokens in records.usual_batches()]
    assert known[0] <= usual_tokens_per_step(parameters) <= known[-1]
