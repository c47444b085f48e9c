from typing import Any

import pytest
from conftest import JobMaker

from planner.errors import InvalidInputError, UnsupportedError
from planner.layout import partial_wish, whole_strategy
from planner.request import StrategyRequest

BATCH = {"global_batch_size": 16}


def wish(**fields: Any) -> StrategyRequest:
    return StrategyRequest.model_validate(fields)


def test_nothing_said_is_plain_data_parallelism(make_job: JobMaker) -> None:
    s = whole_strategy(None, make_job(recipe=BATCH))
    assert (s.family, s.data_parallel_size, s.micro_batch_size) == ("ddp", 4, 1)
    assert s.gradient_accumulation_steps == 4


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_zero_stage_shards_over_all_gpus(make_job: JobMaker, stage: int) -> None:
    s = whole_strategy(wish(zero_stage=stage), make_job(recipe=BATCH))
    assert (s.data_parallel_replicate_size, s.data_parallel_shard_size) == (1, 4)


def test_batch_parts_are_derived_from_each_other(make_job: JobMaker) -> None:
    job = make_job(recipe=BATCH)
    assert whole_strategy(wish(micro_batch_size=2), job).gradient_accumulation_steps == 2
    assert whole_strategy(wish(gradient_accumulation_steps=2), job).micro_batch_size == 2


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"micro_batch_size": 3}, "recipe.global_batch_size"),
        ({"micro_batch_size": 2, "gradient_accumulation_steps": 3}, "recipe.global_batch_size"),
        ({"data_parallel_replicate_size": 3}, "strategy"),
        (
            {"data_parallel_shard_size": 4, "data_parallel_replicate_size": 1},
            "strategy.data_parallel_shard_size",
        ),
    ],
)
def test_sums_that_do_not_add_up_are_errors(
    make_job: JobMaker, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        whole_strategy(wish(**fields), make_job(recipe=BATCH))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tensor_parallel_size": 2}, "strategy.tensor_parallel_size"),
        ({"pipeline_parallel_size": 4}, "strategy.pipeline_parallel_size"),
        ({"context_parallel_size": 2}, "strategy.context_parallel_size"),
        ({"expert_parallel_size": 2}, "strategy.expert_parallel_size"),
        ({"offload": "optimizer"}, "strategy.offload"),
        ({"synchronize_every": 8}, "strategy.synchronize_every"),
        ({"recompute": "selective"}, "strategy.recompute"),
        (
            {"zero_stage": 3, "data_parallel_replicate_size": 2, "data_parallel_shard_size": 2},
            "strategy.data_parallel_replicate_size",
        ),
    ],
)
def test_what_is_not_estimated_yet_is_said(
    make_job: JobMaker, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        whole_strategy(wish(**fields), make_job(recipe=BATCH))
    assert caught.value.field == field


def test_a_partial_wish_holds_only_what_was_said() -> None:
    assert partial_wish(None) == {}
    assert partial_wish(wish(zero_stage=2, tensor_parallel_size=1)) == {"zero_stage": 2}
    assert partial_wish(wish(zero_stage=None, micro_batch_size=4)) == {"micro_batch_size": 4}
    with pytest.raises(UnsupportedError):
        partial_wish(wish(tensor_parallel_size=2))
