"""What pairs of answers and a reference model take, by hand."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, Recompute
from planner.memory.ledger import estimate_memory, phased_terms
from planner.parallel.partition import stage
from planner.step_time.ledger import estimate_step_time

QWEN = "Qwen/Qwen2.5-7B"
PARAMETERS = 7_615_616_512
ZERO_3 = Layout(data_parallel_shard_size=8, zero_stage=3, gradient_accumulation_steps=4)
DDP = Layout(data_parallel_replicate_size=8)


def of_pairs(make_job: JobMaker, job: str = "dpo", **recipe: Any) -> Job:
    said = {"sequence_length": 1024, "global_batch_size": 32, "job": job} | recipe
    return make_job(QWEN, gpus=8, gpu="h100", recipe=said)


def terms(job: Job, s: Layout) -> dict[str, float]:
    return {term.name: float(term.amount) for term in estimate_memory(job, s).terms}


def seconds(job: Job, s: Layout) -> dict[str, float]:
    return {str(term.name): float(term.amount) for term in estimate_step_time(job, s).terms}


def test_the_reference_is_in_16_bit_and_sharded_as_the_policy_is(make_job: JobMaker) -> None:
    job = of_pairs(make_job)
    assert terms(job, ZERO_3)["reference_weights"] == 2 * PARAMETERS / 8
    assert terms(job, DDP)["reference_weights"] == 2 * PARAMETERS
    in_fp32 = of_pairs(make_job, precision="fp32")
    assert terms(in_fp32, DDP)["reference_weights"] == 4 * PARAMETERS


def test_deepspeed_shards_it_with_zero_3_alone(make_job: JobMaker) -> None:
    job = of_pairs(make_job, framework="deepspeed")
    assert terms(job, ZERO_3)["reference_weights"] == 2 * PARAMETERS / 8
    assert terms(job, replace(ZERO_3, zero_stage=2))["reference_weights"] == 2 * PARAMETERS


def test_it_waits_in_host_memory_where_the_policy_does(make_job: JobMaker) -> None:
    away = replace(ZERO_3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    assert terms(of_pairs(make_job), away)["reference_weights"] == 0


@pytest.mark.parametrize(
    "recipe",
    [
        {"reference_model": "precomputed"},
        {"method": "lora"},
        {"job": "simpo"},
        {"job": "orpo"},
        {"job": "reward"},
    ],
)
def test_nothing_else_has_weights_of_a_second_model(
    make_job: JobMaker, recipe: dict[str, Any]
) -> None:
    assert not terms(of_pairs(make_job, **recipe), DDP).get("reference_weights")


def test_only_a_reference_that_runs_takes_a_forward(make_job: JobMaker) -> None:
    def took(**recipe: Any) -> float:
        return seconds(of_pairs(make_job, **recipe), ZERO_3).get("reference_forward", 0.0)

    whole = seconds(of_pairs(make_job), ZERO_3)
    gather = took() - whole["forward"]
    assert 0 < gather < 0.1 * whole["forward"]
    assert took(method="lora") > 0
    assert took(reference_model="precomputed") == took(job="simpo") == took(job="reward") == 0


def test_a_pair_runs_as_two_sequences(make_job: JobMaker) -> None:
    pairs = of_pairs(make_job, "orpo")
    texts = make_job(
        QWEN, gpus=8, gpu="h100", recipe={"sequence_length": 1024, "global_batch_size": 64}
    )
    twice = replace(ZERO_3, micro_batch_size=2)
    assert pairs.tokens_per_step == texts.tokens_per_step == 64 * 1024
    assert terms(pairs, ZERO_3) == terms(texts, twice)
    assert seconds(pairs, ZERO_3) == pytest.approx(seconds(texts, twice))


def test_scores_hold_a_tile_of_the_logits_and_gradients_in_fp32(make_job: JobMaker) -> None:
    job = of_pairs(make_job)
    held = {term.name: term for term in phased_terms(job, ZERO_3, stage(job, ZERO_3, 0))}
    assert float(held["logits_and_loss"].loss.value) == 2 * 2048 * 32_768
    assert float(held["loss_gradients"].loss.value) == 4 * 3584 * (152_064 + 2048)
    whole = of_pairs(make_job, loss="standard")
    held = {term.name: term for term in phased_terms(whole, ZERO_3, stage(whole, ZERO_3, 0))}
    assert float(held["logits_and_loss"].loss.value) >= 10 * 2048 * 152_064


def test_a_reward_model_has_a_score_in_place_of_a_vocabulary(make_job: JobMaker) -> None:
    job = of_pairs(make_job, "reward")
    assert job.model.task == "sequence-classification"
    assert job.model.parameters == PARAMETERS - 3584 * 152_064 + 2 * 3584
    assert terms(job, DDP)["logits_and_loss"] == 0


def test_the_reference_holds_its_blocks_one_at_a_time(make_job: JobMaker) -> None:
    job, s = of_pairs(make_job), replace(ZERO_3, recompute=Recompute.FULL)
    held = {term.name: term for term in phased_terms(job, s, stage(job, s, 0))}
    block, outer = 233_057_792, 2 * 3584 * 152_064 + 3584
    working = 2 * 2048 * (2 * 3584 + 3 * 18_944)
    assert float(held["reference_forward"].forward.value) == working + 2 * (outer + 2 * block)
    assert float(held["reference_forward"].loss.value) == 0
