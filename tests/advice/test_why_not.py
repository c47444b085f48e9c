from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.advice.rules.sentences import said as sentence
from planner.advice.why_not import why_answer, why_not, why_text
from planner.domain.strategy import Offload, PipelineSchedule
from planner.request.family import family_fields

LLAMA = "meta-llama/Llama-2-7b-hf"


def test_a_wish_that_limits_forbid_is_answered_with_their_codes(make_job: JobMaker) -> None:
    """Nodes of 4 GPUs: the highest tensor parallel size is 4, as the guide says."""
    job = make_job("meta-llama/Llama-2-13b-hf", gpus=4, cluster={"nodes": 4}, gpu="h100")
    answer = why_not(make_plan(job, {"offload": Offload.NONE}), {"tensor_parallel_size": 8})
    assert [finding.code for finding in answer.findings] == ["LAY020"]
    assert answer.candidate is None
    assert "spans nodes of 4 GPUs" in why_text(answer, "tp=8")


def test_a_wish_that_can_be_is_compared_by_its_largest_terms(make_job: JobMaker) -> None:
    plan = make_plan(make_job(LLAMA, gpus=8))
    answer = why_not(plan, {"tensor_parallel_size": 8})
    assert answer.candidate is not None
    assert answer.candidate.strategy.tensor_parallel_size == 8
    slower = answer.candidate.step_time.step_seconds / plan.chosen.step_time.step_seconds - 1
    assert answer.comparison.startswith(f"{100 * slower:.0f} % slower than the choice")
    assert "tensor parallel exchange +" in answer.comparison


def test_what_is_faster_by_its_micro_batch_is_said_to_have_another(make_job: JobMaker) -> None:
    """LoRA over PCIe: with offload two sequences fit, so parameters are gathered half as often."""
    job = make_job(
        "meta-llama/Llama-3.1-8B",
        gpus=2,
        gpu="rtx-3090",
        recipe={
            "framework": "accelerate",
            "method": "lora",
            "sequence_length": 4096,
            "global_batch_size": 128,
        },
    )
    plan = make_plan(job)
    assert plan.chosen.strategy.micro_batch_size == 1
    said = why_text(
        why_not(plan, {"zero_stage": 3, "offload": Offload.OPTIMIZER_AND_PARAMETERS}), "x"
    )
    assert "layouts is zero-3+offload with micro-batch 2, 19 % faster than the choice, " in said
    assert said.endswith(f"; {sentence('EFF002.host', offload='optimizer+parameters')}")
    (held,) = (each.message for each in plan.findings if each.code == "EFF002")
    name = "zero-3+offload with micro-batch 2"
    assert held.startswith(sentence("EFF002.faster", name=name, gain=0.19))


def test_a_wish_that_does_not_fit_says_by_how_much(make_job: JobMaker) -> None:
    plan = make_plan(make_job(LLAMA, gpus=8))
    whole = {f"{name}_parallel_size": 1 for name in ("tensor", "pipeline", "context")}
    answer = why_not(plan, {"zero_stage": 0, **whole})
    assert [finding.code for finding in answer.findings] == ["MEM001"]
    assert "none of" in why_text(answer, "zero=0")


def test_the_choice_itself_is_no_slower_than_the_choice(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    answer = why_not(
        plan, {"zero_stage": 0, "micro_batch_size": plan.chosen.strategy.micro_batch_size}
    )
    assert answer.candidate is not None
    assert answer.candidate.step_time.step_seconds <= plan.chosen.step_time.step_seconds
    assert why_answer(answer).endswith("is ddp, the choice itself")


def test_a_wish_that_no_layout_has_is_said_even_where_no_limit_forbids_it(
    make_job: JobMaker,
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    answer = why_not(plan, {"pipeline_schedule": PipelineSchedule.NAIVE})
    assert answer.candidate is None
    assert why_text(answer, "schedule=naive").endswith("no layout has all of it")


def test_a_family_that_cannot_take_all_gpus_is_asked_about_with_replicas(
    make_job: JobMaker,
) -> None:
    job = make_job("gpt2", gpus=8, cluster={"nodes": 2}, recipe={"global_batch_size": 256})
    answer = why_not(make_plan(job), family_fields("pp"))
    assert answer.findings == ()
    assert answer.candidate is not None
    s = answer.candidate.strategy
    assert s.pipeline_parallel_size > 1
    assert s.data_parallel_size > 1


def test_a_family_that_no_layout_has_is_refused_for_what_it_is(make_job: JobMaker) -> None:
    """Not for the least of the sizes that its name leaves open: 13 GPUs would be 13 stages of 12 blocks."""
    job = make_job("gpt2", gpus=1, cluster={"nodes": 13}, recipe={"global_batch_size": 260})
    found = {each.code for each in why_not(make_plan(job), family_fields("pp")).findings}
    assert "LAY005" in found
    assert "LAY010" not in found
