import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import JobMaker

from planner.advice import rules
from planner.advice.plan import make_plan
from planner.advice.rules import RULES, single_node, verdict
from planner.advice.rules import batch as batch_rules
from planner.advice.rules.base import ONE_GPU, ONE_NODE, Rule, Situation
from planner.advice.rules.sentences import said
from planner.catalog import records
from planner.catalog.choice import lead
from planner.core.errors import InvalidInputError
from planner.core.units import format_fraction, format_seconds
from planner.domain.strategy import Layout, Offload, PipelineSchedule
from planner.report.plan import plan_text
from planner.report.values import Terminal
from planner.search.candidate import Candidate, estimate
from planner.search.limits import LIMITS

LLAMA = "meta-llama/Llama-2-7b-hf"
QWEN_MOE = "Qwen/Qwen1.5-MoE-A2.7B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
Case = dict[str, Any]

GPT2: Case = {"model": "gpt2", "gpus": 4}
LARGE: Case = {"model": LLAMA, "gpus": 8}
NODES: Case = {"model": LLAMA, "gpus": 8, "cluster": {"nodes": 2, "inter_node": "infiniband-ndr"}}
SLOW_NODES: Case = {**LARGE, "cluster": {"nodes": 2, "inter_node": "ethernet-25g"}}
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

CROWDED: Case = {
    "model": "meta-llama/Llama-3.2-3B",
    "gpus": 8,
    "gpu": "h100",
    "recipe": {"precision": "bf16-mixed", "sequence_length": 4096, "global_batch_size": 64},
}
"""A replica fits, and only if it recomputes everything."""
SHORT = {"sequence_length": 128, "global_batch_size": 32}

NODES_OF_SMALL: Case = {**GPT2, "cluster": {"nodes": 2, "inter_node": "infiniband-ndr"}}

MIXED: Case = {"model": "gpt2-xl", "gpus": 3, "gpu": "rtx-3090:2,rtx-3060:1"}

SLOW_GATHERS: Case = {
    **GPT2,
    "gpu": "4090",
    "recipe": {"sequence_length": 128, "global_batch_size": 512},
}

SLOW_BUS: Case = {
    "model": "gpt2",
    "gpus": 8,
    "gpu": "a10g",
    "cluster": {"intra_node": {"bus_gb_per_s": 5}},
    "recipe": {"sequence_length": 128, "global_batch_size": 64},
}


def topology(odd: int | None) -> str:
    """Return a matrix of eight GPUs behind NVSwitch; one of them out of the fabric."""
    head = "".join(f"\tGPU{i}" for i in range(8))
    wired = [
        ["X" if i == j else "NODE" if odd in {i, j} else "NV18" for j in range(8)] for i in range(8)
    ]
    rows = [f"GPU{i}\t" + "\t".join(row) for i, row in enumerate(wired)]
    return "\n".join((head, *rows, ""))


ODD: Case = {
    "model": "meta-llama/Llama-3.1-8B",
    "gpus": 8,
    "gpu": "b200",
    "cluster": {"topology": topology(2)},
    "recipe": {"sequence_length": 2048, "global_batch_size": 112},
}
ALIKE: Case = {**ODD, "cluster": {"topology": topology(None)}}

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
    "ONE005": CROWDED,
    "ONE006": {"model": WIDE, "gpus": 8, "gpu": "h200"},
    "ONE007": LARGE,
    "ONE008": of(GPT2, global_batch_size=16),
    "MUL001": NODES_OF_SMALL,
    "MUL002": NODES,
    "MUL003": SLOW_NODES,
    "EFF001": pinned(GPT2, tensor_parallel_size=2),
    "EFF002": {**GPT2, "gpu": "rtx-3090", "recipe": SHORT},
    "MEM003": pinned(GPT2, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS),
    "COM001": pinned(of(ETHERNET, global_batch_size=16), zero_stage=0, **WHOLE),
    "COM002": pinned({**GPT2, "gpu": "4090"}, tensor_parallel_size=2),
    "COM003": of(ETHERNET, global_batch_size=16),
    "COM004": of(GPT2, training_tokens=2 * 10**6),
    "COM005": pinned(SLOW_GATHERS, zero_stage=3, micro_batch_size=1, **WHOLE),
    "COM006": {**GPT2, "gpu": "4090"},
    "COM008": MIXED,
    "COM009": SLOW_BUS,
    "COM010": ODD,
    "REC001": {**of(GPT2, precision="bf16-mixed"), "gpu": "v100"},
    "REC002": of(GPT2, precision="fp32"),
    "REC003": {**of(GPT2, attention="flash"), "gpu": "t4"},
    "PIP001": pinned(
        of(LARGE, global_batch_size=8),
        pipeline_parallel_size=8,
        pipeline_schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
    ),
    "PIP002": pinned(of(GPT2, global_batch_size=512), pipeline_parallel_size=2, micro_batch_size=1),
    "BAT001": of(GPT2, global_batch_size=8192),
    "BAT002": of(GPT2, training_tokens=20 * 10**6, global_batch_size=512),
    "BAT003": pinned(GPT2, synchronize_every=8),
    "BAT004": of({**GPT2, "gpus": 8}, global_batch_size=4),
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
    "EFF002": {"model": "gpt2", "gpus": 1, "recipe": {"precision": "bf16"}},
    "ONE006": LONG,
    "ONE008": pinned(GPT2, zero_stage=3, **WHOLE),
    "MUL001": NODES,
    "MUL002": SLOW_NODES,
    "MUL003": NODES,
    "COM001": of(GPT2, global_batch_size=512),
    "COM002": pinned(GPT2, tensor_parallel_size=2),
    "COM003": NODES,
    "COM004": of(GPT2, training_tokens=10**11),
    "COM010": ALIKE,
    "REC001": {**of(GPT2, precision="fp16-mixed"), "gpu": "v100"},
    "REC002": {**of(GPT2, precision="fp32"), "gpu": "rtx-3090"},
    "REC003": of(GPT2, attention="flash"),
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
    return Situation.of_one(job, candidate)


def test_offload_that_the_host_cannot_hold_is_a_blocker(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=8, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    found = []
    for model in (LLAMA, "meta-llama/Llama-2-70b-hf"):
        parts = {"instance": "p4de.24xlarge", "gpu": None}
        job = make_job(model, gpus=8, cluster=parts, recipe={"global_batch_size": 8})
        offloaded = estimate(job, s)
        blockers = rules.blockers(Situation.of_one(job, offloaded))
        found.append([finding.code for finding in blockers if finding.code == "MEM004"])
    assert found == [[], ["MEM004"]]


def test_weights_that_a_node_cannot_read_are_warned_of(make_job: JobMaker) -> None:
    """70 B weights in fp32 are 276 GB on p4d's 1.2 TB where one rank reads them, and 2.2 TB where all do."""
    job = make_job(
        "meta-llama/Llama-2-70b-hf", gpus=8, cluster={"instance": "p4d.24xlarge", "gpu": None}
    )
    found = []
    for layout in (
        Layout(tensor_parallel_size=8),
        Layout(data_parallel_shard_size=8, zero_stage=3),
        Layout(data_parallel_replicate_size=8),
    ):
        each = estimate(job, layout)
        judged = rules.judge(Situation.of_one(job, each))
        found.append([finding.message for finding in judged if finding.code == "MEM005"])
    assert found[:2] == [[], []]
    assert "8 x 4 B" in found[2][0]


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
    covered = {*FIRES, *(code for codes in MEMORY.values() for code in codes)}
    covered |= {"MEM004", "MEM005", "REC004"}
    assert covered == {rule.code for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_says_why_what_instead_and_where_from(rule: Rule) -> None:
    statement, *_ = rule.text.splitlines()
    assert statement.endswith(".")
    for heading in ("Why:", "Instead:", "Source:"):
        assert f"\n\n{heading} " in rule.text
    assert rule.name == rule.name.lower()
    assert "_" not in rule.name


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in RULES] + [limit.code for limit in LIMITS]
    assert len(set(codes)) == len(codes)


def test_where_the_choice_is_not_the_trees_it_is_said_how_often_such_leads_were_real(
    make_job: JobMaker,
) -> None:
    base = situation(make_job, 1)
    assert rules.DISAGREEMENT.judge(base) is None
    for gain, is_told in ((0.04, False), (0.06, True), (0.3, True)):
        faster = _sped_up(base, base.candidate, gain)
        message = rules.DISAGREEMENT.judge(replace(base, candidate=faster)) or ""
        share = lead(base.job.framework.name, gain).real_share
        assert (f" {format_fraction(share)} of " in message) == is_told
        assert ("ddp" in message) == is_told
    smallest = replace(base, candidate=faster, is_for_memory=True)
    assert rules.DISAGREEMENT.judge(smallest) is None


def _sped_up(base: Situation, other: Candidate, gain: float) -> Candidate:
    seconds = base.candidate.step_time.step_seconds / (1 + gain)
    return replace(other, step_time=replace(other.step_time, step_seconds=seconds))


HELD_BACK: dict[str, tuple[dict[str, Any], str]] = {
    "another way": ({"synchronize_every": 8}, said("EFF002.local", every=8)),
    "host": (
        {"zero_stage": 3, "offload": Offload.OPTIMIZER_AND_PARAMETERS},
        said("EFF002.host", offload="optimizer+parameters"),
    ),
    "no room": ({"micro_batch_size": 14}, said("EFF002.no_room")),
    "techniques": (
        {"tensor_parallel_size": 2},
        said("EFF002.must_earn", price=0.1, family="tp"),
    ),
    "plain": ({}, "(--strategy ddp)"),
}


@pytest.mark.parametrize("name", HELD_BACK)
def test_a_faster_layout_that_is_held_back_says_why(make_job: JobMaker, name: str) -> None:
    fields, reason = HELD_BACK[name]
    job = make_job(gpus=2, gpu="rtx-3090")
    candidate = estimate(job, Layout(data_parallel_replicate_size=2))
    base = replace(situation(make_job, 1), job=job, candidate=candidate)
    sped = _sped_up(base, estimate(job, Layout(**fields)), 0.5)
    found = rules.judge(replace(base, held_back=sped))
    assert [reason in each.message for each in found if each.code == "EFF002"] == [True]


def test_fully_sharded_nodes_are_held_back_by_their_gathers_not_by_code(make_job: JobMaker) -> None:
    job = make_job(gpus=8, gpu="h100", cluster={"nodes": 8})
    shards = Layout(data_parallel_shard_size=8, data_parallel_replicate_size=8, zero_stage=3)
    hybrid = estimate(job, shards)
    whole = estimate(job, Layout(data_parallel_shard_size=64, zero_stage=3))
    base = Situation.of_one(job, hybrid)
    message = verdict.a_faster_layout_is_held_back(
        replace(base, held_back=_sped_up(base, whole, 0.5))
    )
    assert message is not None
    assert said("EFF002.wide", ranks=64, price=0.04, family="zero-3") in message


@pytest.mark.parametrize(
    ("batch", "facts"),
    [(128, ()), (256, ("256 sequences", "8 times", "32 of published fine-tuning"))],
)
def test_a_batch_is_held_against_those_of_its_own_kind(
    make_job: JobMaker, batch: int, facts: tuple[str, ...]
) -> None:
    recipe = {"task": "sequence-classification", "global_batch_size": batch}
    job = make_job("bert-base-uncased", gpus=1, recipe=recipe)
    candidate = estimate(job, Layout(micro_batch_size=1, gradient_accumulation_steps=batch))
    situation = Situation.of_one(job, candidate)
    found = batch_rules.global_batch_has_grown_too_far(situation)
    assert (found is None) == (not facts)
    assert all(fact in (found or "") for fact in facts)


def test_a_batch_smaller_than_the_gpus_is_said_to_be(make_job: JobMaker) -> None:
    """A replica fits on each GPU: half of them do, for less than dividing the model is worth."""
    job = make_job("gpt2", gpus=8, recipe={"global_batch_size": 4})
    plan = make_plan(job)
    assert (plan.chosen.strategy.family, plan.job.cluster.world_size) == ("ddp", 4)
    assert 0 < plan.all_gpus_seconds < plan.chosen.step_time.step_seconds
    text = plan_text(plan, (), "", Terminal())
    assert "\n  Spare    4 of 8 GPUs " in text
    took = format_seconds(plan.chosen.step_time.step_seconds)
    messages = {each.code: each.message for each in plan.findings}
    assert f"{took} (ddp)" in messages["BAT004"]
    shared = rules.BRANCHES[1][0].find(replace(situation(make_job, 1), job=job))
    assert shared is not None
    assert shared.message.endswith(said("ONE002.few_sequences", batch=4, gpus=8))


def test_gpus_that_bring_nothing_are_left_out(make_job: JobMaker) -> None:
    """The fewest of those that no estimate tells from the fastest; of nodes nothing is said to one GPU."""
    base = situation(make_job, 1)
    base = replace(base, job=make_job(gpus=4, cluster={"nodes": 2}))
    step = base.candidate.step_time

    def on(*, one_gpu: float, one_node: float, is_comfortable: bool = True) -> Situation:
        taken = {ONE_GPU: one_gpu, ONE_NODE: one_node}
        return replace(
            base,
            on_fewer_gpus={
                name: replace(
                    base.candidate,
                    step_time=replace(step, step_seconds=times * step.step_seconds),
                    is_comfortable=is_comfortable,
                )
                for name, times in taken.items()
            },
        )

    assert verdict.fewer_gpus(on(one_gpu=1.01, one_node=1.0)) == ONE_GPU
    assert verdict.fewer_gpus(on(one_gpu=1.1, one_node=1.01)) == ONE_NODE
    assert verdict.fewer_gpus(on(one_gpu=1.1, one_node=1.1)) is None
    assert verdict.fewer_gpus(on(one_gpu=0.99, one_node=1.0, is_comfortable=False)) is None
    assert verdict.fewer_gpus(on(one_gpu=1.0, one_node=0.5, is_comfortable=False)) == ONE_NODE
    nearly = on(one_gpu=1.1, one_node=1.1)
    told = {each.code: each.message for each in rules.spared(nearly, ONE_NODE)}
    assert told["COM003"].endswith(said("COM003.hardly"))
    assert "COM003" not in [each.code for each in rules.spared(nearly, ONE_GPU)]


@pytest.mark.parametrize(("nodes", "code"), [(1, "ONE002"), (2, "MUL001")])
def test_the_least_memory_is_not_explained_by_ddp(
    nodes: int, code: str, make_job: JobMaker
) -> None:
    plan = make_plan(make_job("gpt2", gpus=2, cluster={"nodes": nodes}), None, "memory")
    (message,) = (each.message for each in plan.findings if each.code == code)
    assert message.endswith(said("ONE002.asked", asked="the least memory"))


def test_sums_that_take_next_to_nothing_are_no_warning(make_job: JobMaker) -> None:
    job, layout = make_job(gpus=2, gpu="4090"), Layout(tensor_parallel_size=2)
    candidate = estimate(job, layout)
    base = replace(situation(make_job, 1), job=job, candidate=candidate)
    assert "COM002" in [each.code for each in rules.judge(base)]
    without = replace(candidate, step_time=replace(candidate.step_time, terms=()))
    assert "COM002" not in [each.code for each in rules.judge(replace(base, candidate=without))]


def test_a_replica_without_room_is_not_said_to_be_too_large(make_job: JobMaker) -> None:
    base = situation(make_job, 1)
    usable = base.job.usable_bytes
    for share, key in ((0.95, "ONE003.no_room"), (1.2, "ONE003.too_large")):
        found = single_node.shortfall(replace(base, smallest_replica_bytes=share * usable))
        assert found == said(key, replica=share * usable, usable=usable)


@pytest.mark.parametrize("batch", [7, 9])
def test_a_batch_that_does_not_split_names_all_that_do(make_job: JobMaker, batch: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_plan(make_job("gpt2", gpus=8, recipe={"global_batch_size": batch}))
    assert "8" in caught.value.hint
    assert ("or 4, of which the GPUs share each sequence" in caught.value.hint) == (batch == 7)
    assert make_plan(make_job("gpt2", gpus=8, recipe={"global_batch_size": 4})).chosen.fits


def test_an_offload_that_gains_too_little_to_be_told_hides_nothing(make_job: JobMaker) -> None:
    recipe = {"method": "qlora", "sequence_length": 4096, "global_batch_size": 128}
    job = make_job("meta-llama/Llama-3.1-8B", gpus=1, gpu="rtx-3090", recipe=recipe)
    plan = make_plan(job)
    gains = [
        plan.chosen.step_time.step_seconds / each.candidate.step_time.step_seconds
        for each in plan.alternatives
        if each.candidate.strategy.offloads_optimizer
    ]
    assert 1 < max(gains) < 1.05
    (message,) = (each.message for each in plan.findings if each.code == "EFF002")
    assert message.startswith("ddp with recompute selective is ")


def test_compiling_is_told_with_what_it_saves(make_job: JobMaker) -> None:
    base = situation(make_job, 1)
    job = replace(base.job, recipe=replace(base.job.recipe, compile=True))
    slower = _sped_up(base, base.candidate, -0.5)
    found = rules.judge(replace(base, job=job, eager=slower))
    (message,) = (each.message for each in found if each.code == "REC004")
    seconds = slower.step_time.step_seconds
    assert message == said("REC004.compiled", eager=seconds, longer=1.0)
    for alike in (replace(base, job=job), replace(base, job=job, eager=base.candidate)):
        assert "REC004" not in [each.code for each in rules.judge(alike)]


def test_every_sentence_is_some_rules_and_every_rule_has_one() -> None:
    """A sentence is changed in the data alone: the code names it."""
    sentences = records.read("sentences", "rules")
    held = {f"{code}.{name}" for code in sentences.keys() - {"source"} for name in sentences[code]}
    code = "".join(path.read_text() for path in Path("planner/advice/rules").glob("*.py"))
    assert held == {*re.findall(r'"([A-Z]{3}\d{3}\.\w+)"', code)}
    assert {each.partition(".")[0] for each in held} == {rule.code for rule in RULES}


def test_the_smallest_layout_earns_nothing(make_job: JobMaker) -> None:
    plan = make_plan(make_job(LLAMA, gpus=8, gpu="h100"), objective="memory")
    (message,) = (each.message for each in plan.findings if each.code == "EFF001")
    assert message.endswith(said("EFF001.for_memory"))


def test_less_recompute_is_not_called_local_sgd(make_job: JobMaker) -> None:
    """Four-bit adapters exchange milliseconds: what is faster keeps activations, however it averages."""
    recipe = {"method": "qlora", "sequence_length": 8192}
    plan = make_plan(make_job(LLAMA, gpus=4, gpu="rtx-5090", recipe=recipe))
    assert plan.chosen.strategy.family == "ddp"
    (message,) = (each.message for each in plan.findings if each.code == "EFF002")
    assert message.startswith("ddp with recompute selective is ")


def test_a_small_lead_is_told_with_how_often_it_was_real(make_job: JobMaker) -> None:
    base = situation(make_job, 1)
    sped = _sped_up(base, base.candidate, 0.06)
    found = rules.judge(replace(base, held_back=sped))
    assert any("published pairs" in each.message for each in found if each.code == "EFF002")


def test_fewer_gpus_are_proposed_where_they_are_faster(make_job: JobMaker) -> None:
    job = make_job(**{**ETHERNET, "model": "gpt2", "recipe": {"global_batch_size": 32}})
    plan = make_plan(job)
    assert plan.job.cluster.nodes == 1
    assert plan.spare_gpus == job.cluster.world_size - plan.job.cluster.world_size > 0
    assert "COM003" in [finding.code for finding in plan.findings]
    pinned_plan = make_plan(job, {"zero_stage": 0})
    assert (pinned_plan.job.cluster.nodes, pinned_plan.spare_gpus) == (2, 0)
    assert pinned_plan.chosen.step_time.step_seconds > plan.chosen.step_time.step_seconds


def test_more_accumulation_gains_what_its_own_estimate_says(make_job: JobMaker) -> None:
    recipe = {"sequence_length": 128, "global_batch_size": 32}
    plan = make_plan(make_job("gpt2", gpus=4, gpu="rtx-3090", recipe=recipe))
    (message,) = (each.message for each in plan.findings if each.code == "COM001")
    s = plan.chosen.strategy
    larger = replace(plan.job, recipe=replace(plan.job.recipe, global_batch_size=128))
    steps = 4 * s.gradient_accumulation_steps
    rate = estimate(larger, replace(s, gradient_accumulation_steps=steps)).step_time
    gain = rate.tokens_per_second_per_gpu / plan.chosen.step_time.tokens_per_second_per_gpu - 1
    assert said("COM001.accumulated", gain=gain, batch=128) in message


def test_the_whole_run_is_compared_start_up_included(make_job: JobMaker) -> None:
    # The forum's run: 2 epochs of 8,551 sentences, 128 a GPU; 43.1 s on one GPU, 28.1 s on four.
    recipe = {"precision": "fp32", "sequence_length": 16, "global_batch_size": 512}
    recipe |= {"training_samples": 2 * 8_551}
    plan = make_plan(make_job("gpt2", gpus=4, gpu="v100-sxm2-16gb", recipe=recipe))
    (message,) = [each.message for each in plan.findings if each.code == "COM004"]
    gains = re.findall(r"([\d.]+) times as fast", message)
    run_gain, step_gain = (float(number) for number in gains)
    assert 1.3 < run_gain < 1.7
    assert 3 < step_gain < 4


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"zero_stage": 3}, said("ONE002.asked", asked="ZeRO-3")),
        (
            {"tensor_parallel_size": 2, "zero_stage": 1},
            said("ONE002.asked", asked="tensor parallelism and ZeRO-1"),
        ),
        ({"zero_stage": 0}, said("ONE002.copies")),
    ],
)
def test_what_was_asked_for_is_said_where_ddp_would_do(
    fields: dict[str, int], end: str, make_job: JobMaker
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4), fields)
    (message,) = (each.message for each in plan.findings if each.code == "ONE002")
    assert message.endswith(end)


@pytest.mark.parametrize(
    ("gain", "told"),
    [
        (1.0, "no faster"),
        (0.996, "no faster"),
        (1.1, "1.10 times as fast"),
        (0.96, "1.04 times as long"),
        (0.005, "200 times as long"),
    ],
)
def test_a_gain_is_told_as_what_it_is(gain: float, told: str, make_job: JobMaker) -> None:
    base = situation(make_job, 1)
    step = base.candidate.step_time
    time = replace(step, step_seconds=gain * step.step_seconds)
    fewer = {ONE_GPU: replace(base.candidate, step_time=time)}
    found = rules.judge(replace(base, job=make_job(gpus=4), on_fewer_gpus=fewer))
    (message,) = (each.message for each in found if each.code == "COM004")
    assert told in message


def test_unlike_gpus_would_take_what_their_speeds_add_up_to(make_job: JobMaker) -> None:
    """Three equal shares: the third that the smaller card computes takes it the whole step."""
    unlike = {"gpu": "rtx-3090:2,rtx-3060:1"}
    plan = make_plan(make_job("gpt2", gpus=3, cluster=unlike, recipe={"global_batch_size": 384}))
    message = next(each.message for each in plan.findings if each.code == "COM008")
    larger, equal, by_speed = map(float, re.findall(r"([\d.]+) s\b", message))
    assert by_speed == pytest.approx(1 / (1 / larger + 1 / 3 / equal), rel=0.01)
    assert by_speed < larger < equal
