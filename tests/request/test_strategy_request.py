from typing import Any

import pytest
from conftest import JobMaker

from planner.core.errors import InvalidInputError, InvalidRequestError, UnsupportedError
from planner.domain.strategy import Offload
from planner.request.schema import parse_request
from planner.request.sections import StrategyRequest
from planner.request.strategy import pinned_fields, requested_layout

BATCH = {"global_batch_size": 16}


def strategy(**fields: Any) -> StrategyRequest:
    return StrategyRequest.model_validate(fields)


def test_nothing_said_is_plain_data_parallelism(make_job: JobMaker) -> None:
    s = requested_layout(None, make_job(recipe=BATCH))
    assert (s.family, s.data_parallel_size, s.micro_batch_size) == ("ddp", 4, 1)
    assert s.gradient_accumulation_steps == 4


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_zero_stage_shards_over_all_gpus(make_job: JobMaker, stage: int) -> None:
    s = requested_layout(strategy(zero_stage=stage), make_job(recipe=BATCH))
    assert (s.data_parallel_replicate_size, s.data_parallel_shard_size) == (1, 4)


def test_batch_parts_are_derived_from_each_other(make_job: JobMaker) -> None:
    job = make_job(recipe=BATCH)
    assert requested_layout(strategy(micro_batch_size=2), job).gradient_accumulation_steps == 2
    assert requested_layout(strategy(gradient_accumulation_steps=2), job).micro_batch_size == 2


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
        requested_layout(strategy(**fields), make_job(recipe=BATCH))
    assert caught.value.field == field


def test_local_sgd_is_for_whole_replicas(make_job: JobMaker) -> None:
    job = make_job(recipe=BATCH)
    assert requested_layout(strategy(synchronize_every=8), job).synchronize_every == 8
    for divided in ({"zero_stage": 1}, {"tensor_parallel_size": 2}):
        with pytest.raises(InvalidInputError) as caught:
            requested_layout(strategy(synchronize_every=8, **divided), job)
        assert caught.value.field == "strategy.synchronize_every"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tensor_parallel_size": 8}, "strategy.tensor_parallel_size"),
        ({"expert_parallel_size": 2}, "strategy.expert_parallel_size"),
        ({"context_parallel_size": 3}, "strategy.context_parallel_size"),
        ({"pipeline_parallel_size": 16}, "strategy.pipeline_parallel_size"),
        ({"pipeline_parallel_size": 3}, "strategy"),
    ],
)
def test_sizes_divide_the_model_and_the_cluster(
    make_job: JobMaker, fields: dict[str, Any], field: str
) -> None:
    """gpt2 has 12 heads, 12 layers and no experts; the cluster 4 GPUs."""
    with pytest.raises(InvalidInputError) as caught:
        requested_layout(strategy(**fields), make_job(recipe=BATCH | {"sequence_length": 1024}))
    assert caught.value.field == field


def test_only_decoders_are_split(make_job: JobMaker) -> None:
    with pytest.raises(UnsupportedError) as caught:
        requested_layout(
            strategy(tensor_parallel_size=2), make_job("google-t5/t5-small", recipe=BATCH)
        )
    assert caught.value.field == "strategy"


def test_shards_may_be_replicated(make_job: JobMaker) -> None:
    hybrid = strategy(zero_stage=3, data_parallel_replicate_size=2, data_parallel_shard_size=2)
    s = requested_layout(hybrid, make_job(recipe=BATCH))
    assert (s.data_parallel_replicate_size, s.data_parallel_shard_size) == (2, 2)


@pytest.mark.parametrize(
    ("framework", "offload", "stage"),
    [
        ("torch", "optimizer+parameters", 2),
        ("torchtitan", "optimizer+parameters", 3),
        ("deepspeed", "optimizer", 1),
        ("deepspeed", "optimizer+parameters", 3),
        ("megatron", "optimizer", 1),
    ],
)
def test_offload_passes_where_the_framework_has_it(
    make_job: JobMaker, framework: str, offload: str, stage: int
) -> None:
    job = make_job(recipe=BATCH | {"framework": framework, "precision": "bf16-mixed"})
    assert requested_layout(strategy(zero_stage=stage, offload=offload), job).offload == Offload(
        offload
    )


@pytest.mark.parametrize(
    ("framework", "offload", "hint"),
    [
        (
            "torch",
            "optimizer",
            "deepspeed, megatron can: --framework deepspeed; torch knows optimizer+parameters",
        ),
        ("composer", "optimizer", "deepspeed, megatron can: --framework deepspeed"),
        ("megatron", "optimizer+parameters", "megatron knows optimizer"),
    ],
)
def test_an_offload_that_a_framework_lacks_names_those_that_have_it(
    make_job: JobMaker, framework: str, offload: str, hint: str
) -> None:
    job = make_job(recipe=BATCH | {"framework": framework, "precision": "bf16-mixed"})
    with pytest.raises(UnsupportedError) as caught:
        requested_layout(strategy(zero_stage=3, offload=offload), job)
    assert caught.value.hint.endswith(hint)
    assert caught.value.field == "strategy.offload"


@pytest.mark.parametrize(
    ("framework", "offload", "stage", "least"),
    [
        ("torch", "optimizer+parameters", 1, 2),
        ("deepspeed", "optimizer", 0, 1),
        ("deepspeed", "optimizer+parameters", 2, 3),
    ],
)
def test_offload_needs_shards(
    make_job: JobMaker, framework: str, offload: str, *, stage: int, least: int
) -> None:
    job = make_job(recipe=BATCH | {"framework": framework, "precision": "bf16-mixed"})
    with pytest.raises(InvalidInputError) as caught:
        requested_layout(strategy(zero_stage=stage, offload=offload), job)
    assert caught.value.hint == f"use zero_stage {least} or more"


def test_a_partial_wish_holds_only_what_was_said() -> None:
    assert pinned_fields(None) == {}
    given = {"zero_stage": 2, "tensor_parallel_size": 1}
    assert pinned_fields(strategy(**given)) == given
    assert pinned_fields(strategy(zero_stage=None, micro_batch_size=4)) == {"micro_batch_size": 4}


@pytest.mark.parametrize(
    ("name", "hint"), [("1f1", "did you mean 1f1b"), ("\x00", "one of naive, gpipe, 1f1b")]
)
def test_an_unknown_schedule_names_the_known_ones(name: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        pinned_fields(strategy(pipeline_schedule=name))
    assert caught.value.field == "strategy.pipeline_schedule"
    assert hint in caught.value.hint


@pytest.mark.parametrize("size", [2**20 + 1, 2**63, 10**25])
def test_sizes_beyond_any_cluster_are_refused(size: int) -> None:
    for name in StrategyRequest.model_fields:
        if name.endswith(("_size", "_steps")) or name == "synchronize_every":
            with pytest.raises(InvalidRequestError) as caught:
                parse_request({"model": "gpt2", "strategy": {name: size}})
            assert caught.value.problems[0].field == f"strategy.{name}"


def test_the_largest_sizes_are_judged_without_overflow(make_job: JobMaker) -> None:
    job = make_job(gpus=4)
    sizes = [name for name in StrategyRequest.model_fields if name.endswith("_size")]
    wish = strategy(**dict.fromkeys(sizes, 2**20))
    with pytest.raises(InvalidInputError):
        requested_layout(wish, job)
