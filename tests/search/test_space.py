import itertools
from collections import deque
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.core.errors import InvalidInputError
from planner.domain.job import Job
from planner.domain.strategy import (
    FIELDS,
    Layout,
    Offload,
    PipelineSchedule,
    Recompute,
    Table,
    divisors,
    num_rows,
    rows,
    vary,
)
from planner.search.limits import legal
from planner.search.local_sgd import INTERVALS
from planner.search.space import MOST_BASES, strategies, tables

MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
Row = tuple[Any, ...]


def rows_of(table: Table) -> list[Row]:
    columns = [getattr(table, name) for name in FIELDS]
    return [tuple(column[row].item() for column in columns) for row in range(num_rows(table))]


def by_brute_force(job: Job) -> set[Row]:
    """Try every combination of every value, and keep what breaks no limit."""
    world = divisors(job.cluster.world_size)
    batch = divisors(job.recipe.global_batch_size)
    schedules = job.framework.capabilities.pipeline_schedules or ("1f1b",)
    numbers = [PipelineSchedule(each) for each in schedules]
    names = ("replicate", "shard", "tensor", "pipeline", "context")
    sizes = [
        each
        for each in itertools.product(world, repeat=len(names))
        if np.prod(each) == job.cluster.world_size
    ]
    chunks = divisors(job.model.num_blocks)
    others = itertools.product(batch, batch, (1, 2, 4, 8), range(4), numbers, chunks)
    combined = [(*size, *other) for size, other in itertools.product(sizes, others)]
    others_names = ("micro_batch", "steps", "expert", "stage", "schedule", "virtual")
    values = zip(*combined, strict=True)
    column = {n: np.array(v) for n, v in zip((*names, *others_names), values, strict=True)}
    table = vary(
        Layout(),
        data_parallel_replicate_size=column["replicate"],
        data_parallel_shard_size=column["shard"],
        tensor_parallel_size=column["tensor"],
        pipeline_parallel_size=column["pipeline"],
        virtual_pipeline_size=column["virtual"],
        pipeline_schedule=column["schedule"],
        context_parallel_size=column["context"],
        expert_parallel_size=column["expert"],
        zero_stage=column["stage"],
        micro_batch_size=column["micro_batch"],
        gradient_accumulation_steps=column["steps"],
    )
    return set(rows_of(rows(table, legal(job, table))))


def plain(found: list[Row]) -> set[Row]:
    """Return the rows without recompute, offload, sequence parallelism, local SGD and whole experts."""
    names = FIELDS
    blank = {"recompute": Recompute.NONE, "offload": Offload.NONE, "sequence_parallel": False}
    blank |= {"synchronize_every": 1, "expert_tensor_parallel_size": 0}
    return {
        row
        for row in found
        if all(row[names.index(name)] == value for name, value in blank.items())
    }


@pytest.mark.parametrize(
    ("model", "framework", "gpus", "nodes"),
    [
        ("gpt2", "torch", 4, 1),
        ("gpt2", "torchtitan", 2, 2),
        (MIXTRAL, "megatron", 4, 1),
        (MIXTRAL, "deepspeed", 2, 2),
        ("gpt2", "accelerate", 6, 1),
    ],
)
def test_the_space_is_all_that_breaks_no_limit(
    make_job: JobMaker, model: str, framework: str, gpus: int, nodes: int
) -> None:
    recipe = {"global_batch_size": 12, "sequence_length": 1024, "framework": framework}
    job = make_job(model, gpus=gpus, cluster={"nodes": nodes}, recipe=recipe)
    found = rows_of(strategies(job))
    assert len(set(found)) == len(found)
    expected = {row for row in by_brute_force(job) if is_searched(row)}
    assert plain(found) == expected


@pytest.mark.parametrize(("framework", "is_able"), [("megatron", True), ("deepspeed", False)])
def test_experts_stay_whole_where_all_else_is_cut(
    make_job: JobMaker, framework: str, *, is_able: bool
) -> None:
    recipe = {"global_batch_size": 12, "sequence_length": 1024, "framework": framework}
    table = strategies(make_job(MIXTRAL, gpus=4, recipe=recipe))
    whole = table.expert_tensor_parallel_size == 1
    is_cut = (table.tensor_parallel_size > 1) & (table.expert_parallel_size > 1)
    assert np.any(whole) == is_able
    assert not np.any(whole & ~is_cut)
    assert np.all(table.expert_tensor_parallel_size[~whole] == 0)


def is_searched(row: Row) -> bool:
    """Leave out what the search leaves out on purpose: dominated schedules, shards of one rank.

    Without a pipeline all schedules are the same, and shards over a single rank are none.
    """
    s = Layout(**dict(zip(FIELDS, row, strict=True)))
    if s.pipeline_parallel_size == 1:
        is_alone = (s.pipeline_schedule, s.virtual_pipeline_size) == (
            PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
            1,
        )
        if not is_alone:
            return False
    elif s.pipeline_schedule in {PipelineSchedule.NAIVE, PipelineSchedule.GPIPE}:
        return False
    if s.zero_stage == 0:
        return True
    ranks = s.data_parallel_size
    if ranks * s.context_parallel_size == 1:
        return False
    return bool(s.data_parallel_shard_size > 1 or ranks == 1) and (
        s.zero_stage > 1 or s.data_parallel_replicate_size == 1
    )


def test_each_base_has_every_kind_of_recompute_and_what_it_can_have_besides(
    make_job: JobMaker,
) -> None:
    job = make_job("gpt2", gpus=2, recipe={"global_batch_size": 2})
    table = strategies(job, {"zero_stage": 0, "micro_batch_size": 1})
    found = {
        (s.family, s.recompute, s.sequence_parallel, s.synchronize_every) for s in layouts(table)
    }
    kinds = tuple(Recompute)
    data = {("ddp", k, False, 1) for k in kinds}
    local = {("local-sgd", k, False, every) for k in kinds for every in INTERVALS}
    tensor = {("tp", k, sp, 1) for k in kinds for sp in (False, True)}
    others = {(name, k, False, 1) for name in ("pp", "cp") for k in kinds}
    assert found == data | local | tensor | others


def test_offload_is_there_from_the_stage_that_has_shards(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 4, "framework": "deepspeed"}
    table = strategies(make_job("gpt2", gpus=4, recipe=recipe))
    stages: dict[str, set[int]] = {}
    for s in layouts(table):
        stages.setdefault(s.offload.value, set()).add(s.zero_stage)
    assert stages == {
        "none": {0, 1, 2, 3},
        "optimizer": {1, 2, 3},
        "optimizer+parameters": {3},
    }


def layouts(table: Table) -> list[Layout]:
    return [table.at(row) for row in range(num_rows(table))]


def test_one_gpu_has_nothing_to_divide_but_may_offload(make_job: JobMaker) -> None:
    families = {
        "torch": {"ddp", "zero-2+offload", "zero-3+offload"},
        "deepspeed": {"ddp", "zero-1+offload", "zero-2+offload", "zero-3+offload"},
        "composer": {"ddp"},
    }
    for framework, expected in families.items():
        recipe = {"global_batch_size": 4, "framework": framework}
        table = strategies(make_job(gpus=1, recipe=recipe))
        assert {s.family for s in layouts(table)} == expected


def test_states_of_one_data_parallel_rank_are_offloaded(make_job: JobMaker) -> None:
    """Megatron-LM's optimizer offload goes with tensor parallelism over all GPUs."""
    job = make_job("gpt2", recipe={"global_batch_size": 4, "framework": "megatron"})
    table = strategies(job, {"tensor_parallel_size": 4})
    found = {(s.zero_stage, s.data_parallel_shard_size, s.offload) for s in layouts(table)}
    assert found == {(0, 1, Offload.NONE), (1, 1, Offload.OPTIMIZER)}


@pytest.mark.parametrize(
    "wish",
    [
        {"zero_stage": 3, "recompute": Recompute.FULL, "pipeline_parallel_size": 1},
        {"tensor_parallel_size": 2, "sequence_parallel": True},
        {"pipeline_parallel_size": 2, "pipeline_schedule": PipelineSchedule.GPIPE},
        {"data_parallel_shard_size": 2, "zero_stage": 2},
        {"synchronize_every": 2},
        {"context_parallel_size": 2, "micro_batch_size": 4},
    ],
)
def test_a_wish_keeps_only_its_rows(make_job: JobMaker, wish: dict[str, Any]) -> None:
    table = strategies(make_job(recipe={"global_batch_size": 16}), wish)
    assert num_rows(table) > 0
    for name, value in wish.items():
        assert set(getattr(table, name).tolist()) == {value}


def test_a_wish_that_nothing_meets_leaves_nothing(make_job: JobMaker) -> None:
    job = make_job(recipe={"global_batch_size": 16})
    for wish in ({"micro_batch_size": 3}, {"tensor_parallel_size": 5}, {"zero_stage": 7}):
        assert num_rows(strategies(job, wish)) == 0


def test_encoders_are_not_divided(make_job: JobMaker) -> None:
    table = strategies(make_job("google-bert/bert-base-uncased", gpus=4))
    assert {s.family for s in layouts(table)} <= {
        "ddp",
        "zero-1",
        "zero-2",
        "zero-3",
        "hsdp",
        "local-sgd",
        "zero-2+offload",
        "zero-3+offload",
        "hsdp+offload",
    }


def test_tables_hold_the_same_rows_in_pieces(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, cluster={"nodes": 64}, gpu="h100")
    pieces = list(tables(job))
    assert len(pieces) > 1
    assert sum(num_rows(piece) for piece in pieces) == num_rows(strategies(job))
    assert np.all([num_rows(piece) < 2**16 for piece in pieces])


def test_more_layouts_than_can_be_looked_at_are_refused_with_a_way_out(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron", "global_batch_size": 14_414_400, "sequence_length": 4096}
    model = "deepseek-ai/DeepSeek-V3"
    cluster = {"nodes": 1024, "intra_node": "nvlink-4"}
    job = make_job(model, gpus=60, gpu="h100", cluster=cluster, recipe=recipe)
    with pytest.raises(InvalidInputError) as caught:
        deque(tables(job), maxlen=0)
    assert "--micro-batch-size 1" in caught.value.hint
    table = strategies(
        job, {"micro_batch_size": 1, "tensor_parallel_size": 4, "recompute": Recompute.FULL}
    )
    assert 0 < num_rows(table) < MOST_BASES


@pytest.mark.parametrize(
    ("length", "sizes"), [(100, {1}), (512, {1, 2}), (768, {1, 2}), (1024, {1, 2, 4})]
)
def test_a_rank_of_a_sequence_has_two_tiles(
    make_job: JobMaker, length: int, sizes: set[int]
) -> None:
    recipe = {"framework": "megatron", "global_batch_size": 8, "sequence_length": length}
    job = make_job(gpus=8, recipe=recipe)
    assert set(strategies(job).context_parallel_size.tolist()) == sizes
