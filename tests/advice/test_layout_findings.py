from conftest import JobMaker

from planner.advice.layout_findings import layout_findings
from planner.advice.rules.base import Severity
from planner.domain.strategy import Layout
from planner.search.candidate import estimate

TP_OVER_NODES = Layout(tensor_parallel_size=8, gradient_accumulation_steps=16)
GATHERING_PIPELINE = Layout(
    data_parallel_shard_size=4,
    pipeline_parallel_size=2,
    zero_stage=3,
    gradient_accumulation_steps=4,
)


def test_an_estimate_is_judged_by_the_limits_of_a_search(make_job: JobMaker) -> None:
    nodes = {"nodes": 2}
    recipe = {"global_batch_size": 16}
    cases = {
        "LAY020": ("torch", TP_OVER_NODES, Severity.WARNING),
        "LAY022": ("torch", GATHERING_PIPELINE, Severity.WARNING),
        "LAY030": ("accelerate", GATHERING_PIPELINE, Severity.BLOCKER),
        "LAY031": ("megatron", GATHERING_PIPELINE, Severity.BLOCKER),
    }
    for code, (framework, layout, severity) in cases.items():
        model = "meta-llama/Llama-2-7b-hf"
        job = make_job(model, cluster=nodes, recipe={**recipe, "framework": framework})
        found = {each.code: each for each in layout_findings(job, estimate(job, layout))}
        assert found[code].severity == severity
        assert "; " in found[code].message


def test_heads_that_a_framework_cannot_deal_out_block_an_estimate(make_job: JobMaker) -> None:
    tensors, tokens = (
        Layout(tensor_parallel_size=16, gradient_accumulation_steps=16),
        Layout(context_parallel_size=16, gradient_accumulation_steps=16),
    )
    cases = (
        ("LAY013", "meta-llama/Llama-3.1-8B", "torch", tensors, True),
        ("LAY013", "meta-llama/Llama-3.1-8B", "megatron", tensors, False),
        ("LAY015", "Qwen/Qwen2.5-7B", "deepspeed", tokens, True),
        ("LAY015", "Qwen/Qwen2.5-7B", "megatron", tokens, False),
    )
    for code, model, framework, layout, is_blocked in cases:
        recipe = {"global_batch_size": 16, "framework": framework}
        job = make_job(model, gpus=8, cluster={"nodes": 2}, recipe=recipe)
        found = layout_findings(job, estimate(job, layout))
        blockers = {each.code for each in found if each.severity == Severity.BLOCKER}
        assert (code in blockers) == is_blocked


def test_an_estimate_is_judged_by_the_rules_the_worst_first(make_job: JobMaker) -> None:
    job = make_job("gpt2-xl", gpu="4090", gpus=4, recipe={"framework": "accelerate"})
    layout = Layout(
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        micro_batch_size=64,
        gradient_accumulation_steps=8,
    )
    found = [(each.code, each.severity) for each in layout_findings(job, estimate(job, layout))]
    order = [list(Severity).index(severity) for _, severity in found]
    assert order == sorted(order)
    assert {"LAY030", "MEM001", "COM002"} <= {code for code, _ in found}


def test_a_layout_without_fault_is_blocked_and_warned_of_nothing(make_job: JobMaker) -> None:
    job = make_job("gpt2", recipe={"global_batch_size": 32})
    plain = Layout(data_parallel_replicate_size=4, micro_batch_size=8)
    found = layout_findings(job, estimate(job, plain))
    assert {each.severity for each in found} <= {Severity.ADVICE}
