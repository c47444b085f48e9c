import json

import pytest
from conftest import JobMaker

from planner.answers import answer_memory
from planner.answers.memory_shapes import MemoryOfLayoutAnswer
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload
from planner.report.memory import memory_text
from planner.report.values import Terminal
from planner.search.candidate import estimate

LLAMA = "meta-llama/Llama-2-7b-hf"
PIPELINE = Layout(
    tensor_parallel_size=2,
    sequence_parallel=True,
    pipeline_parallel_size=4,
    zero_stage=1,
    gradient_accumulation_steps=64,
)


def shown(job: Job, s: Layout) -> str:
    return memory_text(job, estimate(job, s), (), Terminal())


def answered(job: Job, s: Layout) -> MemoryOfLayoutAnswer:
    return answer_memory(job, estimate(job, s))


@pytest.fixture
def megatron(make_job: JobMaker) -> Job:
    recipe = {"framework": "megatron", "global_batch_size": 64, "sequence_length": 4096}
    return make_job(LLAMA, gpus=8, gpu="h100", recipe=recipe)


def test_no_sequence_fits_where_the_weights_alone_do_not(make_job: JobMaker) -> None:
    text = shown(make_job(LLAMA, gpus=1, gpu="t4", recipe={"global_batch_size": 8}), Layout())
    assert "  micro-batch  none fits this layout" in text
    assert " at most 0 " not in text


def test_every_stage_has_a_line_and_the_busiest_a_ledger(megatron: Job) -> None:
    text = shown(megatron, PIPELINE)
    assert text.startswith(
        "It fits: tensor parallel 2 with sequence parallelism, pipeline parallel 4 (1f1b),"
    )
    lines = text.split("Stages\n")[1].splitlines()
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["0", "8", "4"],
        ["1", "8", "3"],
        ["2", "8", "2"],
        ["3", "8", "1"],
    ]
    assert "Memory of one GPU at its peak (stage 0, " in text


def test_without_a_pipeline_there_are_no_stages(make_job: JobMaker) -> None:
    text = shown(make_job(gpus=1, recipe={"global_batch_size": 8}), Layout(micro_batch_size=8))
    assert "Stages" not in text
    assert "no parallelism, micro-batch 8 x 1 accumulation x 1 rank = 8 sequences" in text
    assert "at most 1,024 tokens" in text


def test_what_does_not_fit_is_told_what_would(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 64, "sequence_length": 4096})
    text = shown(job, Layout(data_parallel_shard_size=8, zero_stage=3, micro_batch_size=8))
    assert text.startswith("It does not fit")
    assert "recompute full" in text
    assert "step" in text.split("recompute full")[1].splitlines()[0]
    hopeless = make_job(LLAMA, gpus=1, gpu="gtx-1080ti", recipe={"global_batch_size": 1})
    assert "no single one makes it fit" in shown(hopeless, Layout())


def test_too_large_for_any_number_of_gpus_is_said(make_job: JobMaker) -> None:
    wide = {"model_type": "llama", "hidden_size": 131072, "num_attention_heads": 128}
    wide |= {"intermediate_size": 524288, "num_hidden_layers": 2, "vocab_size": 128}
    job = make_job(wide, gpus=1, gpu="t4", recipe={"global_batch_size": 1})
    assert "not even 4,096 hold it" in shown(job, Layout())


def test_offload_and_loading_show_what_the_host_needs(make_job: JobMaker) -> None:
    recipe = {"framework": "deepspeed", "global_batch_size": 8}
    job = make_job(LLAMA, gpus=8, cluster={"instance": "p4d.24xlarge"}, gpu=None, recipe=recipe)
    s = Layout(data_parallel_shard_size=8, zero_stage=3, offload=Offload.OPTIMIZER)
    text = shown(job, s)
    assert "offload of optimizer" in text
    assert "of host memory per node of 1,152 GiB" in text or "1.13 TiB" in text


def test_the_answer_is_json_and_its_terms_sum(megatron: Job) -> None:
    answer = answered(megatron, PIPELINE)
    assert json.loads(json.dumps(answer)) == answer
    assert [stage["stage"] for stage in answer["stages"]] == [0, 1, 2, 3]
    for stage in answer["stages"]:
        total = sum(term["bytes"] for term in stage["terms"])
        assert total == pytest.approx(stage["reserved_bytes"], abs=len(stage["terms"]))
        assert stage["low_bytes"] < stage["reserved_bytes"] < stage["high_bytes"]
    assert answer["fits"] is True
    assert answer["changes"] == []
    assert answer["largest_micro_batch_size"] >= 1
    assert answer["host_memory"]["available_bytes"] is None


def test_changes_are_in_the_answer_where_it_does_not_fit(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 64, "sequence_length": 4096})
    s = Layout(data_parallel_shard_size=8, zero_stage=3, micro_batch_size=8)
    names = [change["name"] for change in answered(job, s)["changes"]]
    assert "recompute full" in names


def test_adapters_say_how_little_is_trained(make_job: JobMaker) -> None:
    recipe = {"method": "qlora", "lora": {"rank": 16}, "global_batch_size": 1}
    job = make_job(LLAMA, gpus=1, gpu="rtx-4090", recipe=recipe)
    assert "Trained    8,388,608 of 6,746,804,224 parameters (0.124 %)" in shown(job, Layout())


def test_a_change_to_offload_has_its_price_in_time(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron", "global_batch_size": 64, "sequence_length": 4096}
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, gpu="h100", recipe=recipe)
    assert "offload optimizer" in shown(job, PIPELINE)
    (line,) = (each for each in shown(job, PIPELINE).splitlines() if "offload optimizer" in each)
    assert "per GPU, step" in line
