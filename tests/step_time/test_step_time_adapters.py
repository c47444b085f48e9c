"""What adapters and quantised weights add to a step, by hand."""

from typing import Any

import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute
from planner.parallel import adapters as shapes
from planner.parallel import frozen_weights
from planner.parallel.partition import stage
from planner.search.candidate import estimate
from planner.step_time import communication, elementwise
from planner.step_time.adapters import adapters, adapters_backward, dequantisation
from planner.step_time.compute import gemm
from planner.step_time.host import launches
from planner.step_time.ledger import estimate_step_time
from planner.step_time.rates import elementwise_bandwidth

LLAMA = "meta-llama/Llama-2-7b-hf"
WIDTH, TOKENS, RANK = 4096, 512, 8


def job_of(make_job: JobMaker, method: str = "lora", gpus: int = 1, **recipe: Any) -> Job:
    lora = recipe.pop("lora", {})
    wish = {"method": method, "sequence_length": TOKENS, "global_batch_size": 8} | recipe
    return make_job(
        LLAMA, gpus=gpus, recipe=wish | {"lora": {"rank": RANK, "targets": ["q_proj"]} | lora}
    )


@pytest.mark.parametrize(
    ("precision", "lora", "dtype", "passed"),
    [
        # Held and computed in 16 bit: the scale reads and writes, the sum reads two and writes one.
        ("bf16", {"dtype": "16-bit"}, "bf16", 4 + 6),
        ("bf16", {"dtype": "16-bit", "dropout": 0.1}, "bf16", 2 + 2 + 1 + 4 + 6),
        # Held in fp32 as PEFT does: the input is cast, matmuls are in fp32, the sum is cast back.
        ("bf16", {}, "fp32", 2 + 4 + 8 + (2 + 4 + 4) + 6),
        # Under autocast the cast input is cast again.
        ("bf16-mixed", {}, "bf16", (2 + 4) + (4 + 2) + 4 + 6),
        ("fp32", {}, "fp32", 8 + 12),
    ],
)
def test_adapters_are_two_matmuls_and_passes_over_memory(
    make_job: JobMaker,
    precision: str,
    lora: dict[str, Any],
    dtype: str,
    passed: int,
) -> None:
    job = job_of(make_job, precision=precision, lora=lora)
    (block,), s = job.model.blocks, Layout()
    matmuls = gemm(job, TOKENS, RANK, WIDTH, dtype) + gemm(job, TOKENS, WIDTH, RANK, dtype)
    passes = TOKENS * WIDTH * passed / elementwise_bandwidth(job)
    assert adapters(job, s, block) == pytest.approx(matmuls + passes)
    assert adapters_backward(job, s, block) == pytest.approx(2 * matmuls + passes)


def test_quantised_weights_are_copied_in_each_pass(make_job: JobMaker) -> None:
    job = job_of(make_job, "qlora")
    (block,), s = job.model.blocks, Layout()
    weights = 4 * WIDTH * WIDTH + 3 * WIDTH * 11008
    moved = (1 / 2 + 4 / 64 + 2) * weights
    copied = moved / elementwise_bandwidth(job)
    assert dequantisation(job, s, block) == pytest.approx(copied)
    assert dequantisation(job_of(make_job), s, block) == 0
    terms = {term.name: term for term in estimate_step_time(job, s).terms}
    parts = {part.name: float(part.amount) for part in terms["backward"].parts}
    assert parts["dequantisation"] == pytest.approx(32 * copied)


def test_a_qlora_step_takes_longer_than_a_lora_step_and_both_less_than_a_full_one(
    make_job: JobMaker,
) -> None:
    s = Layout(recompute=Recompute.FULL, micro_batch_size=8)
    full = make_job(LLAMA, gpus=1, recipe={"sequence_length": TOKENS, "global_batch_size": 8})
    jobs = (full, job_of(make_job), job_of(make_job, "qlora"))
    whole, lora, qlora = (float(estimate_step_time(job, s).step_seconds) for job in jobs)
    assert lora < qlora < whole


def test_elementwise_work_beside_frozen_weights_is_what_it_is_in_full_training(
    make_job: JobMaker,
) -> None:
    lora, full = job_of(make_job), make_job(LLAMA, gpus=1, recipe={"sequence_length": TOKENS})
    numerics = lora.precision.replicated_numerics
    one, other = (
        elementwise.backward(job, Layout(), job.model.blocks[0], numerics) for job in (lora, full)
    )
    assert one == pytest.approx(other)


def test_adapters_launch_kernels_of_their_own(make_job: JobMaker) -> None:
    full = make_job(LLAMA, gpus=1, recipe={"sequence_length": TOKENS})
    each = full.framework.host.operation_seconds
    before = launches(full, Layout(), full.model.blocks[0])
    for method, lora, more in (
        ("lora", {"dtype": "16-bit"}, 4),
        ("lora", {"dropout": 0.1}, 4 + 2 + 1),
        ("qlora", {"dtype": "16-bit"}, 4 + 7),
    ):
        job = job_of(make_job, method, lora=lora, precision="bf16")
        launched = launches(job, Layout(), job.model.blocks[0])
        assert launched - before == pytest.approx(2 * more * each)


def test_only_adapters_are_gathered_after_a_step_and_frozen_weights_as_they_are_stored(
    make_job: JobMaker,
) -> None:
    job = job_of(make_job, "qlora", gpus=4)
    trained, _ = shapes.trainable(job)
    for zero_stage, frozen in ((1, False), (3, True)):
        s = Layout(data_parallel_shard_size=4, zero_stage=zero_stage, micro_batch_size=2)
        whole = stage(job, s, 0)
        expected = job.precision.gather_bytes * trained
        expected += float(frozen_weights.frozen_bytes(job, s, whole)) if frozen else 0
        assert float(shapes.gathered_stage_bytes(job, s, whole)) == pytest.approx(expected)
        assert float(communication.gather_parameters(job, s, whole)) > 0


def test_tensor_parallelism_divides_adapters_in_megatron(make_job: JobMaker) -> None:
    job = job_of(make_job, gpus=4, framework="megatron")
    s = Layout(tensor_parallel_size=4, gradient_accumulation_steps=8)
    assert (
        float(shapes.trained_parameters(job, s, stage(job, s, 0))[0]) == 32 * RANK * 2 * WIDTH / 4
    )
    split = estimate(job, s)
    alone = estimate(job, Layout(data_parallel_replicate_size=4, gradient_accumulation_steps=2))
    assert float(split.memory.peak_bytes) < float(alone.memory.peak_bytes)


def test_weights_that_megatron_freezes_in_fp8_take_a_byte(make_job: JobMaker) -> None:
    wide, narrow = (
        make_job(
            LLAMA,
            gpu="h100",
            gpus=1,
            recipe={"method": "lora", "framework": "megatron", "precision": precision},
        )
        for precision in ("bf16-mixed", "fp8")
    )
    held = [
        float(frozen_weights.frozen_bytes(job, Layout(), stage(job, Layout(), 0)))
        for job in (wide, narrow)
    ]
    assert held[0] - held[1] == 32 * (4 * WIDTH * WIDTH + 3 * WIDTH * 11008)
