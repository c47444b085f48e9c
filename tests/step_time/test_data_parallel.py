from dataclasses import replace

import numpy as np
import pytest
from conftest import JobMaker

from planner.core.term import Quantity
from planner.domain.strategy import Layout, vary
from planner.parallel.partition import stage
from planner.step_time import communication, data_parallel

LLAMA = "meta-llama/Llama-2-7b-hf"
DDP = Layout(data_parallel_replicate_size=8)
ZERO_1 = Layout(data_parallel_shard_size=8, zero_stage=1)
ZERO_3 = Layout(data_parallel_shard_size=8, zero_stage=3, gradient_accumulation_steps=4)
LONG, NEVER = 1e6, 0.0


def test_a_long_backward_hides_all_but_the_tail(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    at = stage(job, DDP, 0)
    covered = data_parallel.reduction(job, DDP, at, LONG)
    assert covered.exposed == pytest.approx(covered.seconds / 33)
    assert covered.hidden == pytest.approx(covered.seconds - covered.exposed)
    bare = data_parallel.reduction(job, DDP, at, NEVER)
    assert bare.exposed == pytest.approx(bare.seconds)
    assert bare.hidden == 0


def test_megatron_reduces_after_backward_unless_it_shards_the_optimizer(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"framework": "megatron"})
    after, during = (data_parallel.reduction(job, s, stage(job, s, 0), LONG) for s in (DDP, ZERO_1))
    assert after.exposed == pytest.approx(after.seconds)
    assert during.exposed < during.seconds / 30


def test_a_gather_in_backward_takes_the_link_from_the_reduction(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    at = stage(job, ZERO_3, 0)
    gather = float(communication.gather_parameters(job, ZERO_3, at))
    busy = gather / job.framework.overlap.backward_fraction
    assert data_parallel.reduction(job, ZERO_3, at, busy).exposed == pytest.approx(
        data_parallel.reduction(job, ZERO_3, at, busy).seconds
    )


def test_zero_3_gathers_for_forward_and_backward_of_every_micro_batch(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 32})
    at = stage(job, ZERO_3, 0)
    once = float(communication.gather_parameters(job, ZERO_3, at))
    bare = data_parallel.gather(job, ZERO_3, at, NEVER, NEVER)
    assert bare.times == 4
    assert bare.seconds == bare.exposed == pytest.approx(2 * once)
    covered = data_parallel.gather(job, ZERO_3, at, LONG, LONG)
    assert covered.exposed == pytest.approx(once / 33)
    zero_2 = replace(ZERO_3, zero_stage=2)
    assert data_parallel.gather(job, zero_2, at, NEVER, NEVER).exposed == pytest.approx(once)


def test_each_pass_of_zero_3_hides_its_own_gather(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    at = stage(job, ZERO_3, 0)
    once = float(communication.gather_parameters(job, ZERO_3, at))
    half = once / 2 / job.framework.overlap.backward_fraction
    for forward, backward, exposed in (
        (NEVER, half, 1 + 1 / 2),
        (half, NEVER, 1 / 2 + 1),
        (NEVER, LONG, 1),
        (LONG, NEVER, 1 / 33 + 1),
    ):
        gathered = data_parallel.gather(job, ZERO_3, at, forward, backward)
        assert gathered.exposed == pytest.approx(exposed * once)


def test_zero_1_gathers_after_its_step_and_ddp_never(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    at = stage(job, ZERO_1, 0)
    once = float(communication.gather_parameters(job, ZERO_1, at))
    exposed = data_parallel.gather(job, ZERO_1, at, LONG, LONG).exposed
    assert exposed == pytest.approx(once * 8 / 7)  # PyTorch's: a broadcast by each rank in turn
    megatron = make_job(LLAMA, gpus=8, recipe={"framework": "megatron"})
    gathered = data_parallel.gather(megatron, ZERO_1, at, LONG, LONG).exposed
    assert gathered == pytest.approx(float(communication.gather_parameters(megatron, ZERO_1, at)))
    assert data_parallel.gather(job, DDP, at, LONG, LONG).exposed == 0


def test_local_sgd_averages_now_and_then(make_job: JobMaker) -> None:
    job = make_job(gpus=8)
    column = vary(DDP, synchronize_every=np.array([1, 4, 16]))
    average = data_parallel.reduction(job, column, stage(job, DDP, 0), NEVER)
    exposed, sizes = np.asarray(average.exposed), np.asarray(average.size_bytes)
    assert exposed[1] == pytest.approx(4 * exposed[2])
    assert exposed[0] > exposed[1] > 0
    assert sizes[1] == pytest.approx(4 * sizes[2])


def test_the_ledger_says_what_is_hidden_and_what_it_costs(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    at = stage(job, DDP, 0)
    reduced = data_parallel.reduction(job, DDP, at, LONG)
    gathered = data_parallel.gather(job, DDP, at, LONG, LONG)
    term = data_parallel.slowdown_term(job, DDP, reduced, gathered)
    assert term.amount == pytest.approx(0.1 * reduced.hidden)
    assert "beside compute" in term.how
    said = data_parallel.reduction_term(job, DDP, reduced)
    spent, moved, _, pace = (each.number for each in said.note if isinstance(each, Quantity))
    assert moved / pace == pytest.approx(spent) == reduced.seconds
