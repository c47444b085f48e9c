"""Some of a stage's blocks recompute: memory and time lie between none and all."""

from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.core.errors import InvalidInputError
from planner.domain.job import Job
from planner.domain.strategy import ALL_LAYERS, Layout, Recompute
from planner.memory.activations import activations
from planner.memory.host import estimate_host_memory
from planner.parallel.activations import block_retained_bytes, part_kept_bytes
from planner.parallel.partition import recomputed_share, stage
from planner.search.candidate import estimate
from planner.search.limits import check
from planner.search.pinned_fields import simplest_layout
from planner.search.space import strategies

LLAMA = "meta-llama/Llama-3.1-8B"
LAYOUT = Layout(data_parallel_shard_size=8, zero_stage=3, recompute=Recompute.FULL)


def test_a_quarter_of_the_blocks_keeps_three_quarters_whole(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 8})
    some = replace(LAYOUT, recompute_layers=8)
    (block,) = job.model.blocks
    kept = activations(job, some, stage(job, some, 0)).last_block.value
    checkpoint = block_retained_bytes(job, LAYOUT, block)
    assert kept == pytest.approx(8 * checkpoint + 24 * part_kept_bytes(job, LAYOUT, block))


@pytest.mark.parametrize("layers", [1, 16, 31])
def test_some_layers_lie_between_none_and_all(make_job: JobMaker, layers: int) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 8})
    none, some, every = (
        estimate(job, each)
        for each in (
            replace(LAYOUT, recompute=Recompute.NONE),
            replace(LAYOUT, recompute_layers=layers),
            LAYOUT,
        )
    )
    assert every.memory.peak_bytes < some.memory.peak_bytes < none.memory.peak_bytes
    steps = [each.step_time.step_seconds for each in (none, some, every)]
    assert steps == sorted(steps)
    assert len(set(map(float, steps))) == 3


def test_more_layers_than_a_stage_has_are_all_of_them(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    assert recomputed_share(job, replace(LAYOUT, recompute_layers=99)) == 1
    piped = Layout(pipeline_parallel_size=8, recompute_layers=1)
    assert recomputed_share(job, piped) == pytest.approx(1 / 4)


def test_layers_without_recompute_are_refused(make_job: JobMaker) -> None:
    job = make_job(gpus=1)
    with pytest.raises(InvalidInputError, match="recompute_layers 4 "):
        check(job, simplest_layout(job, {"recompute_layers": 4}))


def test_a_search_holds_the_layers_that_are_asked_for(make_job: JobMaker) -> None:
    job = make_job(gpus=2, recipe={"global_batch_size": 4})
    table = strategies(job, {"recompute_layers": 4})
    assert set(table.recompute_layers.tolist()) == {4}
    assert Recompute.NONE not in table.recompute
    assert set(strategies(job).recompute_layers.tolist()) == {ALL_LAYERS}


def test_the_contract_writes_all_layers_as_null() -> None:
    assert LAYOUT.contract()["recompute_layers"] is None
    assert replace(LAYOUT, recompute_layers=3).contract()["recompute_layers"] == 3


def test_activations_in_host_memory_leave_two_blocks_on_the_gpu(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 8, "sequence_length": 131_072})
    away = replace(LAYOUT, activation_offload_layers=32)
    state = 131_072 * 4096 * 2
    first = stage(job, away, 0)
    assert activations(job, away, first).last_block.value == 2 * state
    assert activations(job, LAYOUT, first).last_block.value == 32 * state
    host = {term.name: term.amount for term in estimate_host_memory(job, away).terms}
    assert host["host_activations"] == 8 * 32 * state


def test_copies_take_time_where_compute_does_not_hide_them(make_job: JobMaker) -> None:
    # With a stream for the copies; PyTorch's own save_on_cpu has none.
    recipe = {"global_batch_size": 64, "framework": "deepspeed"}
    slow = make_job(LLAMA, gpus=8, gpu="rtx-4090", recipe={**recipe, "sequence_length": 512})
    fast = make_job(LLAMA, gpus=8, gpu="h100", recipe={**recipe, "sequence_length": 131_072})

    def exposed(job: Job, recompute: Recompute) -> float:
        away = replace(
            LAYOUT,
            recompute=recompute,
            gradient_accumulation_steps=8,
            activation_offload_layers=32,
        )
        terms = {term.name: float(term.amount) for term in estimate(job, away).step_time.terms}
        return terms["activation_offload"]

    assert exposed(slow, Recompute.NONE) > 0
    assert exposed(fast, Recompute.FULL) == 0
