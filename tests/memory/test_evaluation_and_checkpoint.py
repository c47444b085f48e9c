from typing import Any

from conftest import JobMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.domain.strategy import Layout, Recompute
from planner.memory.evaluation_and_checkpoint import (
    checkpoint_host_bytes,
    checkpoint_peak_bytes,
    evaluation_peak_bytes,
)
from planner.memory.ledger import estimate_memory
from planner.request.schema import parse_request, resolve

GPT2 = 124_439_808
TABLE = 50_257 * 768


def sharded(stage: int, ranks: int = 8, **fields: Any) -> Layout:
    return Layout(data_parallel_shard_size=ranks, zero_stage=stage, **fields)


def test_a_sharded_checkpoint_takes_no_more_than_stays_between_steps(make_job: JobMaker) -> None:
    """fp32 parameters and two states, 12 B, over 8 ranks; the node copies all of them."""
    job = make_job("gpt2", gpus=8, recipe={"precision": "bf16-mixed"})
    assert checkpoint_peak_bytes(job, sharded(3), is_full=False) == 12 * GPT2 / 8
    assert checkpoint_host_bytes(job, sharded(3), is_full=False) == 12 * GPT2


def test_a_full_state_dict_gathers_its_largest_tensor_and_lands_on_one_node(
    make_job: JobMaker,
) -> None:
    cluster = {"nodes": 2}
    job = make_job("gpt2", gpus=8, cluster=cluster, recipe={"precision": "bf16-mixed"})
    wide = sharded(3, 16)
    assert checkpoint_peak_bytes(job, wide, is_full=True) == 12 * GPT2 / 16 + 4 * TABLE
    assert checkpoint_host_bytes(job, wide, is_full=True) == 12 * GPT2
    assert checkpoint_host_bytes(job, wide, is_full=False) == 12 * GPT2 / 2


def test_a_checkpoint_of_adapters_is_without_the_frozen_weights(make_job: JobMaker) -> None:
    """Rank 8 on q_proj, v_proj of 2048 x 2048 and 2048 x 512, in 16 layers: fp32 and two states."""
    for method in ("lora", "qlora"):
        job = make_job(
            "meta-llama/Llama-3.2-1B",
            recipe={"method": method, "lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}},
        )
        adapters = 16 * 8 * (2048 + 2048 + 2048 + 512)
        assert checkpoint_host_bytes(job, Layout(), is_full=True) == 12 * adapters


def test_replicas_have_nothing_to_gather_for_a_checkpoint(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, recipe={"precision": "bf16-mixed"})
    alike = Layout(data_parallel_replicate_size=8)
    assert checkpoint_peak_bytes(job, alike, is_full=True) == 12 * GPT2


def test_a_larger_evaluation_batch_may_exceed_training(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, recipe={"precision": "bf16-mixed", "sequence_length": 1024})
    s = sharded(3, recompute=Recompute.FULL)
    training = estimate_memory(job, s).peak_bytes
    assert evaluation_peak_bytes(job, s) < training
    assert evaluation_peak_bytes(job, s, micro_batch_size=8) > training


@settings(max_examples=40)
@given(
    st.sampled_from(["gpt2", "meta-llama/Llama-3.2-1B", "google-bert/bert-base-uncased"]),
    st.sampled_from(["torch", "deepspeed", "torchtitan"]),
    st.integers(0, 3),
    st.sampled_from(["none", "full"]),
    st.sampled_from([1, 16]),
)
def test_evaluation_with_trainings_batch_needs_no_more_than_training(
    model: str, framework: str, stage: int, recompute: str, micro_batch: int
) -> None:
    payload = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"framework": framework, "precision": "bf16-mixed", "sequence_length": 256},
    }
    job = resolve(parse_request(payload), allow_paths=False).job
    s = Layout(
        data_parallel_replicate_size=1 if stage else 8,
        data_parallel_shard_size=8 if stage else 1,
        zero_stage=stage,
        recompute=Recompute(recompute),
        micro_batch_size=micro_batch,
    )
    assert evaluation_peak_bytes(job, s) <= estimate_memory(job, s).peak_bytes * (1 + 1e-9)
    assert checkpoint_peak_bytes(job, s, is_full=False) < estimate_memory(job, s).peak_bytes
