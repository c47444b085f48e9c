"""Power limits, waits beside pipelines, and kernels that fall apart: what slows a step beyond its arithmetic."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.catalog import records
from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute, tabulate
from planner.request.schema import parse_request, resolve
from planner.step_time import communication, elementwise, host, rates
from planner.step_time.ledger import estimate_step_time


def of_watts(**cluster: Any) -> Job:
    request = {"model": "gpt2", "cluster": {"gpus_per_node": 1, **cluster}}
    return resolve(parse_request(request), allow_paths=False).job


def test_a_card_at_a_lower_limit_multiplies_at_lower_clocks() -> None:
    whole, capped, same = (
        rates.power_share(of_watts(gpu="h100-sxm-80gb", gpu_power_watts=watts))
        for watts in (None, 500, 900)
    )
    assert whole == same == 1
    assert capped == pytest.approx((500 / 700) ** 0.55)
    assert rates.power_share(of_watts(gpu="h100-sxm-96gb")) == pytest.approx(capped)


def test_large_matmuls_of_a_v100s_run_at_what_250_of_300_watts_allow() -> None:
    """88.9 TFLOP/s in fp16: zzc0721/torch-performance-test-data @9d82827, database.md."""
    job = of_watts(gpu="v100s-pcie-32gb")
    reached = rates.sustained_peak(job, "fp16") / job.framework.matmul.sustained_fraction
    assert reached == pytest.approx(88.9e12, rel=0.03)


@pytest.mark.parametrize(
    ("draws", "watts", "note"),
    [(0, 200, "a limit of 200 W changes nothing"), (400, 900, "a limit of 900 W changes nothing")],
)
def test_a_limit_that_changes_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch, draws: float, watts: int, note: str
) -> None:
    known = replace(records.gpu("a100-sxm-80gb"), tdp_watts=draws)
    monkeypatch.setattr(records, "gpu", lambda _name: known)
    cluster = {"gpu": "a100-sxm-80gb", "gpu_power_watts": watts}
    request = {"model": "gpt2", "cluster": cluster}
    resolved = resolve(parse_request(request), allow_paths=False)
    assert rates.power_share(resolved.job) == 1
    assert any(note in each for each in resolved.notes)


def test_exchanges_wait_beside_a_pipeline_between_nodes_and_more_with_more_ranks(
    make_job: JobMaker,
) -> None:
    job = make_job(
        gpu="h100-sxm-80gb",
        gpus=8,
        cluster={"nodes": 4},
        recipe={"framework": "nanotron", "precision": "bf16-mixed"},
    )
    few, many, flat = (
        host.exchange_wait(job, Layout(tensor_parallel_size=t, pipeline_parallel_size=p))
        for t, p in ((2, 2), (8, 2), (8, 1))
    )
    assert 0 == flat < few < many
    assert many == pytest.approx(4 * few)
    layouts = [
        Layout(
            data_parallel_replicate_size=32 // (t * p),
            tensor_parallel_size=t,
            sequence_parallel=True,
            pipeline_parallel_size=p,
            gradient_accumulation_steps=4,
        )
        for t, p in ((2, 2), (8, 2), (8, 1))
    ]
    together = estimate_step_time(job, tabulate(layouts)).step_seconds
    alone = [float(estimate_step_time(job, each).step_seconds) for each in layouts]
    assert together == pytest.approx(alone)


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (8, 1), (16, 2), (32, 4)])
def test_a_wait_grows_with_the_root_of_the_nodes(
    make_job: JobMaker, ranks: int, nodes: int
) -> None:
    recipe = {"framework": "nanotron", "precision": "bf16-mixed"}
    job = make_job(gpu="h100-sxm-80gb", gpus=8, cluster={"nodes": 8}, recipe=recipe)
    each = job.framework.host.exchange_seconds_per_rank
    s = Layout(tensor_parallel_size=ranks, pipeline_parallel_size=2)
    assert host.exchange_wait(job, s) == pytest.approx(each * ranks * nodes**0.5)
    in_one = replace(job, cluster=replace(job.cluster, nodes=1))
    assert host.exchange_wait(in_one, s) == 0


def test_a_ring_that_leaves_its_node_takes_longer_for_every_other_rank(make_job: JobMaker) -> None:
    def exchange(tensor_ranks: int, framework: str = "nanotron") -> float:
        recipe = {"framework": framework, "precision": "bf16-mixed"}
        job = make_job(gpu="h100-sxm-80gb", gpus=8, cluster={"nodes": 4}, recipe=recipe)
        s = Layout(tensor_parallel_size=tensor_ranks, sequence_parallel=True)
        return float(communication.tensor_parallel(job, s, job.model.blocks[0]))

    # A gather and a scatter for each of a block's two sums, of 7, 15 and 31 other ranks.
    inside, pair, four = (exchange(t) - exchange(t, "megatron") for t in (8, 16, 32))
    assert (inside, pair, four) == pytest.approx((0, 4 * 15 * 55e-6, 4 * 31 * 55e-6))


def test_a_softmax_whose_heads_do_not_fit_its_kernel_falls_apart(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron", "attention": "eager", "precision": "fp16-mixed"}
    job = make_job("gpt2", gpus=8, recipe=recipe)
    part = job.model.blocks[0]
    fits, falls = (
        elementwise.unfuses_softmax(job, Layout(tensor_parallel_size=t, micro_batch_size=b), part)
        for t, b in ((3, 1), (6, 1))
    )
    assert (float(fits), float(falls)) == (0, 1)
    torch = make_job("gpt2", gpus=8, recipe=recipe | {"framework": "torch"})
    assert float(elementwise.unfuses_softmax(torch, Layout(tensor_parallel_size=6), part)) == 0


def test_a_fixed_time_per_block_is_added_to_every_micro_batch(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=1, recipe={"framework": "megatron"})
    s = Layout(gradient_accumulation_steps=8, recompute=Recompute.FULL)
    slow = replace(
        job, framework=replace(job.framework, host=replace(job.framework.host, layer_seconds=0.01))
    )
    longer = estimate_step_time(slow, s).step_seconds - estimate_step_time(job, s).step_seconds
    assert float(longer) == pytest.approx(8 * 12 * 0.01)
