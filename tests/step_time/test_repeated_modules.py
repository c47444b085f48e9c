"""Single modules of a block recompute: what each computes, exchanges and launches once more."""

from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import Layout, Recompute, Strategy, vary
from planner.step_time import host, recomputed_modules
from planner.step_time.micro_batch import MicroBatch, Spent, part_seconds

LLAMA, HIDDEN, INNER = "meta-llama/Llama-3.1-8B", 4096, 14336


def layout(*modules: str, **sizes: Any) -> Layout:
    sizes = {"data_parallel_shard_size": 8, "zero_stage": 1, **sizes}
    return Layout(recompute=Recompute.SELECTIVE, recompute_modules=number_of(modules), **sizes)


def made(make_job: JobMaker, model: str = LLAMA, **recipe: Any) -> Job:
    recipe = {"framework": "megatron", "attention": "flash", "global_batch_size": 8, **recipe}
    return make_job(model, gpus=8, recipe={"sequence_length": 4096, **recipe})


def seconds(job: Job, s: Layout) -> MicroBatch:
    return part_seconds(job, s, job.model.blocks[-1])


def test_an_mlp_runs_its_matmuls_and_its_exchange_once_more(make_job: JobMaker) -> None:
    job = made(make_job, tensor_parallel_overlap=False)
    sizes = {"tensor_parallel_size": 8, "sequence_parallel": True, "data_parallel_shard_size": 1}
    usual, again = seconds(job, layout("core_attn", **sizes)), seconds(job, layout("mlp", **sizes))
    attention = usual.of(Spent.RECOMPUTE)
    assert attention > 0
    repeated = again.of(Spent.RECOMPUTE)
    whole = usual.of(Spent.FORWARD_MATMULS) + usual.of(Spent.FORWARD_ELEMENTWISE)
    of_mlp = 3 * INNER / (3 * INNER + 2 * HIDDEN + 2 * HIDDEN / 4)
    assert of_mlp * usual.of(Spent.FORWARD_MATMULS) * 0.9 < repeated < whole
    # Attention and MLP exchange as much, in forward and in backward.
    assert again.of(Spent.TENSOR) == pytest.approx(1.25 * usual.of(Spent.TENSOR))


def test_a_mixture_exchanges_its_tokens_once_more_and_its_activation_does_not(
    make_job: JobMaker,
) -> None:
    job = made(make_job, "mistralai/Mixtral-8x7B-v0.1")
    usual = seconds(job, layout(expert_parallel_size=8)).of(Spent.EXPERT)
    assert usual > 0
    moe, activation = (
        seconds(job, layout(name, expert_parallel_size=8)).of(Spent.EXPERT)
        for name in ("moe", "moe_act")
    )
    assert moe == pytest.approx(1.5 * usual)
    assert activation == usual


def test_repeated_modules_are_launched_again(make_job: JobMaker) -> None:
    job = made(make_job)
    (block,) = job.model.blocks
    usual, mlp, norm = (
        float(host.launches(job, layout(*modules), block))
        for modules in ([], ["mlp"], ["layernorm"])
    )
    assert mlp > usual
    assert norm == usual


def test_rows_that_repeat_no_module_exchange_and_compute_none_again(make_job: JobMaker) -> None:
    job = made(make_job, "mistralai/Mixtral-8x7B-v0.1")
    s = layout("moe", tensor_parallel_size=4, expert_parallel_size=2, data_parallel_shard_size=2)
    table = vary(s, recompute_modules=np.array([0, s.recompute_modules]))
    (block,) = job.model.blocks

    def spent(rows: Strategy) -> tuple[Amount, ...]:
        computed = recomputed_modules.compute_again(job, rows, block, Numerics.HALF)
        return (computed, *recomputed_modules.exchanges_again(job, rows, block))

    for both, alone in zip(spent(table), spent(s), strict=True):
        assert float(alone) > 0
        assert np.asarray(both).tolist() == pytest.approx([0.0, float(alone)])
