from dataclasses import replace

import numpy as np
import pytest
from conftest import JobMaker

from planner.collectives import operations
from planner.collectives.timed import timed_seconds
from planner.core.term import Column
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.domain.strategy import Layout, PipelineSchedule, vary
from planner.domain.timed import TimedCollective
from planner.step_time import communication, pipeline
from planner.step_time.ledger import estimate_step_time

LLAMA = "meta-llama/Llama-2-7b-hf"
PLAIN = Layout()
NETWORK = {"nodes": 2, "inter_node": {"gb_per_s_per_node": 100}}
MEGATRON = {"framework": "megatron", "sequence_length": 2048, "global_batch_size": 64}


def amounts(job: Job, s: Layout) -> dict[str, float]:
    return {term.name: float(term.amount) for term in estimate_step_time(job, s).terms}


def test_a_pipeline_over_nodes_waits_for_the_hop_that_leaves_one(make_job: JobMaker) -> None:
    s = Layout(pipeline_parallel_size=4, data_parallel_replicate_size=4)
    job = make_job(LLAMA, gpus=8, cluster=NETWORK, recipe={"sequence_length": 2048})
    assert pipeline.group(job, s) == Group(ranks=3, stride=4)
    # Four pipelines share the node's 100 GB/s, and each hands on 2 B x 2,048 tokens x 4,096.
    least = 2 * 2048 * 4096 / (100e9 / 4)
    assert pipeline.transfer(job, s) > least


@pytest.mark.parametrize(
    ("framework", "precision", "element"),
    [("torch", "bf16-mixed", 4), ("torch", "bf16", 2), ("deepspeed", "bf16-mixed", 2)],
)
def test_stages_hand_on_the_hidden_state_in_the_dtype_between_blocks(
    make_job: JobMaker, framework: str, precision: str, element: int
) -> None:
    """Under autocast it is fp32: what `isend` is given by torch.distributed.pipelining."""
    recipe = {"sequence_length": 2048, "framework": framework, "precision": precision}
    job = make_job(LLAMA, gpus=8, recipe=recipe)
    s = replace(PLAIN, pipeline_parallel_size=4, data_parallel_replicate_size=2)
    hop = operations.send(job.cluster, Group(ranks=2, stride=2), element * 2048 * 4096)
    assert pipeline.transfer(job, s) == pytest.approx(hop)
    assert pipeline.transfer(job, PLAIN) == 0


def test_a_tied_head_is_added_up_between_first_and_last_stage(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, recipe={"global_batch_size": 64})
    s = replace(PLAIN, pipeline_parallel_size=2, data_parallel_replicate_size=4)
    gradient = job.precision.reduce_bytes * 50257 * 768
    added = operations.all_reduce(job.cluster, Group(ranks=2, stride=4), gradient)
    assert pipeline.tied_gradients(job, s) == pytest.approx(added)
    assert pipeline.tied_gradients(job, PLAIN) == 0
    in_a_v = replace(s, virtual_pipeline_size=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE_V)
    assert pipeline.tied_gradients(job, in_a_v) == 0
    assert pipeline.tied_gradients(make_job(LLAMA, gpus=8), s) == 0
    adapters = make_job("gpt2", gpus=8, recipe={"method": "lora"})
    assert pipeline.tied_gradients(adapters, s) == 0


@pytest.mark.parametrize("size", [2, 3, 5, 6, 7])
def test_ends_of_a_pipeline_leave_a_node_where_it_does(make_job: JobMaker, size: int) -> None:
    s = replace(PLAIN, pipeline_parallel_size=size)
    alone = pipeline.tied_gradients(make_job("gpt2", gpus=size), s)
    wide = make_job("gpt2", gpus=size - 1, cluster={**NETWORK, "nodes": size})
    assert 0 < alone < pipeline.tied_gradients(wide, s)


def test_megatron_sends_shares_between_nodes_and_gathers_them_within(make_job: JobMaker) -> None:
    s = replace(PLAIN, pipeline_parallel_size=2, tensor_parallel_size=8)
    torch, megatron = (
        pipeline.transfer(make_job(LLAMA, gpus=8, cluster=NETWORK, recipe={"framework": name}), s)
        for name in ("torch", "megatron")
    )
    assert megatron < torch / 3
    job = make_job(LLAMA, gpus=8, cluster=NETWORK, recipe={"framework": "megatron"})
    shared = pipeline.transfer(job, replace(s, sequence_parallel=True))
    size = communication.activation_bytes(job, s)
    assert megatron - shared == pytest.approx(
        operations.all_gather(job.cluster, Group(ranks=8), size)
    )


def test_chunks_shorten_the_bubble_and_hide_the_hand_overs(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, recipe=MEGATRON)
    one = Layout(pipeline_parallel_size=8, gradient_accumulation_steps=64)
    plain, chunked = (amounts(job, replace(one, virtual_pipeline_size=v)) for v in (1, 4))
    assert plain["pipeline_bubble"] == pytest.approx(4 * chunked["pipeline_bubble"])
    assert chunked["pipeline_transfer"] == pytest.approx(
        plain["pipeline_transfer"] * (2 * 4 * 7) / (2 * (64 + 7))
    )


def test_one_stage_has_no_term_of_a_pipeline(make_job: JobMaker) -> None:
    table = vary(PLAIN, pipeline_parallel_size=np.array([1, 2]))
    time = estimate_step_time(make_job("gpt2", gpus=2), table)
    names = [{term.name for term in time.at(row).terms} for row in (0, 1)]
    assert names[1] - names[0] == {"pipeline_bubble", "pipeline_transfer"}


def test_two_stages_hand_over_both_ways_at_once(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=4, recipe=MEGATRON)
    one = Layout(pipeline_parallel_size=2, gradient_accumulation_steps=8)
    gpipe = replace(one, pipeline_schedule=PipelineSchedule.GPIPE)
    four = replace(one, pipeline_parallel_size=4)
    hop = float(pipeline.transfer(job, one))
    times = {each: amounts(job, each)["pipeline_transfer"] / hop for each in (one, gpipe, four)}
    assert times == pytest.approx({one: 8 + 1, gpipe: 2 * (8 + 1), four: 2 * (8 + 3)})


def test_chunks_wait_for_hand_overs_that_take_longer_than_they_compute(make_job: JobMaker) -> None:
    """The more chunks, the more a slow network carries; NVLink hides all of it."""
    recipe = {"framework": "megatron", "global_batch_size": 64, "sequence_length": 2048}
    bounds = {}
    for link in ("ethernet-1g", "infiniband-ndr"):
        cluster = {"nodes": 2, "inter_node": link}
        job = make_job("meta-llama/Llama-2-7b-hf", gpus=8, cluster=cluster, recipe=recipe)
        s = Layout(
            tensor_parallel_size=8,
            pipeline_parallel_size=2,
            virtual_pipeline_size=8,
            pipeline_schedule=PipelineSchedule.INTERLEAVED,
            gradient_accumulation_steps=64,
        )
        terms = {t.name: t for t in estimate_step_time(job, s).terms}
        bounds[link] = (
            float(terms["pipeline_transfer"].amount),
            64 * 8 * pipeline.transfer(job, s),
        )
    slow, hidden = bounds["ethernet-1g"], bounds["infiniband-ndr"]
    assert slow[0] > 0.5 * slow[1]
    assert hidden[0] < 0.1 * hidden[1]


@pytest.mark.parametrize(("stages", "sent"), [(2, 3), (4, 4)])
def test_no_step_is_shorter_than_what_a_stage_sends_over_its_port(
    make_job: JobMaker, stages: int, sent: int
) -> None:
    """Two chunks: two forward and two backward, but for the ends, which are all that two stages have."""
    recipe = {"framework": "megatron", "global_batch_size": 64, "sequence_length": 2048}
    cluster = {"nodes": stages, "inter_node": "ethernet-1g"}
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=1, cluster=cluster, recipe=recipe)
    s = Layout(
        pipeline_parallel_size=stages,
        virtual_pipeline_size=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED,
        gradient_accumulation_steps=64,
    )
    step = float(estimate_step_time(job, s).step_seconds)
    port = 64 * sent * float(pipeline.transfer(job, s))
    assert port < step < 1.1 * port


def test_chunks_lose_what_a_machine_loses_beside_hand_overs(make_job: JobMaker) -> None:
    """Cores send their own messages: what is hidden behind a chunk still costs its share."""
    job = make_job(LLAMA, gpus=2, recipe=MEGATRON)
    chunks = Layout(
        pipeline_parallel_size=2,
        virtual_pipeline_size=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED,
        gradient_accumulation_steps=64,
    )
    plain = replace(
        chunks, virtual_pipeline_size=1, pipeline_schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    )

    def on_timed_wire(lost: float) -> Job:
        curve = TimedCollective(
            operation="send",
            ranks=2,
            ranks_in_node=2,
            sizes_bytes=(1e3, 1e9),
            seconds=(1e-6, 1.0),
            slowdown=lost,
        )
        return replace(job, cluster=replace(job.cluster, timed_collectives=(curve,)))

    def handed(s: Layout, lost: float) -> float:
        return amounts(on_timed_wire(lost), s)["pipeline_transfer"]

    hop = float(pipeline.transfer(on_timed_wire(0.0), chunks))
    waited, hidden = 2 * 2 * 1, 64 * 3 - 2 * 2 * 1
    assert handed(chunks, 0.0) == pytest.approx(waited * hop)
    assert handed(chunks, 0.5) == pytest.approx((waited + 0.5 * hidden) * hop)
    assert handed(plain, 0.5) == pytest.approx(handed(plain, 0.0))


def test_rows_lose_what_was_timed_beside_hand_overs_of_their_own(make_job: JobMaker) -> None:
    """Two stages of two chunks: 3 hand-overs of each of 64 micro-batches, of which 4 are exposed."""
    job = make_job(LLAMA, gpus=8, recipe=MEGATRON)
    timed = TimedCollective(
        operation="send",
        ranks=2,
        ranks_in_node=2,
        sizes_bytes=(1e6, 1e9),
        seconds=(1e-4, 1e-1),
        slowdown=0.0,
    )
    s = Layout(
        virtual_pipeline_size=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED,
        gradient_accumulation_steps=64,
    )
    table = vary(s, pipeline_parallel_size=np.array([2, 4]))

    def exchanged(slowdown: float) -> Column:
        curves = (replace(timed, slowdown=slowdown),)
        own = replace(job, cluster=replace(job.cluster, timed_collectives=curves))
        (term,) = [t for t in estimate_step_time(own, table).terms if t.name == "pipeline_transfer"]
        return np.asarray(term.amount)

    hop = float(timed_seconds(timed, communication.activation_bytes(job, s)))
    lost = exchanged(0.3) - exchanged(0.0)
    assert lost.tolist() == pytest.approx([0.3 * (3 * 64 - 4) * hop, 0.0])
