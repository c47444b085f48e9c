"""What must hold for every strategy, whatever the model and the cluster."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute
from planner.memory.phases import PHASES
from planner.request.schema import parse_request, resolve
from planner.search.candidate import Candidate, estimate
from planner.step_time.ledger import StepTime

MODELS = ("gpt2", "google-bert/bert-base-uncased", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2-7B")
FIRST_BLOCK = "backward of the first block"


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    gpus = draw(st.sampled_from([1, 2, 4, 8]))
    recipe = {
        "sequence_length": draw(st.sampled_from([64, 256, 512])),
        "global_batch_size": gpus * draw(st.sampled_from([1, 4, 12])),
        "precision": draw(st.sampled_from(["fp32", "bf16-mixed", "bf16"])),
        "attention": draw(st.sampled_from(["eager", "sdpa"])),
    }
    cluster = {"gpu": draw(st.sampled_from(["a100", "4090", "h100"])), "gpus_per_node": gpus}
    payload = {"model": draw(st.sampled_from(MODELS)), "cluster": cluster, "recipe": recipe}
    return resolve(parse_request(payload), allow_paths=False).job


@st.composite
def adapter_jobs(draw: st.DrawFn) -> Job:
    gpus = draw(st.sampled_from([1, 2, 8]))
    recipe = {
        "sequence_length": draw(st.sampled_from([64, 256, 512])),
        "global_batch_size": gpus * draw(st.sampled_from([1, 4])),
        "precision": draw(st.sampled_from(["fp32", "bf16-mixed", "bf16"])),
        "attention": draw(st.sampled_from(["eager", "sdpa"])),
        "method": "lora",
        "lora": {
            "rank": draw(st.sampled_from([1, 16, 64])),
            "targets": draw(st.sampled_from([None, "all-linear"])),
        },
    }
    cluster = {"gpu": "a100", "gpus_per_node": gpus}
    name = draw(st.sampled_from(["gpt2", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2-7B"]))
    payload = {"model": name, "cluster": cluster, "recipe": recipe}
    return resolve(parse_request(payload), allow_paths=False).job


def layout(
    job: Job, stage: int, recompute: Recompute = Recompute.NONE, micro_batch: int = 1
) -> Layout:
    ranks = job.cluster.world_size
    return Layout(
        data_parallel_replicate_size=1 if stage else ranks,
        data_parallel_shard_size=ranks if stage else 1,
        zero_stage=stage,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=job.recipe.global_batch_size // ranks // micro_batch,
        recompute=recompute,
    )


def peak(candidate: Candidate) -> float:
    return float(candidate.memory.peak_bytes)


def seconds_of(time: StepTime, name: str) -> float:
    return sum(float(term.amount) for term in time.terms if term.name == name)


@settings(max_examples=60)
@given(jobs(), st.integers(0, 3), st.sampled_from([Recompute.NONE, Recompute.FULL]))
def test_every_amount_is_finite_and_not_negative(
    job: Job, stage: int, recompute: Recompute
) -> None:
    candidate = estimate(job, layout(job, stage, recompute))
    for term in (*candidate.memory.terms, *candidate.step_time.terms):
        assert 0 <= float(term.amount) < 1e16
        assert term.how
    assert 0 < float(candidate.step_time.model_flops_utilization) < 1


@settings(max_examples=60)
@given(jobs(), st.integers(0, 3))
def test_larger_micro_batches_and_longer_sequences_never_need_less(job: Job, stage: int) -> None:
    one = estimate(job, layout(job, stage))
    recipe = replace(job.recipe, global_batch_size=4 * job.recipe.global_batch_size)
    larger = replace(job, recipe=recipe)
    assert peak(estimate(larger, layout(larger, stage, micro_batch=4))) >= peak(one)
    longer = replace(job, recipe=replace(job.recipe, sequence_length=512))
    assert peak(estimate(longer, layout(longer, stage))) >= peak(one)
    times = [each.step_time for each in (estimate(longer, layout(longer, stage)), one)]
    computed = [seconds_of(each, "forward") + seconds_of(each, "backward") for each in times]
    assert computed[0] >= computed[1] * 0.999
    # A longer forward hides more of ZeRO's gathers, and lets the CPU launch backward ahead: both at once, which is once
    # too often, by what backward is shorter.
    ahead = max(0.0, seconds_of(times[1], "backward") - seconds_of(times[0], "backward"))
    gained_twice = ahead if stage > 1 else 0.0
    assert times[0].step_seconds + gained_twice >= times[1].step_seconds * 0.999


@settings(max_examples=60)
@given(jobs(), st.integers(1, 3))
def test_more_shards_never_need_more(job: Job, stage: int) -> None:
    previous = float("inf")
    for gpus in (2, 4, 8, 16):
        cluster = replace(job.cluster, gpus_per_node=gpus)
        recipe = replace(job.recipe, global_batch_size=gpus)
        wider = replace(job, cluster=cluster, recipe=recipe)
        now = peak(estimate(wider, layout(wider, stage)))
        assert now <= previous
        previous = now


@settings(max_examples=60)
@given(jobs(), st.integers(0, 3))
def test_recompute_never_keeps_more_activations(job: Job, stage: int) -> None:
    def kept(recompute: Recompute) -> float:
        memory = estimate(job, layout(job, stage, recompute)).memory
        names = {"activations", "recomputed_block"}
        amount = sum(float(term.amount) for term in memory.terms if term.name in names)
        # The first block's input is then counted as what forward kept and among what the block
        # keeps: one tensor of at most 4 B per number.
        is_counted_twice = recompute == Recompute.FULL and PHASES[int(memory.phase)] == FIRST_BLOCK
        block_input = 4.0 * job.recipe.sequence_length * job.model.hidden_size
        return amount - block_input if is_counted_twice else amount

    assert kept(Recompute.FULL) <= kept(Recompute.NONE) or kept(Recompute.NONE) == pytest.approx(0)


@settings(max_examples=60)
@given(adapter_jobs(), st.integers(0, 3), st.sampled_from([Recompute.NONE, Recompute.FULL]))
def test_qlora_needs_no_more_than_lora_and_lora_no_more_than_full(
    job: Job, stage: int, recompute: Recompute
) -> None:
    lora = job.recipe.lora
    assert lora is not None
    quantised = replace(job, recipe=replace(job.recipe, lora=replace(lora, base_bits=4)))
    full = replace(job, recipe=replace(job.recipe, lora=None))
    needs = [peak(estimate(j, layout(j, stage, recompute))) for j in (quantised, job, full)]
    assert needs == sorted(needs)


@settings(max_examples=60)
@given(adapter_jobs(), st.integers(0, 3), st.sampled_from([Recompute.NONE, Recompute.FULL]))
def test_the_ledger_of_adapters_adds_up(job: Job, stage: int, recompute: Recompute) -> None:
    memory = estimate(job, layout(job, stage, recompute)).memory
    assert sum(float(term.amount) for term in memory.terms) == pytest.approx(memory.reserved_bytes)
    assert all(0 <= float(term.amount) < 1e16 for term in memory.terms)


@settings(max_examples=60)
@given(adapter_jobs(), st.integers(1, 3))
def test_more_shards_never_need_more_beside_adapters(job: Job, stage: int) -> None:
    previous = float("inf")
    for gpus in (2, 4, 8):
        cluster = replace(job.cluster, gpus_per_node=gpus)
        wider = replace(job, cluster=cluster, recipe=replace(job.recipe, global_batch_size=gpus))
        now = peak(estimate(wider, layout(wider, stage)))
        assert now <= previous
        previous = now


@settings(max_examples=60)
@given(adapter_jobs(), st.integers(0, 3))
def test_adapters_with_larger_batches_longer_sequences_and_no_recompute_need_no_less(
    job: Job, stage: int
) -> None:
    one = peak(estimate(job, layout(job, stage)))
    recipe = replace(job.recipe, global_batch_size=4 * job.recipe.global_batch_size)
    larger = replace(job, recipe=recipe)
    assert peak(estimate(larger, layout(larger, stage, micro_batch=4))) >= one
    longer = replace(job, recipe=replace(job.recipe, sequence_length=512))
    assert peak(estimate(longer, layout(longer, stage))) >= one


@settings(max_examples=40)
@given(jobs())
def test_a_faster_link_never_slows_a_step(job: Job) -> None:
    link = job.cluster.intra_node
    faster = replace(link, bytes_per_second=2 * link.bytes_per_second)
    quick = replace(job, cluster=replace(job.cluster, intra_node=faster))
    for stage in range(4):
        before, after = (estimate(j, layout(j, stage)).step_time.step_seconds for j in (job, quick))
        assert after <= before
