import json
import subprocess
import sys
from typing import Any

import pytest

from planner import answers
from planner.answers.shapes import EstimateAnswer
from planner.catalog import records
from planner.core.errors import InvalidInputError, InvalidRequestError, PlannerError
from planner.models.architectures import read_model
from planner.request.schema import parse_request

REQUEST: dict[str, Any] = {
    "id": "row-17",
    "model": "gpt2",
    "cluster": {"gpu": "h100", "gpus_per_node": 4},
    "recipe": {"global_batch_size": 64},
}


def estimate(**parts: Any) -> EstimateAnswer:
    return answers.answer_estimate(parse_request({**REQUEST, **parts}), allow_paths=False)


def test_an_estimate_has_the_contracts_fields() -> None:
    answer = estimate(strategy={"zero_stage": 3, "micro_batch_size": 4})
    assert answer["id"] == "row-17"
    assert answer["ok"] is True
    assert answer["schema_version"] == answers.SCHEMA_VERSION
    assert answer["model"]["parameters"] == 124_439_808
    assert answer["fits"] is True
    memory, time = answer["memory"], answer["time"]
    assert memory["reserved_bytes"] > memory["peak_bytes"] > 0
    (stage,) = memory["stages"]
    assert stage == {"stage": 0} | {key: memory[key] for key in ("peak_bytes", "reserved_bytes")}
    total = sum(term["bytes"] for term in memory["terms"])
    assert total == pytest.approx(memory["reserved_bytes"], abs=len(memory["terms"]))
    assert time["low_seconds"] < time["step_seconds"] < time["high_seconds"]
    assert sum(term["seconds"] for term in time["terms"]) == pytest.approx(time["step_seconds"])
    assert 0 < answer["model_flops_utilization"] < 1
    assert answer["tokens_per_second_per_gpu"] > 0
    assert answer["host_memory_bytes"] == answer["host_memory"]["loading_bytes"]
    assert answer["host_memory_bytes"] == 4 * 124_439_808


def test_a_plan_has_the_contracts_fields() -> None:
    resolved, plan = answers.suggest(parse_request(REQUEST), allow_paths=False)
    answer = answers.answer_plan(resolved, plan, "row-17")
    assert {"schema_version", "job", "chosen", "alternatives", "rejected", "findings"} <= set(
        answer
    )
    assert answer["chosen"]["strategy"]["zero_stage"] == 0
    assert answer["search"].keys() == {"strategies", "feasible", "seconds"}
    assert answer["findings"][0]["code"] == "ONE002"
    assert answer["job"]["cluster"]["world_size"] == 4
    assert json.loads(json.dumps(answer)) == answer


def test_rejected_layouts_carry_their_codes() -> None:
    request = parse_request({"model": "meta-llama/Llama-2-7b-hf", "cluster": {"gpus_per_node": 8}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    rejected = answers.answer_plan(resolved, plan, None)["rejected"]
    assert {"family": "ddp", "codes": ["MEM001"]} in [
        {name: each[name] for name in ("family", "codes")} for each in rejected
    ]


def test_a_bad_line_does_not_end_the_batch() -> None:
    lines = [
        REQUEST,
        {"id": 2, "model": "gpt9"},
        {"id": {"x": 1}, "model": "gpt2"},
        "not an object",
        {**REQUEST, "id": 5, "strategy": {"tensor_parallel_size": 5}},
        {**REQUEST, "id": 6},
    ]
    batch: list[Any] = list(answers.answer_batch(lines, allow_paths=False))
    assert [a["ok"] for a in batch] == [True, False, False, False, False, True]
    assert [a["id"] for a in batch] == ["row-17", 2, None, None, 5, 6]
    assert batch[4]["error"]["field"] == "strategy.tensor_parallel_size"


def test_an_error_is_described_with_every_problem() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request({"modle": "gpt2"})
    described = answers.describe_error(caught.value)
    assert described["type"] == "InvalidRequestError"
    assert {p["field"] for p in described["problems"]} == {"model", "modle"}
    plain = answers.describe_error(PlannerError("what", "do", "where"))
    assert plain == {"type": "PlannerError", "message": "what", "hint": "do", "field": "where"}


def test_a_model_answer_sums_to_its_parameters() -> None:
    answer = answers.answer_model(read_model("gpt2", {"model_type": "gpt2"}))
    assert answer["parameters"] == answer["active_parameters"] == 124_439_808
    assert sum(part["count"] * part["parameters"] for part in answer["parts"]) == 124_439_808
    assert answer["largest_layer_parameters"] == (50257 + 1024) * 768


def test_an_instance_answer_has_null_where_nothing_is_known() -> None:
    known = answers.answer_instance(records.instance("p4d.24xlarge"))
    assert (known["gpu"], known["gpus_per_node"]) == ("a100-sxm-40gb", 8)
    assert (known["usd_per_hour"], known["price_date"]) == (21.9576, "2026-01-21")
    blank = answers.answer_instance(records.instance("a2-highgpu-1g"))
    unknown = {name for name, value in blank.items() if value is None}
    assert unknown == {
        "alias",
        "efa_interfaces",
        "nvlink_domain_gpus",
        "network_bytes_per_second",
        "host_memory_bytes",
        "usd_per_hour",
        "price_source",
        "vcpus",
        "price_date",
        "sagemaker_type",
    }
    assert (blank["wiring"], blank["topology"]) == ("", "")


def test_an_estimate_lists_every_pipeline_stage() -> None:
    strategy = {"pipeline_parallel_size": 4, "gradient_accumulation_steps": 64}
    memory = estimate(recipe={"global_batch_size": 64}, strategy=strategy)["memory"]
    assert [stage["stage"] for stage in memory["stages"]] == [0, 1, 2, 3]
    peaks = [stage["reserved_bytes"] for stage in memory["stages"]]
    assert max(peaks) == memory["reserved_bytes"]
    assert len(set(peaks)) > 1


def test_offload_is_a_term_of_the_step() -> None:
    strategy = {"zero_stage": 3, "offload": "optimizer+parameters"}
    terms = estimate(strategy=strategy)["time"]["terms"]
    assert next(term for term in terms if term["name"] == "offload")["seconds"] > 0


@pytest.mark.parametrize("name", ["objective", "max_gpus", "deadline_hours", "why"])
def test_an_estimate_takes_no_wishes_of_a_suggestion(name: str) -> None:
    wishes = {"objective": "cost", "max_gpus": 8, "deadline_hours": 2, "why": {"zero_stage": 3}}
    with pytest.raises(InvalidInputError) as caught:
        estimate(**{name: wishes[name]})
    assert caught.value.field == name
    suggested = answers.suggest(
        parse_request(
            {
                **REQUEST,
                "recipe": {"global_batch_size": 64, "training_tokens": 10**9},
                name: wishes[name],
            }
        ),
        allow_paths=False,
    )
    assert suggested[1].chosen.fits


def test_a_wish_is_answered_in_the_contracts_words() -> None:
    request = parse_request({**REQUEST, "why": {"recompute": "full", "zero_stage": 3}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    answer = answers.answer_suggestion(request, resolved, plan)
    assert answer["why"] is not None
    assert answer["why"]["wish"] == {"recompute": "full", "zero_stage": 3}
    assert dict(answer["why"]["strategy"] or {})["recompute"] == "full"


def test_a_framework_that_nobody_named_is_one_that_can_do_what_is_asked() -> None:
    cluster = {"gpu": "h100", "gpus_per_node": 8}
    asked = {"model": "meta-llama/Llama-3.1-8B", "cluster": cluster}
    request = parse_request({**asked, "recipe": {"precision": "fp8"}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    able = {
        name for name in records.framework_names() if "fp8" in records.framework(name).precisions
    }
    assert plan.job.framework.name in able
    assert "recipe.framework" in {each.field for each in resolved.assumptions}
    named = parse_request({**asked, "recipe": {"precision": "fp8", "framework": "torch"}})
    with pytest.raises(InvalidInputError, match="not estimated for torch"):
        answers.suggest(named, allow_paths=False)


def test_an_estimate_names_what_its_framework_cannot_do_and_keeps_its_numbers() -> None:
    answer = estimate(
        recipe={"framework": "accelerate", "global_batch_size": 64},
        strategy={"pipeline_parallel_size": 2},
    )
    assert answer["ok"]
    assert answer["fits"]
    assert answer["time"]["step_seconds"] > 0
    assert ("LAY030", "blocker") in {
        (each["code"], each["severity"]) for each in answer["findings"]
    }


@pytest.mark.parametrize(
    ("gpu", "strategy", "says"),
    [
        ("l4", None, ["768 GiB"]),
        ("l4", {"offload": "optimizer+parameters", "zero_stage": 3}, []),
        ("h100", None, []),
    ],
)
def test_the_host_memory_that_offload_was_given_is_assumed(
    gpu: str, strategy: dict[str, Any] | None, says: list[str]
) -> None:
    body = {
        "model": "meta-llama/Llama-2-13b-hf",
        "cluster": {"gpu": gpu, "gpus_per_node": 8},
        "strategy": strategy,
    }
    resolved, plan = answers.suggest(parse_request(body), allow_paths=False)
    assert plan.chosen.strategy.offloads_optimizer == (gpu == "l4")
    texts = [each.text for each in resolved.assumptions if "host memory" in each.text]
    assert [text.partition(" of ")[0] for text in texts] == says


def test_every_answer_is_found_where_it_is_first_asked_for() -> None:
    for name in answers.__all__:
        assert getattr(answers, name) is not None
    unknown = "answer_nothing"
    with pytest.raises(AttributeError, match=f"no attribute '{unknown}'"):
        getattr(answers, unknown)


def test_a_plan_imports_nothing_that_it_does_not_use() -> None:
    code = (
        "import sys; from planner import answers; from planner.request.schema import parse_request\n"
        "request = parse_request({'model': 'gpt2', 'cluster': {'gpu': 't4', 'gpus_per_node': 2}})\n"
        "answers.suggest(request, allow_paths=False)\n"
        "print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    imported = set(found.stdout.split())
    assert "planner.advice.plan" in imported
    assert not imported & {
        "concurrent.futures",  # what asks the Hub
        "numpy.ma",
        "planner.advice.batch_plan",
        "planner.advice.replicas",
        "planner.answers.shapes",
        "planner.hardware.topology",
        "planner.machine.document",
    }
