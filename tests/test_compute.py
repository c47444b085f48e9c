import pytest
from conftest import JobMaker

from planner import compute
from planner.model import Numerics


def test_gemm_time_is_overhead_plus_the_blend_of_arithmetic_and_memory(make_job: JobMaker) -> None:
    job = make_job(gpu="h100-sxm-80gb")
    curve, gpu = job.cluster.gpu.gemm, job.cluster.gpu
    m = n = k = 4096
    sustained = job.framework.sustained_fraction
    arithmetic = 2 * m * n * k / (sustained * curve.peak_fraction * gpu.peak_flops["bf16"])
    memory = 2 * (m * k + k * n + m * n) / (curve.hbm_fraction * gpu.hbm_bytes_per_second)
    blend = (arithmetic**curve.sharpness + memory**curve.sharpness) ** (1 / curve.sharpness)
    assert compute.gemm(job, m, n, k) == pytest.approx(curve.overhead_seconds + blend)


def test_large_gemms_are_more_efficient_than_small_ones(make_job: JobMaker) -> None:
    job = make_job()
    per_flop = [compute.gemm(job, size, size, size) / size**3 for size in (256, 1024, 4096, 16384)]
    assert per_flop == sorted(per_flop, reverse=True)


def test_fp32_is_slower_than_bf16(make_job: JobMaker) -> None:
    fp32 = make_job(recipe={"precision": "fp32"})
    assert compute.gemm(fp32, 4096, 4096, 4096) > 5 * compute.gemm(make_job(), 4096, 4096, 4096)


def test_eager_attention_costs_more_than_fused(make_job: JobMaker) -> None:
    eager = make_job(recipe={"attention": "eager"})
    block = eager.model.blocks[0]
    assert compute.attention(eager, block, 8192) > compute.attention(make_job(), block, 8192)
    embeddings = eager.model.parts[0]
    assert compute.attention(eager, embeddings, 8192) == 0


def test_backward_costs_about_twice_the_forward(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8)
    block = job.model.blocks[0]
    forward = compute.forward(job, block, 8192, Numerics.HALF)
    backward = compute.backward(job, block, 8192, Numerics.HALF)
    assert 1.8 < backward / forward < 2.3


def test_a_model_without_a_head_has_no_loss(make_job: JobMaker) -> None:
    assert compute.loss(make_job("Snowflake/snowflake-arctic-embed-m"), 512) == 0
    assert compute.loss(make_job(), 512) > 0


def test_the_host_bounds_a_small_micro_batch() -> None:
    assert compute.at_least(2.0, 1.0) == 2.0
    assert compute.at_least(2.0, 3.0) == 3.0
