"""Generation by its physics: lengths, what an engine holds, what a token takes, how weights arrive."""

import math
from dataclasses import replace

import pytest
from conftest import JobMaker
from printed import evaluate

from planner.catalog.rollout import rollout
from planner.domain.job import Job
from planner.rollout.engine import (
    Engine,
    cache_bytes_per_token,
    holds,
    read_bytes,
    sequences_at_once,
    share_for,
    weight_bytes,
)
from planner.rollout.generation import Prompts, generate
from planner.rollout.handover import gathering, loading, sending, tensors
from planner.rollout.lengths import lengths

QWEN = "Qwen/Qwen2.5-7B"


def engine(job: Job, size: int = 1, share: float = 0.5, gpus: int | None = None) -> Engine:
    return Engine(
        tensor_parallel_size=size,
        replicas=(gpus or job.cluster.world_size) // size,
        share=share,
        card_bytes=float(job.cluster.gpu.memory_bytes),
        record=rollout().engine,
    )


def prompts(completions: int = 64, most: int = 1024, mean: int | None = None) -> Prompts:
    return Prompts(
        completions=completions, generations=8, prompt_tokens=512, lengths=lengths(most, mean)
    )


def test_lengths_have_the_mean_that_is_said() -> None:
    cut = lengths(4096, 900)
    assert cut.scale * -math.expm1(-4096 / cut.scale) == pytest.approx(900, rel=1e-6)
    assert cut.mean_square > 900**2
    assert cut.longest_of(2048) == 4096
    assert 900 < cut.longest_of(8) < 4096
    assert lengths(4096).longest_of(1) == lengths(4096).mean == 4096


def test_the_cache_of_a_token_is_keys_and_values_of_every_layer(make_job: JobMaker) -> None:
    model = make_job(QWEN).model
    assert cache_bytes_per_token(model) == 2 * 2 * 28 * 4 * 128
    assert cache_bytes_per_token(model, 2) == cache_bytes_per_token(model) / 2
    assert cache_bytes_per_token(model, 8) == cache_bytes_per_token(model) / 4
    latent = make_job("deepseek-ai/DeepSeek-V3", gpus=8, gpu="h100").model
    assert cache_bytes_per_token(latent, 8) == 2 * 61 * (512 + 64)


def test_a_token_reads_the_experts_that_a_batch_meets(make_job: JobMaker) -> None:
    mixture = make_job("Qwen/Qwen3-30B-A3B", gpus=8, gpu="h100").model
    one, many = read_bytes(mixture, 1), read_bytes(mixture, 4096)
    assert one == pytest.approx(2 * mixture.active_parameters, rel=0.25)
    assert many == pytest.approx(weight_bytes(mixture), rel=0.02)
    dense = make_job(QWEN).model
    assert read_bytes(dense, 1) == read_bytes(dense, 4096)


def test_an_engine_holds_as_many_sequences_as_its_share_has_room_for(make_job: JobMaker) -> None:
    job = make_job(QWEN, gpus=8, gpu="h100")
    half = engine(job)
    at_once = sequences_at_once(job.model, half, 1536)
    held = holds(job.model, half, 1536, at_once)
    assert sum(float(term.amount) for term in held) <= half.given_bytes
    more = holds(job.model, half, 1536, at_once + 1)
    assert sum(float(term.amount) for term in more) > half.given_bytes
    assert share_for(job.model, half, 1536, at_once) <= half.share
    assert sequences_at_once(job.model, engine(job, share=0.1), 1536) == 0


def test_each_term_is_its_own_arithmetic(make_job: JobMaker) -> None:
    job = make_job(QWEN, gpus=8, gpu="h100")
    for size in (1, 4):
        apart = engine(job, size)
        found = generate(job, apart, prompts(512, 2048, 700))
        assert found is not None
        terms = [*found.terms, *holds(job.model, apart, 1024, found.at_once)]
        terms += [*gathering(job.model, job.cluster), loading(job.model, apart.record)]
        for term in terms:
            assert evaluate(term.how).holds(float(term.amount)), term.how
        assert found.total_seconds == pytest.approx(sum(float(t.amount) for t in found.terms))


def test_more_completions_than_the_cache_holds_run_in_waves(make_job: JobMaker) -> None:
    job = make_job(QWEN, gpus=1, gpu="h100")
    few = generate(job, engine(job, share=0.3), prompts(64))
    many = generate(job, engine(job, share=0.3), prompts(640))
    assert few is not None
    assert many is not None
    assert few.steps == 1024
    assert many.at_once < many.sequences
    assert many.steps == math.ceil(1024 * many.sequences / many.at_once)
    assert many.total_seconds > few.total_seconds


def test_tensor_parallelism_reads_less_and_exchanges_more(make_job: JobMaker) -> None:
    job = make_job(QWEN, gpus=4, gpu="h100")
    amounts = {
        size: {str(term.name): float(term.amount) for term in found.terms}
        for size in (1, 4)
        if (found := generate(job, engine(job, size, gpus=size), prompts(16)))
    }
    assert amounts[4]["decode_weights"] < amounts[1]["decode_weights"] / 3
    assert "decode_exchange" in amounts[4].keys() - amounts[1].keys()


def test_weights_arrive_over_the_slower_of_two_links(make_job: JobMaker) -> None:
    job = make_job(QWEN, gpus=8, gpu="h100")
    link = job.cluster.intra_node
    fast = sending(job.model, link)
    slow = sending(job.model, replace(link, bytes_per_second=link.bytes_per_second / 10))
    assert float(slow.amount) > 5 * float(fast.amount)
    assert tensors(job.model) > 200
    alone = make_job(QWEN, gpus=1, gpu="h100")
    assert gathering(alone.model, alone.cluster) == ()
