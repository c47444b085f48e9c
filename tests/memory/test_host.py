from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import records
from planner.core.units import GIB
from planner.domain.strategy import Layout, Offload, tabulate
from planner.memory.host import estimate_host_memory
from planner.request.schema import parse_request, resolve

DDP = Layout(data_parallel_replicate_size=4)


def sharded(stage: int, ranks: int = 8, **fields: Any) -> Layout:
    return Layout(data_parallel_shard_size=ranks, zero_stage=stage, **fields)


def recipe(framework: str, precision: str = "bf16-mixed") -> dict[str, Any]:
    return {"framework": framework, "precision": precision, "global_batch_size": 8}


@pytest.mark.parametrize(
    ("stage", "offload", "published"),
    [(2, "optimizer", 63.72), (3, "optimizer", 63.72), (3, "optimizer+parameters", 71.69)],
)
def test_offloaded_states_are_those_of_deepspeeds_estimators(
    make_job: JobMaker, stage: int, offload: str, published: float
) -> None:
    """DeepSpeed docs, memory.rst: t5-3b on 8 GPUs of a node, with zero.Init.

    16 B x P x 1.5 with the optimizer (fp32 gradients, master copy and two states; 1.5 for
    buffers), 18 B with the 16-bit parameters.
    """
    job = make_job("google-t5/t5-3b", gpus=8, recipe=recipe("deepspeed"))
    host = estimate_host_memory(job, sharded(stage, offload=Offload(offload)))
    assert host.training_bytes / GIB == pytest.approx(published, rel=1e-3)
    assert sum(float(term.amount) for term in host.terms) == pytest.approx(host.training_bytes)


def test_loading_is_what_deepspeeds_estimator_says_but_its_margin(make_job: JobMaker) -> None:
    """The same page: 127.45 GB without zero.Init, 4 B x P x 8 ranks x 1.5.

    The 1.5 is its margin for pinned buffers, which weights that are only read do not need.
    """
    job = make_job("google-t5/t5-3b", gpus=8, recipe=recipe("deepspeed"))
    host = estimate_host_memory(job, sharded(2, offload=Offload.OPTIMIZER))
    assert 1.5 * host.loading.amount / GIB == pytest.approx(127.45, rel=1e-3)
    assert host.peak_bytes == host.loading.amount > host.training_bytes
    assert "8 x 4 B" in host.loading.how


@pytest.mark.parametrize(
    ("framework", "precision", "strategy", "bytes_per_parameter"),
    [
        ("torch", "bf16-mixed", Layout(data_parallel_replicate_size=8), 8 * 4),
        ("torch", "bf16", Layout(data_parallel_replicate_size=8), 8 * 2),
        ("torch", "bf16", sharded(3), 1 * 2),
        ("torch", "bf16-mixed", sharded(1), 8 * 4),
        ("torch", "bf16-mixed", Layout(tensor_parallel_size=8), 1 * 4),
        ("torch", "bf16-mixed", replace(DDP, tensor_parallel_size=2), 1 * 4),
        ("torch", "bf16-mixed", replace(DDP, pipeline_parallel_size=2), 1 * 4),
        ("torch", "bf16-mixed", replace(DDP, context_parallel_size=2), 1 * 4),
        ("deepspeed", "bf16-mixed", Layout(pipeline_parallel_size=8), 1 * 4),
        ("deepspeed", "bf16-mixed", sharded(3), 1 * 4),
        ("composer", "bf16-mixed", sharded(3), 0),
        ("torchtitan", "bf16-mixed", sharded(3), 0),
        ("megatron", "bf16-mixed", sharded(1), 0),
    ],
)
def test_weights_are_read_by_every_rank_by_one_or_in_shards(
    make_job: JobMaker,
    framework: str,
    precision: str,
    strategy: Layout,
    bytes_per_parameter: int,
) -> None:
    """A 32 B model in bf16 on 8 ranks of a node takes 512 GB, or 64 where one rank reads it."""
    job = make_job("gpt2", gpus=8, recipe=recipe(framework, precision))
    host = estimate_host_memory(job, strategy)
    assert host.loading.amount == bytes_per_parameter * job.model.parameters
    assert host.training_bytes == 0


def test_fsdp_offload_holds_sixteen_bytes_per_parameter_and_pinning(make_job: JobMaker) -> None:
    """fp32 parameters, gradients and two states: 16 B x P on one node, half on each of two."""
    job = make_job("gpt2", gpus=8, recipe=recipe("torch"))
    amounts = {
        term.name: term.amount
        for term in estimate_host_memory(
            job, sharded(3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
        ).terms
    }
    parameters = job.model.parameters
    assert amounts == pytest.approx(
        {
            "host_parameters": 4 * parameters,
            "host_gradients": 4 * parameters,
            "host_optimizer_states": 8 * parameters,
            "host_pinned_buffers": 0.5 * 16 * parameters,
        }
    )
    wider = replace(job, cluster=replace(job.cluster, nodes=2))
    host = estimate_host_memory(wider, sharded(3, 16, offload=Offload.OPTIMIZER_AND_PARAMETERS))
    assert host.training_bytes == pytest.approx(12 * parameters)


def test_megatron_takes_only_its_share_of_gradients_to_the_host(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, recipe=recipe("megatron"))
    host = estimate_host_memory(job, sharded(1, offload=Offload.OPTIMIZER))
    assert host.training_bytes == pytest.approx(1.5 * 16 * job.model.parameters)


@pytest.mark.parametrize(("available", "fits"), [(0.0, None), (1e9, False), (1e12, True)])
def test_a_known_node_gets_a_verdict(
    make_job: JobMaker, available: float, *, fits: bool | None
) -> None:
    job = make_job("gpt2", gpus=8, recipe=recipe("torch"))
    node = replace(job, cluster=replace(job.cluster, host_memory_bytes=available))
    host = estimate_host_memory(node, sharded(3, offload=Offload.OPTIMIZER_AND_PARAMETERS))
    assert (host.available_bytes, host.fits) == (available, fits)


@settings(max_examples=30)
@given(st.sampled_from(["deepspeed", "torch", "torchtitan", "accelerate"]), st.integers(1, 3))
def test_more_nodes_never_need_more_of_each(framework: str, power: int) -> None:
    def training(nodes: int) -> float:
        payload = {
            "model": "gpt2",
            "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": nodes},
            "recipe": recipe(framework) | {"global_batch_size": 8 * nodes},
        }
        job = resolve(parse_request(payload), allow_paths=False).job
        offload = records.framework(framework).host_memory.offloads[-1]
        s = sharded(3, 8 * nodes, offload=Offload(offload))
        return float(estimate_host_memory(job, s).training_bytes)

    assert training(2**power) == pytest.approx(training(1) / 2**power)


def test_every_rank_reads_and_packs_quantised_weights_for_itself(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=4, zero_stage=3, gradient_accumulation_steps=2)
    blocks = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    others = 2 * (2 * 32000 * 4096 + 65 * 4096)
    for method, expected in (
        ("lora", 2 * blocks + others),
        ("qlora", 4 * ((1 / 2 + 4 / 64) * blocks + others)),
    ):
        recipe = {"method": method, "global_batch_size": 8}
        job = make_job("meta-llama/Llama-2-7b-hf", gpus=4, recipe=recipe)
        loading = estimate_host_memory(job, s).loading
        assert float(loading.amount) == pytest.approx(expected)


def test_a_row_of_a_table_has_the_ledger_of_its_layout_alone(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4, recipe={"global_batch_size": 16})
    shards: dict[str, Any] = {"data_parallel_shard_size": 4, "zero_stage": 3}
    layouts = [
        Layout(data_parallel_replicate_size=4, gradient_accumulation_steps=4),
        Layout(**shards, offload=Offload.OPTIMIZER_AND_PARAMETERS),
        Layout(**shards, activation_offload_layers=6),
    ]
    hosts = estimate_host_memory(job, tabulate(layouts))
    for row, layout in enumerate(layouts):
        found, alone = hosts.at(row), estimate_host_memory(job, layout)
        assert found.peak_bytes == float(alone.peak_bytes)
        assert found.training_bytes == float(alone.training_bytes)
        lines = [(term.name, term.how) for term in (*found.terms, found.loading)]
        assert lines == [(term.name, term.how) for term in (*alone.terms, alone.loading)]
