from dataclasses import replace

import numpy as np
import pytest
from conftest import JobMaker

from planner.catalog.attention import attention_curve
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.model import Part
from planner.domain.strategy import Layout, Recompute
from planner.parallel.activations import kept_per_token
from planner.parallel.adapters import trainable
from planner.request.strategy import requested_layout
from planner.step_time import compute, elementwise, host, rates
from planner.step_time.ledger import estimate_step_time
from planner.step_time.micro_batch import MicroBatch, Spent, part_seconds

ONE = Layout(micro_batch_size=8)
LLAMA = "meta-llama/Llama-2-7b-hf"


def block(job: Job) -> Part:
    return job.model.blocks[0]


def forward_of_gpu(one: MicroBatch) -> float:
    """Forward without what the GPU waits for the host to launch."""
    return float(one.forward - one.of(Spent.FORWARD_LAUNCHES))


def head(job: Job) -> Part:
    return next(part for part in job.model.parts if part.name == "head")


def test_gemm_time_is_overhead_plus_the_blend_of_arithmetic_and_memory(make_job: JobMaker) -> None:
    job = make_job(gpu="h100-sxm-80gb")
    curve, gpu = job.cluster.gpu.gemm, job.cluster.gpu
    m = n = k = 4096
    sustained = job.framework.matmul.sustained_fraction
    arithmetic = 2 * m * n * k / (sustained * curve.peak_fraction * gpu.peak_flops["bf16"])
    memory = 2 * (m * k + k * n + m * n) / (curve.hbm_fraction * gpu.hbm_bytes_per_second)
    blend = (arithmetic**curve.sharpness + memory**curve.sharpness) ** (1 / curve.sharpness)
    assert compute.gemm(job, m, n, k) == pytest.approx(curve.overhead_seconds + blend)


def test_an_fp8_matmul_reads_one_byte_and_writes_two(make_job: JobMaker) -> None:
    job = make_job(gpu="h100-sxm-80gb", recipe={"precision": "fp8", "framework": "megatron"})
    gpu = job.cluster.gpu
    # A matmul of no depth to speak of: as good as all of it is memory.
    m, n, k = 65536, 32768, 1
    spent = float(compute.gemm(job, m, n, k, "fp8")) - gpu.gemm.overhead_seconds
    moved = (m * k + k * n) + 2 * m * n
    assert spent * gpu.gemm.hbm_fraction * gpu.hbm_bytes_per_second == pytest.approx(
        moved, rel=1e-3
    )


def test_a_third_of_the_loss_is_forward(make_job: JobMaker) -> None:
    job = make_job(LLAMA, recipe={"framework": "megatron", "sequence_length": 4096})
    spent = part_seconds(job, Layout(), head(job))
    # 34 bytes of every logit cross HBM, of which kernels reach 80 %.
    seconds = 34 * 4096 * 32000 / (0.8 * job.cluster.gpu.hbm_bytes_per_second)
    assert spent.of(Spent.FORWARD_LOSS) == pytest.approx(seconds / 3)
    assert spent.of(Spent.BACKWARD_LOSS) == pytest.approx(2 * seconds / 3)


def test_large_gemms_are_more_efficient_than_small_ones(make_job: JobMaker) -> None:
    job = make_job()
    per_flop = [compute.gemm(job, size, size, size) / size**3 for size in (256, 1024, 4096, 16384)]
    assert per_flop == sorted(per_flop, reverse=True)


def test_fp32_is_slower_than_bf16(make_job: JobMaker) -> None:
    fp32 = make_job(recipe={"precision": "fp32"})
    assert compute.gemm(fp32, 4096, 4096, 4096) > 5 * compute.gemm(make_job(), 4096, 4096, 4096)


def test_fp8_speeds_up_the_trunk_by_less_than_two_and_leaves_the_head_alone(
    make_job: JobMaker,
) -> None:
    wide, narrow = (
        make_job(LLAMA, gpu="h100", recipe={"precision": precision, "framework": "megatron"})
        for precision in ("bf16-mixed", "fp8")
    )
    faster = compute.matmuls(wide, ONE, block(wide)) / compute.matmuls(narrow, ONE, block(narrow))
    assert 1.2 < faster < 2
    assert compute.matmuls(wide, ONE, head(wide)) == compute.matmuls(narrow, ONE, head(narrow))
    assert compute.attention(wide, ONE, block(wide)) == compute.attention(
        narrow, ONE, block(narrow)
    )


def test_tensor_parallelism_divides_matmuls_and_attention(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    split = replace(ONE, tensor_parallel_size=4)
    for cost in (compute.matmuls, compute.attention):
        assert 3 < cost(job, ONE, block(job)) / cost(job, split, block(job)) <= 4 * (1 + 1e-9)


def test_experts_of_a_rank_take_turns(make_job: JobMaker) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8)
    expert = next(layer for layer in block(job).linears if layer.num_experts == 8)
    tokens = 8 * job.recipe.sequence_length
    alone = compute.linear(job, ONE, expert, tokens)
    one = compute.gemm(job, tokens * 2 / 8, expert.out_features, expert.in_features)
    assert alone == pytest.approx(8 * one)
    spread = replace(ONE, expert_parallel_size=8)
    assert compute.linear(job, spread, expert, tokens) == pytest.approx(
        compute.gemm(job, tokens * 2, expert.out_features, expert.in_features)
    )


def test_fused_attention_runs_at_the_kernels_share_of_the_peak(make_job: JobMaker) -> None:
    job = make_job(LLAMA, recipe={"sequence_length": 4096, "attention": "flash"})
    curve = attention_curve("sdpa", "8.0")
    flops = 8 * 4096 * block(job).attention.flops_per_token(4096)  # type: ignore[union-attr]
    share = 128 / (128 + curve.head_dim_half) * 4096 / (4096 + curve.keys_half_causal)
    peak = job.framework.matmul.sustained_fraction * share * 312e12
    assert compute.attention(job, ONE, block(job)) == pytest.approx(flops / peak / curve.forward)
    assert compute.attention_backward(job, ONE, block(job)) == pytest.approx(
        2.5 * flops / peak / curve.backward
    )


def test_long_sequences_fill_the_attention_kernel_better(make_job: JobMaker) -> None:
    per_score = []
    for length in (256, 1024, 4096):
        job = make_job(LLAMA, recipe={"sequence_length": length})
        per_score.append(compute.attention(job, ONE, block(job)) / length**2)
    assert per_score == sorted(per_score, reverse=True)


def test_a_b200_attends_to_a_long_sequence_at_twice_the_pace_of_an_h200(make_job: JobMaker) -> None:
    """FlashAttention-3 and 4: 0.90 of 989 TFLOPS forward, 0.83 of 2,250; with the second version it took longer."""
    recipe = {"framework": "deepspeed", "attention": "flash", "sequence_length": 131_072}
    s = Layout(data_parallel_shard_size=8, zero_stage=3, recompute=Recompute.FULL)
    old, new = (
        float(
            estimate_step_time(
                make_job("meta-llama/Llama-3.1-8B", gpus=8, gpu=gpu, recipe=recipe), s
            ).step_seconds
        )
        for gpu in ("h200", "b200")
    )
    assert old / new == pytest.approx(0.83 * 2250 / (0.90 * 989), rel=0.1)


def test_eager_attention_costs_more_than_fused(make_job: JobMaker) -> None:
    eager = make_job(recipe={"attention": "eager"})
    fused = make_job()
    assert compute.attention(eager, ONE, block(eager)) > compute.attention(fused, ONE, block(fused))
    assert compute.attention_backward(eager, ONE, block(eager)) == pytest.approx(
        2 * compute.attention(eager, ONE, block(eager))
    )
    assert compute.attention(eager, ONE, eager.model.parts[0]) == 0
    assert compute.attention_backward(eager, ONE, eager.model.parts[0]) == 0


def test_elementwise_work_passes_over_what_is_kept(make_job: JobMaker) -> None:
    fused = make_job(LLAMA)
    kept = kept_per_token(fused, ONE, block(fused), Numerics.HALF)
    seconds = elementwise.elementwise(fused, ONE, block(fused), Numerics.HALF, (2.0, 99.0))
    bandwidth = fused.framework.memory_bound.hbm_fraction * fused.cluster.gpu.hbm_bytes_per_second
    tokens = 8 * fused.recipe.sequence_length
    assert seconds == pytest.approx(2.0 * tokens * kept / bandwidth)


def test_scores_have_passes_of_their_own(make_job: JobMaker) -> None:
    eager = make_job(recipe={"attention": "eager"})
    none, some, more = (
        elementwise.elementwise(eager, ONE, block(eager), Numerics.AUTOCAST, (1.0, passes))
        for passes in (0.0, 1.0, 2.0)
    )
    assert 0 < none < some
    assert more - some == pytest.approx(some - none)


@pytest.mark.parametrize(
    ("framework", "tensor_ranks", "forward", "backward"),
    [
        ("megatron", 3, 1.8, 2.2),
        ("megatron", 6, 1.8 + 6.4, 2.2 + 6.8),
        ("torchtitan", 6, 1.8 + 3.2, 2.2 + 2.8),
    ],
)
def test_a_softmax_in_one_kernel_passes_less_often_over_the_scores(
    make_job: JobMaker, framework: str, tensor_ranks: int, forward: float, backward: float
) -> None:
    job = make_job(gpus=6, recipe={"attention": "eager", "framework": framework})
    s, part, bound = (
        Layout(tensor_parallel_size=tensor_ranks),
        block(job),
        job.framework.memory_bound,
    )

    def spent(passes: float, of_scores: float) -> float:
        return float(elementwise.elementwise(job, s, part, Numerics.HALF, (passes, of_scores)))

    found = elementwise.forward(job, s, part, Numerics.HALF)
    assert found == pytest.approx(spent(bound.forward_passes, forward))
    found = elementwise.backward(job, s, part, Numerics.HALF)
    assert found == pytest.approx(spent(bound.backward_passes, backward))
    assert spent(1.0, 1.0) > spent(1.0, 0.0)


def test_what_selective_recompute_repeats_is_still_done_in_forward(make_job: JobMaker) -> None:
    job = make_job(
        gpus=8, recipe={"attention": "eager", "framework": "megatron", "global_batch_size": 64}
    )
    plain, selective = ONE, replace(ONE, recompute=Recompute.SELECTIVE)
    forward, same = (forward_of_gpu(part_seconds(job, s, block(job))) for s in (plain, selective))
    assert same == pytest.approx(forward)
    again = compute.selective_recompute(job, selective, block(job), Numerics.FUSED)
    assert compute.attention(job, plain, block(job)) < again < forward
    assert compute.selective_recompute(job, selective, head(job), Numerics.FUSED) == 0


def test_selective_recompute_of_torch_repeats_half_of_the_matmuls(make_job: JobMaker) -> None:
    job = make_job(LLAMA)
    again = compute.selective_recompute(job, ONE, block(job), Numerics.HALF)
    rest = elementwise.forward(job, ONE, block(job), Numerics.HALF)
    assert again - rest == pytest.approx(compute.matmuls(job, ONE, block(job)) / 2)


def test_backward_costs_about_twice_the_forward(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    one = part_seconds(job, ONE, block(job))
    assert 1.8 < float(one.backward / one.forward) < 2.4


def test_a_model_without_a_head_has_no_loss(make_job: JobMaker) -> None:
    assert compute.loss(make_job("Snowflake/snowflake-arctic-embed-m"), ONE) == 0
    assert compute.loss(make_job(), ONE) > 0


def test_the_loss_is_divided_where_the_logits_are(make_job: JobMaker) -> None:
    split = replace(ONE, tensor_parallel_size=4)
    torch, composer = (make_job(recipe={"framework": name}) for name in ("torch", "composer"))
    assert compute.loss(torch, ONE) == pytest.approx(4 * compute.loss(torch, split))
    assert compute.loss(composer, ONE) == compute.loss(composer, split)


def test_the_host_is_a_floor_under_small_work_and_nothing_over_large(make_job: JobMaker) -> None:
    job = make_job()
    floor = host.launches(job, ONE, block(job))
    assert floor > 0
    for busy in (1e-9, floor / 100):
        assert busy * host.host_stretch(job, floor, busy) == pytest.approx(floor)
    assert host.host_stretch(job, floor, 100 * floor) == pytest.approx(1)


def test_waiting_for_the_host_hides_what_ranks_exchange(make_job: JobMaker) -> None:
    job = make_job()
    floor = host.launches(job, ONE, block(job))
    busy, exchange = floor / 10, floor / 4
    stretch = host.host_stretch(job, floor, busy, exchange)
    together = ((busy + exchange) ** 3 + floor**3) ** (1 / 3)
    assert busy * stretch + exchange == pytest.approx(together)
    assert together < floor + busy


def test_recompute_and_tensor_parallelism_keep_the_host_busier(make_job: JobMaker) -> None:
    job = make_job(gpus=8, recipe={"framework": "megatron"})
    plain = host.launches(job, ONE, block(job))
    again = host.launches(job, replace(ONE, recompute=Recompute.FULL), block(job))
    assert again == pytest.approx(1.5 * plain)
    waits = [
        float(host.launches(job, replace(ONE, tensor_parallel_size=size), block(job)))
        for size in (1, 2, 4, 8)
    ]
    assert np.diff(waits) == pytest.approx(waits[1] - waits[0])
    assert waits[1] > waits[0]


def test_parts_with_tokens_of_their_own_are_computed_over_those(make_job: JobMaker) -> None:
    """Whisper's encoder sees 1,500 frames, whatever the text."""
    whisper = make_job("openai/whisper-large-v3", recipe={"sequence_length": 100})
    encoder = next(part for part in whisper.model.blocks if part.tokens_per_sequence)
    (projection, *_) = encoder.linears
    one = compute.linear(whisper, ONE, projection, 8 * 1500)
    assert compute.matmuls(whisper, ONE, replace(encoder, linears=(projection,))) == one
    kept = kept_per_token(whisper, ONE, encoder, Numerics.HALF)
    seconds = elementwise.elementwise(whisper, ONE, encoder, Numerics.HALF, (1.0, 0.0))
    assert seconds == pytest.approx(8 * 1500 * kept / rates.elementwise_bandwidth(whisper))
    longer = make_job("openai/whisper-large-v3", recipe={"sequence_length": 400})
    assert compute.attention(longer, ONE, encoder) == compute.attention(whisper, ONE, encoder)


@pytest.mark.parametrize(
    "model",
    ["openai/whisper-large-v3", "microsoft/resnet-50", "microsoft/swin-tiny-patch4-window7-224"],
)
def test_matmuls_take_no_less_than_the_models_flops(make_job: JobMaker, model: str) -> None:
    job = make_job(model)
    flops = job.model.flops_per_token(job.recipe.sequence_length) * 8 * job.recipe.sequence_length
    spent = sum(
        part.count * (compute.matmuls(job, ONE, part) + compute.attention(job, ONE, part))
        for part in job.model.parts
    )
    assert spent > flops / job.peak_flops_per_second


def test_what_is_computed_beside_frozen_weights_is_no_weight_gradient(make_job: JobMaker) -> None:
    full = make_job(LLAMA, recipe={"sequence_length": 1024})
    lora = make_job(LLAMA, recipe={"sequence_length": 1024, "method": "lora"})
    attention = sum(
        part.count * part.attention.flops_per_token(1024)
        for part in full.model.blocks
        if part.attention
    )
    forward = full.model.flops_per_token(1024)
    assert compute.training_flops_per_token(full) == 3 * forward
    trained, _ = trainable(lora)
    expected = 2 * (forward - attention) + 3 * attention + 6 * trained
    assert compute.training_flops_per_token(lora) == pytest.approx(expected)


def test_ranks_that_hold_whole_experts_share_the_tokens(make_job: JobMaker) -> None:
    """Eight ranks compute as much, whether four share an expert's matrices or none does."""
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, recipe={"framework": "megatron"})
    expert = next(layer for layer in block(job).linears if layer.num_experts == 8)
    tokens = 8 * job.recipe.sequence_length
    folded = replace(
        ONE, tensor_parallel_size=4, data_parallel_shard_size=2, expert_parallel_size=8
    )
    seconds = compute.linear(job, folded, expert, tokens)
    rows = tokens * 2 / 4
    assert seconds == pytest.approx(
        compute.gemm(job, rows, expert.out_features, expert.in_features)
    )


@pytest.mark.parametrize("ranks", [1, 4])
def test_experts_without_a_grouped_kernel_are_launched_one_by_one(
    make_job: JobMaker, ranks: int
) -> None:
    model = "Qwen/Qwen1.5-MoE-A2.7B"
    old, new = (make_job(model, gpus=8, gpu=gpu) for gpu in ("v100", "a100"))
    routed = [layer for layer in block(new).linears if layer.num_experts > 1]
    assert [host.runs_experts_one_by_one(job) for job in (old, new)] == [True, False]
    s = replace(ONE, expert_parallel_size=ranks)
    more = host.launches(old, s, block(old)) - host.launches(new, s, block(new))
    each = 2 * 2 * new.framework.host.operation_seconds
    assert more == pytest.approx(each * sum(layer.num_experts / ranks - 1 for layer in routed))


def test_no_card_multiplies_faster_than_its_peak_in_fp8_that_it_lacks(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron", "precision": "fp8", "global_batch_size": 512}
    for gpu, dtype in (("a100", "bf16"), ("h100", "fp8"), ("v100", "fp32")):
        job = make_job(cluster={"gpu": gpu, "gpus_per_node": 8}, recipe=recipe)
        assert job.peak_flops_per_second == job.cluster.gpu.peak_flops[dtype]
        layout = requested_layout(None, job)
        assert estimate_step_time(job, layout).model_flops_utilization < 1


def test_biases_of_experts_are_added_expert_by_expert_in_megatron(make_job: JobMaker) -> None:
    job = make_job("openai/gpt-oss-20b", recipe={"framework": "megatron", "sequence_length": 4096})
    forward, backward = compute.expert_biases(job, replace(ONE, micro_batch_size=1), block(job))
    # 4 of 32 experts a token, 2,880 channels in and out of a gate of twice as many.
    gates, outputs = 4096 * 4 * 2 * 2880, 4096 * 4 * 2880
    bandwidth = rates.elementwise_bandwidth(job)
    assert forward == pytest.approx((8 * gates + 28 * outputs) / bandwidth)
    assert backward == pytest.approx((12 * gates + 40 * outputs) / bandwidth)


@pytest.mark.parametrize(
    ("model", "framework"),
    [
        ("openai/gpt-oss-20b", "torch"),
        ("mistralai/Mixtral-8x7B-v0.1", "megatron"),
        ("gpt2", "torch"),
    ],
)
def test_experts_without_biases_and_other_frameworks_add_none(
    make_job: JobMaker, model: str, framework: str
) -> None:
    job = make_job(model, recipe={"framework": framework})
    assert compute.expert_biases(job, ONE, block(job)) == (0, 0)


def test_dtensors_keep_the_host_busy_unless_they_are_compiled(make_job: JobMaker) -> None:
    """Seven linears of a block, and its two norms where each rank has a part of the sequence."""
    job = make_job(LLAMA, gpu="h100-sxm-80gb")
    record = job.framework.host
    divided = replace(ONE, tensor_parallel_size=2)

    def more(job: Job, s: Layout) -> float:
        own = job.framework.host
        bare = replace(own, divided_linear_seconds=0.0, divided_norm_seconds=0.0)
        without = replace(job, framework=replace(job.framework, host=bare))
        return float(host.launches(job, s, block(job)) - host.launches(without, s, block(job)))

    linears, norms = 7 * record.divided_linear_seconds, 2 * record.divided_norm_seconds
    assert more(job, ONE) == 0
    assert more(job, divided) == pytest.approx(linears)
    in_sequence = replace(divided, sequence_parallel=True)
    assert more(job, in_sequence) == pytest.approx(linears + norms)
    again = replace(in_sequence, recompute=Recompute.FULL)
    assert more(job, again) == pytest.approx(1.5 * (linears + norms))
    compiled = replace(job, framework=job.framework.compiled())
    assert more(compiled, in_sequence) == 0
    for name in ("megatron", "deepspeed"):
        other = make_job(LLAMA, gpu="h100-sxm-80gb", recipe={"framework": name})
        assert other.framework.host.divided_linear_seconds == 0


@pytest.mark.parametrize("gpu", ["t4", "v100-sxm2-32gb"])
def test_a_card_without_tf32_multiplies_as_in_fp32(make_job: JobMaker, gpu: str) -> None:
    tf32, fp32 = (
        compute.gemm(make_job(gpu=gpu, recipe={"precision": each}), 4096, 4096, 4096)
        for each in ("tf32", "fp32")
    )
    assert tf32 == fp32


def test_a_fused_scan_goes_through_memory_and_takes_longest_in_backward(make_job: JobMaker) -> None:
    job = make_job(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        gpu="h100-sxm-80gb",
        recipe={"framework": "megatron", "precision": "bf16-mixed", "sequence_length": 8192},
    )
    part = next(part for part in job.model.blocks if part.scan_flops_per_token)
    s = Layout(micro_batch_size=1)
    forward, backward = (
        float(times(job, s, part)) for times in (compute.attention, compute.attention_backward)
    )
    rate = job.cluster.gpu.gemm.hbm_fraction * job.cluster.gpu.hbm_bytes_per_second
    moved = [8192 * each / rate for each in part.scan.moved_bytes_per_token]
    ideal = 8192 * part.scan_flops_per_token / rates.sustained_peak(job, "bf16")
    factor = rates.kernel_factor(job)
    assert forward > factor * moved[0]
    assert backward > factor * moved[1] > 2 * factor * ideal
