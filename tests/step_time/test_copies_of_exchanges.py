"""What sequence parallelism exchanges is copied where the sequence is not the outermost dimension."""

from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.collectives import operations
from planner.domain.cluster import Group
from planner.domain.strategy import Layout
from planner.step_time import communication

LLAMA = "meta-llama/Llama-2-7b-hf"
S = Layout(tensor_parallel_size=4, sequence_parallel=True, micro_batch_size=2)
SIZE = 2 * 2 * 2048 * 4096
"""Bytes of the hidden states of two sequences."""


@pytest.mark.parametrize(
    ("framework", "micro_batch_size", "copies"),
    [("torchtitan", 2, 1), ("torch", 2, 1), ("torchtitan", 1, 0), ("megatron", 2, 0)],
)
def test_several_sequences_are_put_in_order_by_a_copy(
    make_job: JobMaker, framework: str, micro_batch_size: int, copies: int
) -> None:
    recipe = {"sequence_length": 2048, "framework": framework, "precision": "bf16-mixed"}
    job = make_job(LLAMA, gpus=8, recipe=recipe)
    size = SIZE * micro_batch_size // 2
    moved = (
        2 * size / (job.framework.memory_bound.hbm_fraction * job.cluster.gpu.hbm_bytes_per_second)
    )
    scatter = operations.reduce_scatter(job.cluster, Group(ranks=4), size)
    found = communication.scattered(job, replace(S, micro_batch_size=micro_batch_size))
    assert found == pytest.approx(scatter + copies * moved)


def test_a_block_copies_as_often_as_it_gathers_and_scatters(make_job: JobMaker) -> None:
    recipe = {"sequence_length": 2048, "framework": "torchtitan", "precision": "bf16-mixed"}
    job = make_job(LLAMA, gpus=8, recipe=recipe)
    memory = replace(job.framework.memory_bound, copies_exchanged=False)
    without = replace(job, framework=replace(job.framework, memory_bound=memory))
    block = job.model.blocks[0]
    more = communication.tensor_parallel(job, S, block) - communication.tensor_parallel(
        without, S, block
    )
    bandwidth = job.framework.memory_bound.hbm_fraction * job.cluster.gpu.hbm_bytes_per_second
    assert more == pytest.approx(4 * 2 * SIZE / bandwidth)


def test_compiled_the_sum_that_is_scattered_in_backward_is_written_in_order(
    make_job: JobMaker,
) -> None:
    recipe = {"sequence_length": 2048, "framework": "torchtitan", "compile": True}
    job = make_job(LLAMA, gpus=8, recipe=recipe)
    assert (
        communication.copied_to_scatter(job, S, SIZE)
        == communication.copied_after_gather(job, S, SIZE) / 2
        > 0
    )


def test_nothing_is_copied_where_ranks_add_up_whole_sequences(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"sequence_length": 2048, "framework": "torch"})
    whole = replace(S, sequence_parallel=False)
    summed = operations.all_reduce(job.cluster, Group(ranks=4), SIZE)
    block = job.model.blocks[0]
    assert communication.tensor_parallel(job, whole, block) == pytest.approx(2 * summed)
