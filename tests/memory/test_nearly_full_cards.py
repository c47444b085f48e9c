"""What the allocator reserves beyond the peak is given back where a card is nearly full."""

from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.core.units import GIB
from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute
from planner.memory.ledger import estimate_memory

BERT = {"model_type": "bert", "architectures": ["BertForTokenClassification"]}


def on_a_card_of(job: Job, usable_bytes: float) -> Job:
    gpu = replace(job.cluster.gpu, usable_bytes=usable_bytes)
    return replace(job, cluster=replace(job.cluster, gpu=gpu))


@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-4090"])
def test_a_published_run_that_filled_24_gb_fits(make_job: JobMaker, gpu: str) -> None:
    """BERT-base on SQuAD in fp16, 96 sequences of 384 tokens: lambdal/deeplearning-benchmark ran it on both."""
    recipe = {"sequence_length": 384, "global_batch_size": 96, "attention": "eager"}
    recipe |= {"framework": "deepspeed", "precision": "fp16-mixed", "optimizer": "adamw"}
    job = make_job(BERT, gpus=1, gpu=gpu, recipe=recipe)
    memory = estimate_memory(job, Layout(micro_batch_size=96))
    assert 21.5 * GIB < memory.peak_bytes < job.usable_bytes
    assert memory.reserved_bytes <= job.usable_bytes


def test_it_reserves_what_it_likes_or_what_is_left(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=1, recipe={"framework": "torch"})
    device, s = job.framework.device, Layout(micro_batch_size=8)
    memory = estimate_memory(job, s)
    peak = float(memory.peak_bytes)
    context = device.context_bytes
    assert memory.reserved_bytes == pytest.approx(1.06 * peak + context)
    least = (1 + device.least_fraction) * peak + context
    for usable in (1.03 * peak + context, least + 1):
        assert estimate_memory(on_a_card_of(job, usable), s).reserved_bytes == round(usable)
    too_small = on_a_card_of(job, least - GIB / 64)
    assert estimate_memory(too_small, s).reserved_bytes == memory.reserved_bytes


def test_blocks_partly_in_use_stay_around_recompute(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=1, recipe={"framework": "torch"})
    s = Layout(micro_batch_size=8, recompute=Recompute.FULL)
    memory = estimate_memory(job, s)
    nearly_full = on_a_card_of(job, float(memory.reserved_bytes) - GIB / 64)
    assert estimate_memory(nearly_full, s).reserved_bytes == memory.reserved_bytes
