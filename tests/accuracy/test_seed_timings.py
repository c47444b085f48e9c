"""What the articles this planner began with timed, with one set of constants and their tolerances.

GPT-2 on 1 and 4 V100 (Hugging Face forum), BERT-large on 4 GPUs over PCIe 3 (Boytsov), GPT-2 on
2 TITAN RTX (Hugging Face, Efficient Training on Multiple GPUs). docs/accuracy/runs.md says what
stays outside.
"""

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.core.term import Quantity, total
from planner.domain.job import Job
from planner.domain.strategy import Layout, Strategy, vary
from planner.parallel.partition import stage
from planner.search.training_run import TrainingRun, training_run
from planner.step_time import data_parallel
from planner.step_time.ledger import StepTime, estimate_step_time
from planner.step_time.nn_data_parallel import data_parallel_step

COLA_SENTENCES = 8_551
PADDED_TOKENS = (16, 20)
"""Of the longest sentence in a batch: assumed, the thread does not say."""


def forum(make_job: JobMaker, gpus: int, tokens: int) -> TrainingRun:
    """Two epochs of sentence classification, 128 sentences per GPU, fp32."""
    recipe = {"precision": "fp32", "attention": "eager", "sequence_length": tokens}
    recipe |= {"global_batch_size": 128 * gpus, "training_samples": 2 * COLA_SENTENCES}
    job = make_job(gpus=gpus, gpu="v100-sxm2-16gb", recipe=recipe)
    parts = tuple(
        replace(part, linears=()) if part.name == "head" else part for part in job.model.parts
    )
    job = replace(job, model=replace(job.model, parts=parts, task="none"))
    run = training_run(job, estimate_step_time(job, ddp(gpus, micro_batch_size=128)))
    assert run is not None
    return run


def ddp(ranks: int, **fields: Any) -> Layout:
    return Layout(data_parallel_replicate_size=ranks, **fields)


@pytest.mark.parametrize("tokens", PADDED_TOKENS)
def test_a_short_run_on_four_gpus_is_half_start_up(make_job: JobMaker, tokens: int) -> None:
    one, four = (forum(make_job, gpus, tokens) for gpus in (1, 4))
    assert (one.steps, four.steps) == (134, 34)
    assert four.seconds == pytest.approx(28.065, rel=0.25)
    assert one.low_seconds < 43.096 < one.high_seconds
    assert 1.3 < one.seconds / four.seconds < 1.6
    for run in (one, four):
        assert 19 < run.start_up_seconds < 23


SINGLE_GPU_SECONDS = 1 / 3
SEVERAL_GPUS = 1.1
"""What a step of several GPUs takes without any exchange, over one of one GPU."""


@pytest.fixture
def boytsov(make_job: JobMaker) -> Job:
    """BERT-large with 16-bit gradients on four GPUs, PCIe 3 without P2P; the card is not named."""
    recipe = {"precision": "bf16", "sequence_length": 384, "global_batch_size": 64}
    return make_job(
        "google-bert/bert-large-uncased",
        gpu="titan-rtx",
        cluster={"peer_to_peer": False},
        recipe=recipe,
    )


def test_16_bit_gradients_of_bert_large_take_two_tenths_of_a_second(boytsov: Job) -> None:
    reduced = exchanged(boytsov, ddp(4))
    assert reduced.size_bytes == pytest.approx(0.67e9, rel=0.01)
    assert 5e9 < 1.5 * reduced.size_bytes / reduced.seconds < 6.5e9


def exchanged(job: Job, s: Strategy) -> data_parallel.OverlappedExchange:
    """Return the exchange where no backward hides it."""
    return data_parallel.reduction(job, s, stage(job, s, 0), backward=0.0)


@pytest.mark.parametrize(
    "published", [(2.4, 2.8, 3.2, 3.4, 3.6), (2.6, 2.9, 3.3, 3.5, 3.6)], ids=["40K", "4K"]
)
def test_local_sgd_speeds_up_as_published(boytsov: Job, published: tuple[float, ...]) -> None:
    s = vary(ddp(4), synchronize_every=np.array([1, 2, 4, 8, 16]))
    exchange = exchanged(boytsov, s).exposed
    speedups = 4 / (SEVERAL_GPUS + exchange / SINGLE_GPU_SECONDS)
    assert speedups == pytest.approx(published, rel=0.1)


def test_accumulation_spares_the_exchange_only_with_no_sync(boytsov: Job) -> None:
    s = ddp(4, gradient_accumulation_steps=16)
    sharding = replace(boytsov.framework.sharding, reduces_every_micro_batch_from=0)
    every = replace(boytsov, framework=replace(boytsov.framework, sharding=sharding))
    with_no_sync, without = (
        4 / (SEVERAL_GPUS + times * seconds / 16 / SINGLE_GPU_SECONDS)
        for job in (boytsov, every)
        for reduced in (exchanged(job, s),)
        for times, seconds in ((float(reduced.times), float(reduced.exposed)),)
    )
    assert with_no_sync == pytest.approx(3.5, rel=0.1)
    assert without == pytest.approx(2.6, rel=0.1)


def test_the_whole_estimate_of_local_sgd(make_job: JobMaker) -> None:
    """Mixed precision on 4 RTX 2080 Ti, 8 sequences each, which take a third of a second as published."""

    def job(gpus: int) -> Job:
        recipe = {"precision": "fp16-mixed", "attention": "eager", "sequence_length": 384}
        return make_job(
            "google-bert/bert-large-uncased",
            gpus=gpus,
            gpu="rtx-2080ti",
            cluster={"peer_to_peer": False},
            recipe=recipe | {"global_batch_size": 8 * gpus},
        )

    # A sixth too slow, as BERT's fused kernels are on an H100 (docs/accuracy/h100.md).
    alone = estimate_step_time(job(1), ddp(1, micro_batch_size=8))
    assert float(alone.low_seconds) < SINGLE_GPU_SECONDS < float(alone.high_seconds)
    one = float(alone.step_seconds)
    s = vary(ddp(4, micro_batch_size=8), synchronize_every=np.array([2, 4, 8, 16]))
    speedups = 4 * one / estimate_step_time(job(4), s).step_seconds
    assert speedups == pytest.approx([2.8, 3.2, 3.4, 3.6], rel=0.1)


RUNS = tomllib.loads(Path("data/measurements/published_steps.toml").read_text())["run"]
WITH_NVLINK, WITHOUT = sorted(RUNS, key=lambda run: run["seconds"])
STEPS, GLOBAL_BATCH = 200, 8
DATA_PARALLEL_SECONDS = 110.5948


def of(make_job: JobMaker, run: dict[str, Any], gpus: int = 2) -> tuple[Job, Layout]:
    batch = run["micro_batch_size"]
    cluster = {"topology": run["topology"], "peer_to_peer": run.get("peer_to_peer")}
    recipe = {"precision": run["precision"], "attention": run["attention"]}
    job = make_job(
        run["model"],
        gpus=gpus,
        gpu=run["gpu"],
        cluster=cluster if gpus > 1 else {},
        recipe=recipe | {"global_batch_size": batch * gpus},
    )
    return job, ddp(gpus, micro_batch_size=batch)


def time_of(make_job: JobMaker, run: dict[str, Any], gpus: int = 2) -> StepTime:
    return estimate_step_time(*of(make_job, run, gpus))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_published_steps_take_what_was_measured(make_job: JobMaker, run: dict[str, Any]) -> None:
    time = time_of(make_job, run)
    assert time.step_seconds == pytest.approx(run["seconds"], rel=0.2)
    assert time.low_seconds < run["seconds"] < time.high_seconds


def test_nvlink_is_worth_what_was_measured(make_job: JobMaker) -> None:
    fast, slow = (float(time_of(make_job, run).step_seconds) for run in (WITH_NVLINK, WITHOUT))
    assert slow / fast == pytest.approx(131.4367 / 101.9003, abs=0.15)


def test_one_process_is_between_ddp_with_and_without_nvlink(make_job: JobMaker) -> None:
    fast, slow = (float(time_of(make_job, run).step_seconds) for run in (WITH_NVLINK, WITHOUT))
    one_process = float(total(data_parallel_step(*of(make_job, WITH_NVLINK))))
    assert fast < one_process < slow
    assert one_process / fast == pytest.approx(DATA_PARALLEL_SECONDS / 101.9003, abs=0.1)


def test_samples_per_second_are_eight_times_the_steps(make_job: JobMaker) -> None:
    """The article's "samples per second" are steps: 1.963 and 1.522, so 15.7 and 12.2 samples."""
    for run, published in ((WITH_NVLINK, 15.70), (WITHOUT, 12.17)):
        time = time_of(make_job, run)
        samples = float(time.tokens_per_second_per_gpu) * 2 / 1024
        assert samples == pytest.approx(published, rel=0.2)
        assert samples * float(time.step_seconds) == pytest.approx(GLOBAL_BATCH)


def test_200_steps_are_69_hundredths_of_an_epoch(make_job: JobMaker) -> None:
    job, s = of(make_job, WITH_NVLINK)
    blocks = replace(job, recipe=replace(job.recipe, training_tokens=2_319 * 1024))
    epoch = training_run(blocks, estimate_step_time(blocks, s))
    assert epoch is not None
    assert epoch.steps == math.ceil(2_319 / GLOBAL_BATCH) == 290
    assert round(STEPS / epoch.steps, 2) == 0.69


def test_a_second_gpu_doubles_the_data_not_the_speed_of_a_step(make_job: JobMaker) -> None:
    """200 steps of one GPU took 102 s, as many as those of two."""
    one, two = (time_of(make_job, WITH_NVLINK, gpus) for gpus in (1, 2))
    assert float(one.step_seconds) == pytest.approx(102 / STEPS, rel=0.2)
    assert float(two.step_seconds / one.step_seconds) == pytest.approx(1.0, abs=0.1)
    assert float(
        2 * two.tokens_per_second_per_gpu / one.tokens_per_second_per_gpu
    ) == pytest.approx(2.0, abs=0.2)


def test_what_the_timings_say_of_the_card_and_the_link(make_job: JobMaker) -> None:
    assert 0.3 < time_of(make_job, WITH_NVLINK).model_flops_utilization < 0.5
    reduction = next(
        term for term in time_of(make_job, WITHOUT).terms if term.name == "gradient_reduction"
    )
    _, moved, _, pace = (each.number for each in reduction.note if isinstance(each, Quantity))
    assert moved == pytest.approx(497.8e6, rel=0.001)
    assert 3e9 < pace < 6e9


def test_the_more_there_is_to_sync_the_more_a_slow_link_impedes(make_job: JobMaker) -> None:
    def speedup(model: str, tokens: int, gb_per_s: float) -> float:
        recipe = {"sequence_length": tokens, "global_batch_size": 4}
        link = {"intra_node": {"bus_gb_per_s": gb_per_s}}
        four = estimate_step_time(make_job(model, cluster=link, recipe=recipe), ddp(4))
        one_recipe = recipe | {"global_batch_size": 1}
        one = estimate_step_time(make_job(model, gpus=1, recipe=one_recipe), ddp(1))
        return float(4 * one.step_seconds / four.step_seconds)

    by_rate = [speedup("gpt2-xl", 512, rate) for rate in (2, 5, 20, 100)]
    by_tokens = [speedup("gpt2-xl", tokens, 5) for tokens in (64, 256, 1024)]
    by_size = [speedup(model, 256, 5) for model in ("gpt2-xl", "gpt2-large", "gpt2")]
    for rising in (by_rate, by_tokens, by_size):
        assert rising == sorted(rising)
        assert rising[0] < rising[-1]
