from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.advice import rules
from planner.advice.plan import make_plan
from planner.advice.rules import RULES, Situation
from planner.domain.strategy import Layout, Offload, PipelineSchedule
from planner.search.candidate import estimate
from planner.search.limits import LIMITS

LLAMA = "meta-llama/Llama-2-7b-hf"
QWEN_MOE = "Qwen/Qwen1.5-MoE-A2.7B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
Case = dict[str, Any]

GPT2: Case = {"model": "gpt2", "gpus": 4}
LARGE: Case = {"model": LLAMA, "gpus": 8}
NODES: Case = {"model": LLAMA, "gpus": 8, "cluster": {"nodes": 2, "inter_node": "infiniband-ndr"}}
SLOW_NODES: Case = {**LARGE, "cluster": {"nodes": 2, "inter_node": "ethernet-10g"}}
ETHERNET: Case = {**GPT2, "cluster": {"nodes": 2, "inter_node": "ethernet-1g"}}
FOUR_HEADS = {
    "model_type": "llama",
    "num_key_value_heads": 2,
    "num_attention_heads": 8,
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "vocab_size": 32000,
}
WIDE = {
    "model_type": "llama",
    "hidden_size": 32768,
    "num_attention_heads": 128,
    "intermediate_size": 131072,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
}

LONG: Case = {
    "model": "meta-llama/Llama-3.1-8B",
    "gpus": 8,
    "gpu": "h100",
    "recipe": {"framework": "megatron", "sequence_length": 131072, "global_batch_size": 4},
}
"""Its layers are small; only a sequence's activations exceed a card."""

WHOLE = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "context_parallel_size": 1}


def pinned(case: Case, **pinned_fields: int) -> Case:
    return {**case, "pinned": pinned_fields}


def of(case: Case, **recipe: object) -> Case:
    return {**case, "recipe": {**case.get("recipe", {}), **recipe}}


FIRES: dict[str, Case] = {
    "ONE001": {"model": "gpt2", "gpus": 1},
    "ONE002": GPT2,
    "ONE003": LARGE,
    "ONE004": {"model": LLAMA, "gpus": 8, "gpu": "a40"},
    "ONE005": GPT2,
    "ONE006": {"model": WIDE, "gpus": 8, "gpu": "h200"},
    "ONE007": LARGE,
    "ONE008": of(GPT2, global_batch_size=16),
    "MUL001": ETHERNET,
    "MUL002": NODES,
    "MUL003": SLOW_NODES,
    "EFF001": pinned(GPT2, tensor_parallel_size=2),
    "MEM003": pinned(GPT2, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS),
    "COM001": pinned(of(ETHERNET, global_batch_size=16), zero_stage=0, **WHOLE),
    "COM002": pinned({**GPT2, "gpu": "4090"}, tensor_parallel_size=2),
    "COM003": of(ETHERNET, global_batch_size=16),
    "COM004": of(GPT2, training_tokens=2 * 10**6),
    "COM005": pinned(GPT2, zero_stage=3, **WHOLE),
    "COM006": {**GPT2, "gpu": "4090"},
    "PIP001": pinned(
        of(LARGE, global_batch_size=8),
        pipeline_parallel_size=8,
        pipeline_schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
    ),
    "PIP002": pinned(GPT2, pipeline_parallel_size=2, micro_batch_size=1),
    "BAT001": of(GPT2, global_batch_size=8192),
    "BAT002": of(GPT2, training_tokens=20 * 10**6),
    "BAT003": pinned(GPT2, synchronize_every=8),
    "SHP001": of(LARGE, sequence_length=8192),
    "SHP002": pinned(GPT2, tensor_parallel_size=2),
    "SHP003": pinned(
        {"model": FOUR_HEADS, "gpus": 4, "recipe": {"framework": "megatron"}},
        tensor_parallel_size=4,
    ),
    "SHP004": pinned(GPT2, context_parallel_size=2),
    "SHP005": {"model": MIXTRAL, "gpus": 8, "gpu": "h200", "recipe": {"framework": "megatron"}},
    "SHP006": {"model": QWEN_MOE, "gpus": 8},
}
SILENT: dict[str, Case] = {
    **dict.fromkeys(FIRES, GPT2),
    "ONE002": LARGE,
    "ONE004": LARGE,
    "ONE005": FIRES["ONE001"],
    "ONE006": LONG,
    "ONE008": pinned(GPT2, zero_stage=3, **WHOLE),
    "MUL001": NODES,
    "MUL002": SLOW_NODES,
    "MUL003": NODES,
    "COM001": of(GPT2, global_batch_size=512),
    "COM002": pinned(GPT2, tensor_parallel_size=2),
    "COM003": NODES,
    "COM004": of(GPT2, training_tokens=10**11),
    "PIP001": pinned(of(GPT2, global_batch_size=256), pipeline_parallel_size=2),
    "PIP002": pinned(of(GPT2, global_batch_size=16), pipeline_parallel_size=4),
    "BAT002": of(GPT2, training_tokens=10**9),
    "SHP002": pinned(LARGE, tensor_parallel_size=2),
    "SHP006": FIRES["SHP005"],
    "SHP003": pinned(
        {"model": FOUR_HEADS, "gpus": 4, "recipe": {"framework": "megatron"}},
        tensor_parallel_size=2,
    ),
}


def fired(make_job: JobMaker, case: Case) -> list[str]:
    arguments = dict(case)
    pinned_fields = arguments.pop("pinned", None)
    plan = make_plan(make_job(arguments.pop("model"), **arguments), pinned_fields)
    return [finding.code for finding in plan.findings]


@pytest.mark.parametrize("code", FIRES)
def test_a_rule_fires_on_its_case_and_stays_silent_on_the_other(
    make_job: JobMaker, code: str
) -> None:
    assert code in fired(make_job, FIRES[code])
    assert code not in fired(make_job, SILENT[code])


def situation(make_job: JobMaker, micro_batch_size: int) -> Situation:
    job = make_job(gpus=1, gpu="rtx-3090")
    candidate = estimate(job, Layout(micro_batch_size=micro_batch_size))
    return Situation(job=job, candidate=candidate, smallest_replica=candidate, fastest=candidate)


def test_offload_that_the_host_cannot_hold_is_a_blocker(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=8, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    found = []
    for model in (LLAMA, "meta-llama/Llama-2-70b-hf"):
        parts = {"instance": "p4de.24xlarge", "gpu": None}
        job = make_job(model, gpus=8, cluster=parts, recipe={"global_batch_size": 8})
        offloaded = estimate(job, s)
        blockers = rules.blockers(
            Situation(job=job, candidate=offloaded, smallest_replica=offloaded, fastest=offloaded)
        )
        found.append([finding.code for finding in blockers if finding.code == "MEM004"])
    assert found == [[], ["MEM004"]]


MEMORY: dict[int, list[str]] = {1: [], 14: ["MEM002"], 64: ["MEM001"]}


@pytest.mark.parametrize("micro_batch_size", MEMORY)
def test_memory_is_roomy_tight_or_too_small(make_job: JobMaker, micro_batch_size: int) -> None:
    judged = rules.judge(situation(make_job, micro_batch_size))
    of_memory = [finding.code for finding in judged if finding.code.startswith("MEM")]
    assert of_memory == MEMORY[micro_batch_size]
    blockers = rules.blockers(situation(make_job, micro_batch_size))
    assert [finding.code for finding in blockers] == [
        code for code in MEMORY[micro_batch_size] if code == "MEM001"
    ]


def test_every_rule_has_a_case() -> None:
    covered = {*FIRES, *(code for codes in MEMORY.values() for code in codes), "MEM004"}
    assert covered == {rule.code for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_says_why_what_instead_and_where_from(rule: rules.Rule) -> None:
    statement, *_ = rule.text.splitlines()
    assert statement.endswith(".")
    for heading in ("Why:", "Instead:", "Source:"):
        assert f"\n\n{heading} " in rule.text
    assert rule.name == rule.name.lower()
    assert "_" not in rule.name


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in RULES] + [limit.code for limit in LIMITS]
    assert len(set(codes)) == len(codes)


def test_the_search_is_followed_only_beyond_the_estimates_error(make_job: JobMaker) -> None:
    base = situation(make_job, 1)
    assert not rules.follows_search(base)
    faster = estimate(base.job, Layout(micro_batch_size=8))
    a_little, a_lot = (_sped_up(base, faster, factor) for factor in (1.1, 1.5))
    assert not rules.follows_search(a_little)
    assert "simpler ddp is followed" in (rules.DISAGREEMENT.judge(a_little) or "")
    assert rules.follows_search(a_lot)
    assert "so ddp is followed" in (rules.DISAGREEMENT.judge(a_lot) or "")


def _sped_up(base: Situation, other: Any, factor: float) -> Situation:
    seconds = base.candidate.step_time.step_seconds / factor
    time = replace(other.step_time, step_seconds=seconds)
    return replace(base, fastest=replace(other, step_time=time))
