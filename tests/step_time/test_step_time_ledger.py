from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.core.term import Quantity, Term, total
from planner.domain.strategy import (
    Layout,
    Offload,
    PipelineSchedule,
    Recompute,
    Strategy,
    tabulate,
    vary,
)
from planner.parallel import partition
from planner.search.candidate import estimate_rows
from planner.search.space import strategies
from planner.step_time import communication, vocabulary
from planner.step_time.compute import gemm
from planner.step_time.doubt import Cause, network_provenance
from planner.step_time.ledger import StepTime, estimate_step_time
from planner.step_time.micro_batch import pace
from planner.step_time.optimizer import newton_schulz
from planner.step_time.terms import COMMUNICATION


def ddp(ranks: int, **fields: Any) -> Layout:
    return Layout(data_parallel_replicate_size=ranks, **fields)


def term(time: StepTime, name: str) -> Term:
    return next(each for each in time.terms if each.name == name)


def amounts(time: StepTime) -> dict[str, float]:
    return {term.name: float(term.amount) for term in time.terms}


def test_terms_sum_to_the_step(make_job: JobMaker) -> None:
    job = make_job(gpu="4090")
    for candidate in estimate_rows(job, strategies(job)):
        time = candidate.step_time
        assert sum(amounts(time).values()) == pytest.approx(time.step_seconds)
        assert time.low_seconds < time.step_seconds < time.high_seconds


def test_ddp_reduces_gradients_once_per_step_whatever_the_accumulation(make_job: JobMaker) -> None:
    job = make_job(gpu="4090", recipe={"global_batch_size": 64})
    many = estimate_step_time(job, ddp(4, gradient_accumulation_steps=16))
    few = estimate_step_time(job, ddp(4, micro_batch_size=16))
    assert amounts(many)["gradient_reduction"] < 1.5 * amounts(few)["gradient_reduction"] + 0.2
    assert "1 x" in term(many, "gradient_reduction").how


def test_zero_3_gathers_and_scatters_every_micro_batch(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpu="4090", recipe={"global_batch_size": 64})
    sharded = Layout(data_parallel_shard_size=4, zero_stage=3, gradient_accumulation_steps=16)
    once = replace(sharded, micro_batch_size=16, gradient_accumulation_steps=1)
    slow, fast = (amounts(estimate_step_time(job, s)) for s in (sharded, once))
    assert slow["gradient_reduction"] > fast["gradient_reduction"]
    assert slow["parameter_gather"] > fast["parameter_gather"]


def test_zero_2_gathers_half_as_often_as_zero_3(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpu="4090", recipe={"global_batch_size": 4})
    stage_3 = Layout(data_parallel_shard_size=4, zero_stage=3)
    stage_2 = replace(stage_3, zero_stage=2)
    gathers = [amounts(estimate_step_time(job, s))["parameter_gather"] for s in (stage_2, stage_3)]
    assert 0 < gathers[0] < gathers[1]


def test_zero_1_pays_for_its_gather_after_the_step(make_job: JobMaker) -> None:
    job = make_job(recipe={"global_batch_size": 4})
    zero_1 = Layout(data_parallel_shard_size=4, zero_stage=1)
    assert amounts(estimate_step_time(job, zero_1))["parameter_gather"] > 0
    assert amounts(estimate_step_time(job, ddp(4)))["parameter_gather"] == 0


def test_one_gpu_communicates_nothing(make_job: JobMaker) -> None:
    time = amounts(estimate_step_time(make_job(gpus=1), ddp(1)))
    assert time["gradient_reduction"] == time["parameter_gather"] == 0


def test_recompute_repeats_the_blocks_forward(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, recipe={"global_batch_size": 8})
    plain = Layout(data_parallel_shard_size=8, zero_stage=3)
    without, with_it = (
        estimate_step_time(job, s) for s in (plain, replace(plain, recompute=Recompute.FULL))
    )
    assert 1.2 < float(with_it.step_seconds) / float(without.step_seconds) < 1.4
    assert with_it.model_flops_utilization < without.model_flops_utilization


def test_a_slow_link_costs_more_the_more_there_is_to_send(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 4, "sequence_length": 256}
    slowdowns = []
    for model in ("gpt2", "gpt2-xl"):
        slow = make_job(model, cluster={"intra_node": "pcie-3-x8"}, recipe=recipe)
        fast = make_job(model, recipe=recipe)
        times = [float(estimate_step_time(job, ddp(4)).step_seconds) for job in (slow, fast)]
        slowdowns.append(times[0] / times[1])
    assert 1 < slowdowns[0] < slowdowns[1]


def test_a_measured_link_narrows_the_range(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 4, "sequence_length": 128}
    widths = []
    for link in ({"bus_gb_per_s": 5.0}, "pcie-3-x8"):
        job = make_job("gpt2-xl", cluster={"intra_node": link}, recipe=recipe)
        time = estimate_step_time(job, ddp(4))
        exchanged = sum(each.amount for each in time.terms if each.name in COMMUNICATION)
        widths.append(time.doubts[Cause.NETWORK] / exchanged)
    assert widths[0] < widths[1]


def test_a_measured_machine_takes_its_curve_and_a_reduction_states_its_rate(
    make_job: JobMaker,
) -> None:
    job = make_job(recipe={"global_batch_size": 4})
    reduction = term(estimate_step_time(job, ddp(4)), "gradient_reduction")
    spent, moved, _, pace = (each.number for each in reduction.note if isinstance(each, Quantity))
    assert moved / pace == pytest.approx(spent)
    assert "a100_sxm" in reduction.source
    assert network_provenance(job) == "measured"


def test_utilisation_is_model_flops_over_peak(make_job: JobMaker) -> None:
    job = make_job(recipe={"global_batch_size": 4})
    time = estimate_step_time(job, ddp(4))
    flops = 3 * job.model.flops_per_token(1024) * 1024
    assert time.model_flops_utilization == pytest.approx(flops / time.step_seconds / 312e12)
    assert time.tokens_per_second_per_gpu == pytest.approx(1024 / time.step_seconds)


MEGATRON = {"framework": "megatron", "sequence_length": 2048, "global_batch_size": 64}


def test_a_pipeline_waits_for_its_other_stages_once(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, recipe=MEGATRON)
    s = Layout(pipeline_parallel_size=8, gradient_accumulation_steps=64)
    time = estimate_step_time(job, s)
    slowest = (amounts(time)["forward"] + amounts(time)["backward"]) / 64
    whole = amounts(time)["pipeline_bubble"] + slowest
    assert 7 * slowest < 8 * whole / 1.05
    assert "through all stages" in term(time, "pipeline_bubble").how
    assert whole == pytest.approx(float(pace(job, s)[0].seconds))
    assert "pipeline_bubble" not in amounts(estimate_step_time(job, ddp(8)))


def test_the_host_holds_up_every_micro_batch(make_job: JobMaker) -> None:
    job = make_job(gpus=1, recipe={"global_batch_size": 64})
    slow = replace(
        job,
        framework=replace(job.framework, host=replace(job.framework.host, micro_batch_seconds=1.0)),
    )
    steps = [
        float(estimate_step_time(each, ddp(1, gradient_accumulation_steps=64)).step_seconds)
        for each in (job, slow)
    ]
    waits = 64 * (1.0 - job.framework.host.micro_batch_seconds)
    assert steps[1] - steps[0] == pytest.approx(waits)


def test_part_of_backwards_exchange_hides_behind_weight_gradients(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, recipe=MEGATRON)
    s = Layout(tensor_parallel_size=8, gradient_accumulation_steps=64)
    hidden = job.framework.overlap.tensor_fraction
    assert 0 < hidden < 1
    whole = replace(
        job,
        framework=replace(
            job.framework, overlap=replace(job.framework.overlap, tensor_fraction=0.0)
        ),
    )
    exchanges = [
        amounts(estimate_step_time(each, s))["tensor_parallel_exchange"] for each in (job, whole)
    ]
    one_pass = sum(
        part.count * float(communication.tensor_parallel(job, s, part)) for part in job.model.blocks
    )
    head = job.model.parts[-1]
    of_head = vocabulary.exchanged(whole, s, head) - vocabulary.exchanged(job, s, head)
    assert of_head > 0
    assert exchanges[1] - exchanges[0] == pytest.approx(64 * (hidden * one_pass + float(of_head)))


def test_a_ring_hides_behind_attention_where_there_is_enough(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 1, "sequence_length": 131072, "framework": "megatron"}
    model = "meta-llama/Meta-Llama-3.1-8B"
    s = Layout(context_parallel_size=8)
    long = amounts(estimate_step_time(make_job(model, gpus=8, recipe=recipe), s))
    assert long["context_parallel_exchange"] == 0
    gathered = make_job(model, gpus=8, recipe=recipe | {"framework": "torch"})
    assert amounts(estimate_step_time(gathered, s))["context_parallel_exchange"] > 0
    slow = {"intra_node": {"bus_gb_per_s": 0.1}}
    job = make_job(model, gpus=8, recipe=recipe, cluster=slow)
    assert amounts(estimate_step_time(job, s))["context_parallel_exchange"] > 1


def test_experts_exchange_tokens_in_every_pass(make_job: JobMaker) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, recipe={"global_batch_size": 8})
    s = Layout(data_parallel_shard_size=8, zero_stage=3, expert_parallel_size=8)
    plain, again = (
        amounts(estimate_step_time(job, each))["expert_parallel_exchange"]
        for each in (s, replace(s, recompute=Recompute.FULL))
    )
    assert again == pytest.approx(1.5 * plain)


def test_selective_recompute_is_between_none_and_full(make_job: JobMaker) -> None:
    for framework in ("torch", "megatron"):
        recipe = MEGATRON | {"framework": framework, "attention": "eager"}
        job = make_job("gpt2-xl", gpus=8, recipe=recipe | {"sequence_length": 1024})
        s = ddp(8, micro_batch_size=8)
        none, selective, full = (
            float(estimate_step_time(job, replace(s, recompute=kind)).step_seconds)
            for kind in Recompute
        )
        assert none < selective < full


def test_a_range_reaches_further_up_than_down(make_job: JobMaker) -> None:
    time = estimate_step_time(make_job(recipe={"global_batch_size": 4}), ddp(4))
    up, down = time.high_seconds - time.step_seconds, time.step_seconds - time.low_seconds
    assert up > 1.5 * down > 0


def test_a_table_gives_what_its_rows_give(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, recipe=MEGATRON)
    table = vary(
        Layout(),
        data_parallel_shard_size=np.array([8, 4, 2, 1]),
        tensor_parallel_size=np.array([1, 2, 2, 1]),
        pipeline_parallel_size=np.array([1, 1, 2, 8]),
        zero_stage=np.array([1, 0, 1, 0]),
        sequence_parallel=np.array([False, True, False, False]),
        micro_batch_size=np.array([1, 2, 4, 1]),
        gradient_accumulation_steps=np.array([8, 8, 8, 64]),
        recompute=np.array([Recompute.NONE, Recompute.FULL, Recompute.SELECTIVE, Recompute.NONE]),
    )
    together = estimate_step_time(job, table)
    for row in range(4):
        alone = estimate_step_time(job, table.at(row))
        assert float(alone.step_seconds) == pytest.approx(together.at(row).step_seconds)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_slowest_stage_is_that_of_the_schedule(make_job: JobMaker, size: int) -> None:
    """Rows of equal sizes are not alike: a V begins and ends on the same stage."""
    job = make_job("gpt2-xl", gpus=4)
    layouts = [
        Layout(pipeline_parallel_size=stages, pipeline_schedule=schedule, virtual_pipeline_size=2)
        for schedule in (PipelineSchedule.INTERLEAVED, PipelineSchedule.ZERO_BUBBLE_V)
        for stages in (size, 4)
    ]
    whole, slowest, stage = pace(job, tabulate(layouts))
    for row, layout in enumerate(layouts):
        alone, own, at = pace(job, layout)
        assert np.asarray(whole.seconds)[row] == pytest.approx(alone.seconds)
        assert np.asarray(slowest.seconds)[row] == pytest.approx(own.seconds)
        assert np.asarray(stage.index)[row] == at.index


def test_adapters_alone_are_reduced_and_stepped(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 8, "sequence_length": 512}
    full, lora = (
        make_job("meta-llama/Llama-2-7b-hf", gpus=8, recipe={**recipe, "method": method})
        for method in ("full", "lora")
    )
    whole, part = (amounts(estimate_step_time(job, ddp(8))) for job in (full, lora))
    for name in ("gradient_reduction", "optimizer"):
        assert part[name] < whole[name] / 100
    assert part["backward"] < 0.8 * whole["backward"]


def test_the_optimizer_passes_over_its_states(make_job: JobMaker) -> None:
    job = make_job()
    bandwidth = job.framework.memory_bound.hbm_fraction * job.cluster.gpu.hbm_bytes_per_second
    step = term(estimate_step_time(job, Strategy(micro_batch_size=8)), "optimizer")
    moved = job.optimizer.passes * 4 * job.model.parameters
    assert step.amount == pytest.approx(moved / bandwidth)


def test_forward_and_backward_open_into_what_they_spend(make_job: JobMaker) -> None:
    job = make_job(recipe={"global_batch_size": 8})
    time = estimate_step_time(job, ddp(4))
    for name in ("forward", "backward"):
        whole = term(time, name)
        assert total(whole.parts) == pytest.approx(whole.amount)
        assert {"attention", "elementwise", "loss", "launches"} < {p.name for p in whole.parts}
    assert "weight_gradients" in {part.name for part in term(time, "backward").parts}


def test_a_row_of_a_table_has_no_term_that_only_others_have(make_job: JobMaker) -> None:
    job = make_job(gpus=8, recipe={"framework": "megatron", "global_batch_size": 64})
    alone = ddp(8)
    divided = replace(alone, data_parallel_replicate_size=4, tensor_parallel_size=2)
    table = estimate_step_time(job, tabulate([alone, divided]))
    for row, layout in enumerate((alone, divided)):
        terms = estimate_step_time(job, layout).terms
        assert [t.name for t in table.at(row).terms] == [t.name for t in terms]


@pytest.mark.parametrize(("stage", "shards"), [(0, 1), (1, 4)])
def test_newton_and_schulz_multiply_three_times_an_iteration(
    make_job: JobMaker, stage: int, shards: int
) -> None:
    job = make_job(gpus=4, recipe={"optimizer": "muon"})
    s = Layout(data_parallel_shard_size=shards, zero_stage=stage)
    once = sum(
        gemm(job, 768, 768, wide, "bf16")
        + gemm(job, 768, 768, 768, "bf16")
        + gemm(job, 768, wide, 768, "bf16")
        for wide in (768, 2304, 3072, 3072)
    )
    spent = newton_schulz(job, s, partition.stage(job, s, 0))
    assert float(spent) == pytest.approx(12 * 5 * once / shards)


def test_muon_multiplies_the_matrices_of_blocks_and_nothing_else(make_job: JobMaker) -> None:
    """GPT-2's blocks: 5 steps of 2 (2 m m n + m m m) FLOPs each, at what the GPU sustains."""
    muon, adamw = (
        float(
            term(
                estimate_step_time(make_job(recipe={"optimizer": name}), ddp(2)), "optimizer"
            ).amount
        )
        for name in ("muon", "adamw")
    )
    side, others = 768, (768, 2304, 3072, 3072)
    flops = 12 * 5 * sum(2 * (2 * side**2 * other + side**3) for other in others)
    job = make_job(recipe={"optimizer": "muon"})
    ideal = flops / job.cluster.gpu.peak_flops["bf16"]
    passes = adamw * job.optimizer.passes / make_job().optimizer.passes
    assert ideal < muon - passes < 4 * ideal
    offloaded = estimate_step_time(job, ddp(2, offload=Offload.OPTIMIZER))
    assert float(term(offloaded, "optimizer").amount) == 0
