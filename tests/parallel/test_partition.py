from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.domain.job import Job
from planner.domain.strategy import Layout, PipelineSchedule, Recompute, vary
from planner.memory.ledger import estimate_memory, stage_memories
from planner.parallel import partition
from planner.parallel.pipeline_schedules import in_flight
from planner.request.schema import parse_request, resolve

MODELS = (
    "gpt2",
    "meta-llama/Llama-3.2-1B",
    "Qwen/Qwen2-7B",
    "mistralai/Mixtral-8x7B-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-20b",
    "Qwen/Qwen1.5-MoE-A2.7B",
)
"""Dense ones, tied and untied; mixtures, with dense layers first and with sliding windows."""
FRAMEWORKS = ("torch", "megatron", "nanotron", "torchtitan")


def job(model: str, framework: str, **recipe: Any) -> Job:
    wanted = {"framework": framework, "precision": "bf16-mixed", "sequence_length": 512}
    payload = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 16},
        "recipe": wanted | {"global_batch_size": 256} | recipe,
    }
    return resolve(parse_request(payload), allow_paths=False).job


jobs = st.builds(
    job,
    st.sampled_from(MODELS),
    st.sampled_from(FRAMEWORKS),
    attention=st.sampled_from(["eager", "flash"]),
)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Job, Layout]:
    """A job and a pipeline that its layers fill."""
    of = draw(jobs)
    size = draw(st.integers(1, of.model.num_blocks))
    return of, Layout(
        pipeline_parallel_size=size,
        pipeline_schedule=draw(
            st.sampled_from([PipelineSchedule.ONE_FORWARD_ONE_BACKWARD, PipelineSchedule.GPIPE])
        ),
        virtual_pipeline_size=draw(st.sampled_from([1, 2])),
        micro_batch_size=draw(st.sampled_from([1, 4])),
        gradient_accumulation_steps=draw(st.sampled_from([1, 3, 64])),
        recompute=draw(st.sampled_from(Recompute)),
        zero_stage=draw(st.sampled_from(of.framework.zero_stages)),
        tensor_parallel_size=draw(st.sampled_from([1, 2])),
        sequence_parallel=draw(st.booleans()),
    )


def stages(of: Job, s: Layout) -> list[partition.Stage]:
    return [partition.stage(of, s, index) for index in range(s.pipeline_parallel_size)]


@settings(max_examples=150)
@given(layouts())
def test_stages_hold_every_layer_and_every_parameter_once(case: tuple[Job, Layout]) -> None:
    """But a head tied to the embeddings, which the last stage has a copy of."""
    of, s = case
    s = replace(s, tensor_parallel_size=1)
    held = stages(of, s)
    for kind, part in enumerate(of.model.blocks):
        assert sum(float(at.blocks[kind]) for at in held) == pytest.approx(part.count)
    total = sum(float(sum(partition.stage_parameters(of, s, at))) for at in held)
    tied = sum(layer.weights for part in of.model.others for layer in part.linears if layer.is_tied)
    copies = tied if s.pipeline_parallel_size > 1 else 0
    assert total == pytest.approx(of.model.parameters + copies, rel=1e-12)


@settings(max_examples=150)
@given(layouts())
def test_the_reported_peak_is_that_of_the_busiest_stage(case: tuple[Job, Layout]) -> None:
    of, s = case
    busiest = estimate_memory(of, s)
    each = [float(memory.reserved_bytes) for memory in stage_memories(of, s)]
    assert float(busiest.reserved_bytes) == pytest.approx(max(each), rel=1e-12)
    assert each[int(busiest.stage)] == pytest.approx(max(each), rel=1e-12)


@settings(max_examples=60)
@given(jobs, st.lists(st.sampled_from([1, 2, 3, 4, 8, 12]), min_size=2, max_size=6))
def test_a_table_finds_the_stages_that_its_rows_do(of: Job, sizes: list[int]) -> None:
    column = np.array([min(size, of.model.num_blocks) for size in sizes])
    rows = vary(Layout(gradient_accumulation_steps=8), pipeline_parallel_size=column)
    table = estimate_memory(of, rows)
    for row, size in enumerate(column):
        one = Layout(pipeline_parallel_size=int(size), gradient_accumulation_steps=8)
        alone = estimate_memory(of, one)
        assert table.at(row).reserved_bytes == pytest.approx(alone.reserved_bytes, rel=1e-12)
        assert table.at(row).stage == alone.stage
        for term, own in zip(table.at(row).terms, alone.terms, strict=True):
            assert term.name == own.name
            assert term.amount == pytest.approx(own.amount, rel=1e-12)


@settings(max_examples=80)
@given(
    of=jobs,
    name=st.sampled_from(["tensor_parallel_size", "context_parallel_size", "expert_parallel_size"]),
    sequence_parallel=st.booleans(),
    num_stages=st.sampled_from([1, 2, 4]),
    recompute=st.sampled_from(Recompute),
)
def test_more_model_parallelism_never_needs_more(
    *, of: Job, name: str, sequence_parallel: bool, num_stages: int, recompute: Recompute
) -> None:
    previous = float("inf")
    for size in (1, 2, 4):
        s = Layout(
            sequence_parallel=sequence_parallel,
            pipeline_parallel_size=num_stages,
            recompute=recompute,
        )
        divided: dict[str, Any] = {name: size}
        s = replace(s, **divided)
        now = float(estimate_memory(of, s).peak_bytes)
        assert now <= previous
        previous = now


@pytest.mark.parametrize(
    ("framework", "size", "expected"),
    [
        ("megatron", 1, [16]),
        ("megatron", 4, [4, 4, 4, 4]),
        ("megatron", 5, [3, 3, 3, 4, 3]),
        # The head weighs as much as four of the sixteen layers.
        ("nanotron", 1, [16]),
        ("nanotron", 2, [10, 6]),
        ("nanotron", 4, [5, 5, 5, 1]),
        ("nanotron", 8, [3, 2, 3, 2, 3, 2, 1, 0]),
        ("nanotron", 16, [2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 0, 0, 0]),
    ],
)
def test_layers_are_dealt_by_number_or_by_cost(
    make_job: JobMaker, framework: str, size: int, expected: list[int]
) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 8192,
        "vocab_size": 131_072,
        "tie_word_embeddings": True,
    }
    of = make_job(config, gpus=16, recipe={"framework": framework, "precision": "bf16-mixed"})
    held = stages(of, Layout(pipeline_parallel_size=size))
    assert [float(at.num_blocks) for at in held] == expected


@pytest.mark.parametrize(
    ("schedule", "virtual", "steps", "expected"),
    [
        ("gpipe", 1, 8, [8, 8, 8, 8]),
        ("1f1b", 1, 8, [4, 3, 2, 1]),
        ("1f1b", 1, 2, [2, 2, 2, 1]),
        # 4 x (1 + 3 / 8) on the first stage: Korthikanti et al., equation 5.
        ("interleaved-1f1b", 2, 8, [5.5, 4.5, 3.5, 2.5]),
    ],
)
def test_a_stage_holds_as_many_micro_batches_as_it_runs_ahead(
    schedule: str, virtual: int, steps: int, expected: list[float]
) -> None:
    s = Layout(
        pipeline_parallel_size=4,
        pipeline_schedule=PipelineSchedule(schedule),
        virtual_pipeline_size=virtual,
        gradient_accumulation_steps=steps,
    )
    assert [float(in_flight(s, index)) for index in range(4)] == expected


def test_only_an_expert_is_divided_by_expert_parallelism(make_job: JobMaker) -> None:
    of = make_job(
        "mistralai/Mixtral-8x7B-v0.1",
        gpus=8,
        recipe={"framework": "megatron", "precision": "bf16-mixed"},
    )
    (block,) = of.model.blocks
    dense, experts = partition.rank_parameters(block, Layout())
    assert dense + experts == block.parameters
    assert partition.rank_parameters(block, Layout(expert_parallel_size=4)) == (
        dense,
        experts / 4,
    )
    weights = partition.rank_weights(block, Layout())
    assert weights == block.linear_weights


MEGATRON = {"recipe": {"framework": "megatron"}}


def test_experts_that_data_parallel_ranks_do_not_suffice_for_span_tensor_parallel_ones() -> None:
    """Megatron-LM: ranks that share an expert x ranks it is dealt over x replicas = t * c * d."""
    shared = {1: 4, 2: 4, 4: 2, 8: 1, 3: 4}
    for experts, ranks in shared.items():
        s = Layout(tensor_parallel_size=4, data_parallel_shard_size=2, expert_parallel_size=experts)
        assert s.ranks_per_expert == ranks
    table = vary(Layout(tensor_parallel_size=4), expert_parallel_size=np.array([1, 2, 4]))
    assert np.asarray(table.ranks_per_expert).tolist() == [4, 2, 1]


def test_a_given_share_leaves_whole_experts_to_tensor_parallel_ranks(make_job: JobMaker) -> None:
    """Half as many ranks to an expert is twice as much of it on each, and half as many shards of it."""
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, **MEGATRON)
    (block,) = job.model.blocks
    folded = Layout(
        tensor_parallel_size=2, data_parallel_shard_size=4, expert_parallel_size=4, zero_stage=1
    )
    whole = replace(folded, expert_tensor_parallel_size=1)
    assert (folded.ranks_per_expert, whole.ranks_per_expert) == (2, 1)
    dense, held = partition.rank_parameters(block, whole)
    assert (dense, held / 2) == partition.rank_parameters(block, folded)
    assert partition.expert_shards(whole) == 2 * partition.expert_shards(folded)
    assert whole.contract()["expert_tensor_parallel_size"] == 1
    assert folded.contract()["expert_tensor_parallel_size"] is None


@pytest.mark.parametrize("expert", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("tensor", "shard", "context"), [(4, 2, 1), (2, 2, 2), (1, 8, 1), (8, 1, 1)]
)
def test_shards_of_experts_over_all_ranks_are_the_experts(
    make_job: JobMaker, tensor: int, shard: int, context: int, expert: int
) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, **MEGATRON)
    (block,) = job.model.blocks
    whole = sum(layer.parameters for layer in block.linears if layer.num_experts > 1)
    s = Layout(
        tensor_parallel_size=tensor,
        data_parallel_shard_size=shard,
        context_parallel_size=context,
        expert_parallel_size=expert,
        zero_stage=1,
    )
    _, held = partition.rank_parameters(block, s)
    assert 8 * held / partition.expert_shards(s) == pytest.approx(whole)
    sharing = s.ranks_per_expert
    assert held == whole / expert / sharing


def test_the_second_stage_may_be_the_busiest(make_job: JobMaker) -> None:
    """It has a buffer for what each micro-batch gives it and one for what comes back; the first has no inputs."""
    recipe = {"sequence_length": 4096, "global_batch_size": 256, "framework": "torch"}
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=3, recipe=recipe)
    s = Layout(pipeline_parallel_size=3, gradient_accumulation_steps=256, recompute=Recompute.FULL)
    each = [float(memory.reserved_bytes) for memory in stage_memories(job, s)]
    assert each[1] == max(each) > 1.01 * each[0]
    assert int(estimate_memory(job, s).stage) == 1
