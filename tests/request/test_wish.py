import pytest

from planner.core.errors import InvalidInputError
from planner.request.wish import read_wish


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("tp=16", {"tensor_parallel_size": 16}),
        ("pp=2, zero=1", {"pipeline_parallel_size": 2, "zero_stage": 1}),
        ("zero=zero-3", {"zero_stage": 3}),
        ("tensor-parallel-size=2,sp=true", {"tensor_parallel_size": 2, "sequence_parallel": True}),
        ("schedule=1f1b", {"pipeline_schedule": "1f1b"}),
        ("dp=4", {"data_parallel_size": 4}),
        ("dp=2x4", {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 4}),
        ("hsdp", {"family": "hsdp"}),
        ("tp+pp, tp=2", {"family": "tp+pp", "tensor_parallel_size": 2}),
    ],
)
def test_pinned_fields_are_read_by_short_and_by_whole_names(
    text: str, pinned: dict[str, object]
) -> None:
    assert read_wish(text) == pinned


@pytest.mark.parametrize("text", ["tpp=2", "tpp", "tp=", "=2", "", "$(rm)=1", "at=1"])
def test_what_is_no_wish_is_refused_with_the_names_there_are(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_wish(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tp=", "such as tp=4"),
        ("zero=", "such as zero=1"),
        ("offload=", "such as offload=optimizer"),
    ],
)
def test_a_name_without_a_value_is_not_taken_for_another_name(text: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match="has no value") as caught:
        read_wish(text)
    assert caught.value.hint == hint


def test_a_wish_that_says_two_things_of_a_field_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="dp=4,dp=2"):
        read_wish("dp=4,dp=2")
    assert read_wish("dp=4,dp=4") == {"data_parallel_size": 4}
