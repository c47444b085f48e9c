from dataclasses import replace
from math import ceil

import pytest
from conftest import JobMaker

from planner.collectives import operations
from planner.core.units import MIB
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.domain.model import Part
from planner.domain.strategy import Layout, Recompute
from planner.parallel.partition import stage, stage_parameters
from planner.step_time import communication, compute, pieces, pipeline
from planner.step_time.micro_batch import Spent, part_seconds

LLAMA = "meta-llama/Llama-2-7b-hf"
PLAIN = Layout()
NETWORK = {"nodes": 2, "inter_node": {"gb_per_s_per_node": 100}}


def block(job: Job) -> Part:
    return job.model.blocks[0]


def test_groups_are_numbered_as_megatron_numbers_them(make_job: JobMaker) -> None:
    s = Layout(
        tensor_parallel_size=2,
        context_parallel_size=3,
        data_parallel_shard_size=4,
        data_parallel_replicate_size=5,
        pipeline_parallel_size=7,
    )
    assert communication.tensor_group(s) == Group(ranks=2, stride=1)
    assert communication.context_group(s) == Group(ranks=3, stride=2)
    assert communication.shard_group(s) == Group(ranks=12, stride=2)
    assert communication.replica_group(s) == Group(ranks=5, stride=24)
    assert pipeline.group(make_job(gpus=8), s) == Group(ranks=2, stride=120)
    assert communication.expert_group(replace(s, expert_parallel_size=4)) == Group(
        ranks=4, stride=2
    )


def test_tensor_parallel_layers_sum_twice(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"sequence_length": 2048})
    s = replace(PLAIN, tensor_parallel_size=4)
    size = 2 * 2048 * 4096
    once = operations.all_reduce(job.cluster, Group(ranks=4), size)
    assert communication.tensor_parallel(job, s, block(job)) == pytest.approx(2 * once)
    assert communication.tensor_parallel(job, PLAIN, block(job)) == 0
    assert communication.tensor_parallel(job, s, job.model.parts[0]) == 0


def test_sequence_parallelism_gathers_and_scatters_instead(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"sequence_length": 2048})
    s = replace(PLAIN, tensor_parallel_size=4, sequence_parallel=True)
    size, group = 2 * 2048 * 4096, Group(ranks=4)
    both = operations.all_gather(job.cluster, group, size) + operations.reduce_scatter(
        job.cluster, group, size
    )
    assert communication.tensor_parallel(job, s, block(job)) == pytest.approx(2 * both)


def test_selective_recompute_gathers_inputs_again_and_scatters_nothing(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"framework": "torchtitan", "sequence_length": 2048})
    s = replace(
        PLAIN, tensor_parallel_size=4, sequence_parallel=True, recompute=Recompute.SELECTIVE
    )
    once = operations.all_gather(job.cluster, Group(ranks=4), 2 * 2048 * 4096)
    assert communication.gathered_again(job, s, block(job)) == pytest.approx(2 * once)
    for other in (replace(s, recompute=Recompute.FULL), replace(s, sequence_parallel=False)):
        assert communication.gathered_again(job, other, block(job)) == 0
    # Megatron repeats attention's scores alone.
    megatron = make_job(LLAMA, gpus=8, recipe={"framework": "megatron", "sequence_length": 2048})
    assert communication.gathered_again(megatron, s, block(megatron)) == 0


def test_fp8_is_gathered_in_one_byte_and_scattered_in_two(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron", "precision": "fp8", "sequence_length": 2048}
    job = make_job(LLAMA, gpu="h100", gpus=8, recipe=recipe)
    s = replace(PLAIN, tensor_parallel_size=4, sequence_parallel=True)
    size, group = 2 * 2048 * 4096, Group(ranks=4)
    both = operations.all_gather(job.cluster, group, size / 2) + operations.reduce_scatter(
        job.cluster, group, size
    )
    assert communication.tensor_parallel(job, s, block(job)) == pytest.approx(2 * both)


def test_rowwise_scales_leave_what_is_gathered_in_two_bytes(make_job: JobMaker) -> None:
    recipe = {"framework": "torchtitan", "precision": "fp8", "sequence_length": 2048}
    s = replace(PLAIN, tensor_parallel_size=4, sequence_parallel=True)
    wide, tensorwise, rowwise = (
        make_job(LLAMA, gpu="h100", gpus=8, recipe=recipe | more)
        for more in ({"precision": "bf16-mixed"}, {}, {"fp8_recipe": "rowwise"})
    )
    exchange = communication.tensor_parallel(rowwise, s, block(rowwise))
    assert exchange == communication.tensor_parallel(wide, s, block(wide))
    assert exchange > communication.tensor_parallel(tensorwise, s, block(tensorwise))


def test_fp32_activations_are_twice_as_large(make_job: JobMaker) -> None:
    half, full = (make_job(recipe={"precision": name}) for name in ("bf16-mixed", "fp32"))
    assert communication.activation_bytes(full, PLAIN) == 2 * communication.activation_bytes(
        half, PLAIN
    )


SHARED = replace(PLAIN, context_parallel_size=4)
OWN_KEYS = 2 * (8192 / 4) * 2 * 4096
"""Bytes of keys and values of a rank: Llama 2 has as many heads of them as of queries."""


def long_job(make_job: JobMaker, framework: str) -> Job:
    return make_job(LLAMA, gpus=8, recipe={"sequence_length": 8192, "framework": framework})


def test_a_ring_passes_keys_and_values_on(make_job: JobMaker) -> None:
    job = long_job(make_job, "megatron")
    hop = operations.send(job.cluster, Group(ranks=4), OWN_KEYS)
    forward, backward = communication.context_parallel(job, SHARED, block(job))
    assert (forward, backward) == pytest.approx((3 * hop, 6 * hop))
    assert communication.context_parallel(job, PLAIN, block(job)) == (0, 0)
    assert communication.context_parallel(job, SHARED, job.model.parts[0]) == (0, 0)


@pytest.mark.parametrize(("length", "exposed"), [(1024, 1), (131_072, 0)])
def test_a_ring_costs_what_attention_does_not_hide(
    make_job: JobMaker, length: int, exposed: int
) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"sequence_length": length, "framework": "megatron"})
    hop = operations.send(job.cluster, Group(ranks=4), OWN_KEYS * length / 8192)
    looking = compute.attention(job, SHARED, block(job))
    looking_back = compute.attention_backward(job, SHARED, block(job))
    assert (3 * hop > looking, 6 * hop > looking_back) == (exposed, exposed)
    spent = part_seconds(job, SHARED, block(job)).of(Spent.CONTEXT)
    assert spent == pytest.approx(exposed * (3 * hop - looking + 6 * hop - looking_back))


def test_keys_and_values_are_gathered_twice_and_their_gradients_scattered(
    make_job: JobMaker,
) -> None:
    job = long_job(make_job, "torch")
    gather = operations.all_gather(job.cluster, Group(ranks=4), 4 * OWN_KEYS)
    scatter = operations.reduce_scatter(job.cluster, Group(ranks=4), 4 * OWN_KEYS)
    both = communication.context_parallel(job, SHARED, block(job))
    assert both == pytest.approx((gather, gather + scatter))
    assert communication.context_parallel(job, PLAIN, block(job)) == (0, 0)


def test_heads_are_dealt_out_for_attention_and_back(make_job: JobMaker) -> None:
    job = long_job(make_job, "deepspeed")
    dealt = operations.all_to_all(job.cluster, Group(ranks=4), 2 * OWN_KEYS)
    assert communication.context_parallel(job, SHARED, block(job)) == pytest.approx((dealt, dealt))


def test_tokens_go_to_their_experts_and_back(make_job: JobMaker) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, recipe={"sequence_length": 1024})
    s = replace(PLAIN, data_parallel_shard_size=8, expert_parallel_size=8)
    way = operations.all_to_all(job.cluster, Group(ranks=8), 2 * 2 * 1024 * 4096)
    assert communication.expert_parallel(job, s, block(job)) == pytest.approx(2 * way)
    dense = make_job(LLAMA, gpus=8)
    assert communication.expert_parallel(dense, s, block(dense)) == 0


def test_tokens_on_their_way_hide_behind_other_micro_batches(make_job: JobMaker) -> None:
    s = replace(PLAIN, data_parallel_shard_size=8, expert_parallel_size=8)
    shown, hidden = (
        make_job(
            "mistralai/Mixtral-8x7B-v0.1",
            gpus=8,
            recipe={"framework": "megatron", "expert_parallel_overlap": is_hidden},
        )
        for is_hidden in (False, True)
    )
    share = hidden.framework.experts.overlapped_fraction
    assert 0 < share < 1
    assert communication.expert_parallel(hidden, s, block(hidden)) == pytest.approx(
        (1 - share) * communication.expert_parallel(shown, s, block(shown))
    )


def test_ddp_reduces_all_gradients_and_zero_scatters_them(make_job: JobMaker) -> None:
    job = make_job(gpus=4, recipe={"framework": "torch"})
    ddp = replace(PLAIN, data_parallel_replicate_size=4)
    size = 4 * job.model.parameters
    buckets = pieces.buckets(job, ddp, job.model.parameters, 4)
    whole = operations.all_reduce(job.cluster, Group(ranks=4), size, buckets)
    assert communication.reduce_gradients(job, ddp, stage(job, ddp, 0)) == pytest.approx(whole)
    zero = replace(PLAIN, data_parallel_shard_size=4, zero_stage=3)
    at = stage(job, zero, 0)
    calls = pieces.blocks_of(at)
    parts = operations.reduce_scatter(job.cluster, Group(ranks=4), size, calls)
    assert communication.reduce_gradients(job, zero, at) == pytest.approx(parts)
    assert bool(communication.scatters(job, zero))
    assert not communication.scatters(job, ddp)


def test_hybrid_shards_reduce_a_shard_over_the_replicas(make_job: JobMaker) -> None:
    job = make_job(gpus=8, cluster=NETWORK)
    s = replace(PLAIN, data_parallel_shard_size=8, data_parallel_replicate_size=2, zero_stage=3)
    at = stage(job, s, 0)
    size, calls = 4 * job.model.parameters, pieces.blocks_of(at)
    inner = operations.reduce_scatter(job.cluster, Group(ranks=8), size, calls)
    outer = operations.all_reduce(job.cluster, Group(ranks=2, stride=8), size / 8, calls)
    assert communication.reduce_gradients(job, s, at) == pytest.approx(inner + outer)


def test_experts_are_reduced_among_those_that_hold_them(make_job: JobMaker) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8)
    s = replace(PLAIN, data_parallel_shard_size=8, zero_stage=3)
    at = stage(job, s, 0)
    spread = replace(s, expert_parallel_size=8)
    for cost in (communication.reduce_gradients, communication.gather_parameters):
        assert cost(job, spread, at) < cost(job, s, at) / 5


def test_local_sgd_averages_experts_too(make_job: JobMaker) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=4)
    s = replace(PLAIN, data_parallel_replicate_size=4)
    size = job.precision.parameter_bytes * 46_702_792_704
    # DDP's first bucket holds 1 MiB, the others 25.
    buckets = 1 + ceil((size - MIB) / (25 * MIB))
    averaged = operations.all_reduce(job.cluster, Group(ranks=4), size, buckets)
    assert communication.average_parameters(job, s, stage(job, s, 0)) == pytest.approx(averaged)


@pytest.mark.parametrize(("generation", "is_in_pieces"), [(0, 0), (1, 1), (4, 1)])
def test_gemms_hide_pieces_of_exchanges_where_gpus_have_nvlink(
    make_job: JobMaker, generation: int, is_in_pieces: int
) -> None:
    job = make_job(gpu="h100", gpus=8, recipe={"framework": "megatron", "precision": "fp8"})
    gpu = replace(job.cluster.gpu, nvlink_generation=generation)
    wired = replace(job, cluster=replace(job.cluster, gpu=gpu))
    overlap = job.framework.overlap
    s = replace(PLAIN, tensor_parallel_size=8, sequence_parallel=True)
    pieces = overlap.tensor_overlapped_fraction
    assert communication.hidden_of_tensor(wired, s) == (
        (pieces, pieces) if is_in_pieces else (0.0, overlap.tensor_fraction)
    )


def test_experts_that_tensors_divide_are_reduced_among_fewer_ranks(make_job: JobMaker) -> None:
    """Of 16 ranks 8 hold one copy of all experts: half of each in a pair, four pairs."""
    recipe = {"framework": "megatron"}
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, cluster=NETWORK, recipe=recipe)
    s = replace(
        PLAIN, data_parallel_replicate_size=8, tensor_parallel_size=2, expert_parallel_size=4
    )
    at = stage(job, s, 0)
    added = 0.0
    groups = (Group(ranks=8, stride=2), Group(ranks=2, stride=8))
    for held, group in zip(stage_parameters(job, s, at), groups, strict=True):
        size = job.precision.reduce_bytes * float(held)
        # Without overlap Megatron reduces all after backward, at once.
        added += float(operations.all_reduce(job.cluster, group, size, 1))
    assert communication.reduce_gradients(job, s, at) == pytest.approx(added)


def test_local_sgd_averages_parameters(make_job: JobMaker) -> None:
    job = make_job(gpus=4, recipe={"precision": "fp32"})
    s = replace(PLAIN, data_parallel_replicate_size=4)
    at = stage(job, s, 0)
    assert communication.average_parameters(job, s, at) == pytest.approx(
        communication.reduce_gradients(job, s, at)
    )


def test_compute_beside_a_collective_slows_by_what_carries_it(make_job: JobMaker) -> None:
    staged, nvlink, apart = (
        communication.slowdown(job, replace(PLAIN, data_parallel_replicate_size=ranks))
        for job, ranks in (
            (make_job(gpu="titan-rtx", gpus=2, cluster={"peer_to_peer": False}), 2),
            (make_job(gpus=8), 8),
            (make_job(gpus=8, cluster=NETWORK), 16),
        )
    )
    assert staged == 1 > nvlink
    assert apart == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("network", "s", "lost"),
    [
        ("400Gbit/s", Layout(data_parallel_shard_size=16, zero_stage=3), 1.0),
        ("10Gbit/s", Layout(data_parallel_shard_size=16, zero_stage=3), 1.125 / 4.81),
        ("10Gbit/s", Layout(tensor_parallel_size=8, data_parallel_shard_size=2, zero_stage=3), 0.1),
        (
            "10Gbit/s",
            Layout(data_parallel_shard_size=8, data_parallel_replicate_size=2, zero_stage=3),
            1.0,
        ),
        ("10Gbit/s", Layout(data_parallel_replicate_size=8, pipeline_parallel_size=2), 1.0),
    ],
    ids=[
        "as fast as the node",
        "slower than the node",
        "one rank a node",
        "shards in a node",
        "replicas in a node",
    ],
)
def test_groups_that_leave_a_node_still_copy_through_its_host(
    make_job: JobMaker, network: str, s: Layout, lost: float
) -> None:
    """RTX 4090 copy 4.81 GB/s through host memory, and less beside a network of which 1.125 GB/s reach them."""
    job = make_job(gpu="rtx-4090", gpus=8, cluster={"nodes": 2, "inter_node": network})
    assert communication.slowdown(job, s) == pytest.approx(lost, abs=0.01)
