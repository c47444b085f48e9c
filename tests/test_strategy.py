import pytest
from conftest import JobMaker
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidInputError
from planner.strategy import Strategy, divisors, nearest_multiples, num_rows, strategies


@given(st.integers(1, 5000))
def test_divisors_are_all_that_divide(number: int) -> None:
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_every_layout_splits_the_batch_exactly(make_job: JobMaker) -> None:
    job = make_job(gpus=6, recipe={"global_batch_size": 144})
    table = strategies(job)
    for row in range(num_rows(table)):
        s = table.at(row)
        assert s.data_parallel_size == 6
        assert s.micro_batch_size * s.gradient_accumulation_steps * s.data_parallel_size == 144


def test_the_table_holds_every_stage_micro_batch_and_recompute_once(make_job: JobMaker) -> None:
    table = strategies(make_job(gpus=4, recipe={"global_batch_size": 16}))
    rows = {
        (s.zero_stage, s.micro_batch_size, s.recompute)
        for s in (table.at(row) for row in range(num_rows(table)))
    }
    assert len(rows) == num_rows(table) == 4 * 3 * 2


def test_one_gpu_has_nothing_to_shard(make_job: JobMaker) -> None:
    table = strategies(make_job(gpus=1, recipe={"global_batch_size": 4}))
    assert set(table.zero_stage.tolist()) == {0}


def test_a_wish_keeps_only_its_rows(make_job: JobMaker) -> None:
    job = make_job(recipe={"global_batch_size": 16})
    table = strategies(job, {"zero_stage": 3, "recompute": "full", "pipeline_parallel_size": 1})
    assert set(table.zero_stage.tolist()) == {3}
    assert set(table.recompute.tolist()) == {"full"}
    assert num_rows(strategies(job, {"micro_batch_size": 3})) == 0


def test_a_batch_that_does_not_divide_names_the_nearest_that_do(make_job: JobMaker) -> None:
    with pytest.raises(InvalidInputError) as caught:
        strategies(make_job(gpus=4, recipe={"global_batch_size": 10}))
    assert caught.value.field == "recipe.global_batch_size"
    assert "8 or 12" in caught.value.hint
    assert nearest_multiples(3, 8).endswith("nearest: 8")


def test_families_are_named_by_stage() -> None:
    assert [Strategy(zero_stage=s).family for s in range(4)] == [
        "ddp",
        "zero-1",
        "zero-2",
        "zero-3",
    ]
