"""What a recipe says of its framework: the release, and what its exchanges are like."""

from typing import Any

import pytest

from planner.core.errors import UnsupportedError
from planner.request.schema import parse_request, resolve
from planner.request.strategy import requested_layout
from planner.step_time.ledger import StepTime, estimate_step_time

REQUEST: dict[str, Any] = {
    "model": "meta-llama/Llama-2-7b-hf",
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8, "nodes": 4},
    "recipe": {
        "sequence_length": 2048,
        "global_batch_size": 64,
        "precision": "bf16-mixed",
        "framework": "megatron",
    },
    "strategy": {
        "data_parallel_shard_size": 16,
        "tensor_parallel_size": 2,
        "sequence_parallel": True,
        "zero_stage": 1,
        "micro_batch_size": 1,
    },
}


def step(**recipe: Any) -> StepTime:
    request = parse_request({**REQUEST, "recipe": {**REQUEST["recipe"], **recipe}})
    job = resolve(request, allow_paths=False).job
    return estimate_step_time(job, requested_layout(request.strategy, job))


def seconds(name: str, **recipe: Any) -> float:
    return sum(float(term.amount) for term in step(**recipe).terms if term.name == name)


def test_the_release_that_was_taken_is_said() -> None:
    recipe = {**REQUEST["recipe"], "framework_version": "megatron-deepspeed 2022-03"}
    resolved = resolve(parse_request({**REQUEST, "recipe": recipe}), allow_paths=False)
    (said,) = (each for each in resolved.assumptions if each.field == "recipe.framework_version")
    assert "Megatron-DeepSpeed 2022" in said.text
    assert resolved.job.framework.host.layer_seconds > 0


@pytest.mark.parametrize(
    ("name", "version", "release"),
    [
        ("internevo", None, "InternEvo"),
        ("megatron-deepspeed", None, "Megatron-DeepSpeed 2022"),
        ("nemo", "24.09", "NeMo 2024"),
        ("NeMo", None, "NeMo 2024"),
        ("megatron-bridge", None, "Megatron Bridge"),
        ("megatron-lm", "core_r0.16.1", "Megatron Core"),
    ],
)
def test_a_fork_or_a_release_goes_by_its_own_name(
    name: str, version: str | None, release: str
) -> None:
    recipe = {**REQUEST["recipe"], "framework": name, "framework_version": version}
    resolved = resolve(parse_request({**REQUEST, "recipe": recipe}), allow_paths=False)
    assert (resolved.job.framework.name, resolved.job.framework.release) == ("megatron", release)
    said = [each.text for each in resolved.assumptions if each.field == "recipe.framework_version"]
    assert [f"megatron as {release} does" in text for text in said] == [True]


@pytest.mark.parametrize("name", ["", "meg", "nemo-curator", "\0" * 40])
def test_a_framework_that_nobody_knows_is_refused(name: str) -> None:
    recipe = {**REQUEST["recipe"], "framework": name}
    with pytest.raises(UnsupportedError) as caught:
        resolve(parse_request({**REQUEST, "recipe": recipe}), allow_paths=False)
    assert "megatron" in caught.value.hint


def test_gradients_of_two_bytes_take_half_the_time_on_the_wires() -> None:
    fp32, bf16 = (
        seconds("gradient_reduction", gradient_reduce_dtype=dtype, data_parallel_overlap=False)
        for dtype in ("fp32", "bf16")
    )
    assert bf16 == pytest.approx(fp32 / 2, rel=0.05)


def test_a_reduction_that_nothing_hides_is_longer() -> None:
    shown = [seconds("gradient_reduction", data_parallel_overlap=hides) for hides in (True, False)]
    assert shown[0] < shown[1]


def test_exchanges_in_pieces_hide_and_the_line_says_how_much() -> None:
    name = "tensor_parallel_exchange"
    hidden, usual, bare = (
        seconds(name, tensor_parallel_overlap=hides) for hides in (True, None, False)
    )
    # 0.3 of those in blocks, and those at the model's two ends.
    assert 0.3 * bare < hidden < 0.32 * bare
    assert hidden < usual < bare
    (term,) = (each for each in step(tensor_parallel_overlap=True).terms if each.name == name)
    assert "70 % of those in blocks behind matmuls" in term.how


@pytest.mark.parametrize(
    ("gpu", "method", "is_hidden"),
    [("h100-sxm-80gb", "full", True), ("h100-sxm-80gb", "lora", True), ("l40s", "lora", False)],
)
def test_recipes_in_fp8_overlap_beside_sequence_parallelism_where_nvlink_is(
    gpu: str, method: str, *, is_hidden: bool
) -> None:
    name = "tensor_parallel_exchange"
    cluster = {"gpu": gpu, "gpus_per_node": 8, "nodes": 4}
    recipe = {**REQUEST["recipe"], "precision": "fp8", "method": method}
    parsed = parse_request({**REQUEST, "cluster": cluster, "recipe": recipe})
    job = resolve(parsed, allow_paths=False).job
    terms = estimate_step_time(job, requested_layout(parsed.strategy, job)).terms
    assert any("behind matmuls" in each.how for each in terms if each.name == name) == is_hidden


MIXTURE: dict[str, Any] = {
    "model": "Qwen/Qwen3-30B-A3B",
    "cluster": {"gpu": "h100-sxm-80gb", "gpus_per_node": 8, "nodes": 2},
    "recipe": {
        "sequence_length": 4096,
        "global_batch_size": 32,
        "precision": "bf16-mixed",
        "framework": "megatron",
    },
    "strategy": {
        "data_parallel_shard_size": 16,
        "expert_parallel_size": 16,
        "zero_stage": 1,
        "micro_batch_size": 1,
    },
}


def of_mixture(name: str, **recipe: Any) -> float:
    request = parse_request({**MIXTURE, "recipe": {**MIXTURE["recipe"], **recipe}})
    job = resolve(request, allow_paths=False).job
    terms = estimate_step_time(job, requested_layout(request.strategy, job)).terms
    return sum(float(term.amount) for term in terms if term.name == name)


def test_experts_exchange_less_once_per_node_and_hides_where_it_overlaps() -> None:
    name = "expert_parallel_exchange"
    plain, once, hidden = (
        of_mixture(name, **recipe)
        for recipe in (
            {},
            {"expert_dispatch": "once-per-node"},
            {"expert_parallel_overlap": True},
        )
    )
    assert once < 0.5 * plain
    assert hidden == pytest.approx(0.6 * plain)


def test_layers_that_are_launched_whole_wait_less_for_the_host() -> None:
    assert of_mixture("forward", cuda_graphs=True) < of_mixture("forward")


def test_what_launch_files_do_not_set_is_said_by_name() -> None:
    recipe = {**REQUEST["recipe"], "gradient_reduce_dtype": "bf16", "cuda_graphs": True}
    notes = resolve(parse_request({**REQUEST, "recipe": recipe}), allow_paths=False).notes
    assert any("gradient_reduce_dtype, cuda_graphs" in note for note in notes)
    assert not any(
        "launch files" in n for n in resolve(parse_request(REQUEST), allow_paths=False).notes
    )


def test_a_run_of_accelerate_on_a100_is_of_its_years_and_files_are_of_today() -> None:
    payload: dict[str, Any] = {"model": "gpt2", "recipe": {"framework": "accelerate"}}
    on_a100 = parse_request(payload | {"cluster": {"gpu": "a100"}})
    on_h100 = parse_request(payload | {"cluster": {"gpu": "h100"}})
    found = resolve(on_a100, allow_paths=False, of_a_run=True)
    assert found.job.framework.sharding.flat_parameters
    assert "accelerate 1.0 with FSDP1" in " ".join(each.text for each in found.assumptions)
    later = resolve(on_h100, allow_paths=False, of_a_run=True)
    planned = resolve(on_a100, allow_paths=False)
    for other in (later, planned):
        assert not other.job.framework.sharding.flat_parameters


@pytest.mark.parametrize("gpu", ["h100", "b200", "gb200"])
def test_unsaid_megatron_is_what_its_launch_files_run_on_every_gpu(gpu: str) -> None:
    """They start pretrain_gpt.py with --bf16, which adds gradients up, and reduces them, in fp32."""
    body = {"model": "meta-llama/Llama-3.1-8B", "cluster": {"gpu": gpu, "gpus_per_node": 4}}
    request = parse_request({**body, "recipe": {"framework": "megatron"}})
    for of_a_run in (False, True):
        resolved = resolve(request, allow_paths=False, of_a_run=of_a_run)
        precision = resolved.job.framework.precisions["bf16-mixed"]
        assert (precision.gradient_bytes, precision.reduce_bytes) == (4, 4)
        assert not any(each.field.endswith("version") for each in resolved.assumptions)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.16.1", "megatron as Megatron Core does, the record nearest to 0.16.1"),
        ("0.25", "the record nearest to 0.25 (newer than 0.19.0)"),
        ("megatron-bridge 25.07", "nearest to megatron-bridge 25.07 (older than 2025-09)"),
    ],
)
def test_a_version_that_is_older_or_newer_than_its_record_is_said_to_be(
    version: str, said: str
) -> None:
    recipe = {**REQUEST["recipe"], "framework_version": version}
    resolved = resolve(parse_request({**REQUEST, "recipe": recipe}), allow_paths=False)
    (text,) = (each.text for each in resolved.assumptions if each.field.endswith("version"))
    assert text.endswith(said)


def test_a_run_that_only_megatron_deepspeed_did_is_taken_to_be_of_it_and_said() -> None:
    layout = {"tensor_parallel_size": 8, "zero_stage": 1, "recompute": "full"}
    body: dict[str, Any] = {
        "model": "gpt2-xl",
        "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8},
        "recipe": {"framework": "megatron", "precision": "bf16-mixed", "attention": "eager"},
    }
    request = parse_request(body | {"strategy": layout})
    run = resolve(request, allow_paths=False, of_a_run=True)
    assert run.job.framework.host.layer_seconds > 0
    said = [each.text for each in run.assumptions if each.field == "recipe.framework_version"]
    assert len(said) == 1
    assert "Megatron-DeepSpeed 2022" in said[0]
    assert "attention eager, zero_stage 1, recompute full" in said[0]
    named = body | {"recipe": body["recipe"] | {"framework_version": "2.5"}}
    for other in (body, named | {"strategy": layout}):
        job = resolve(parse_request(other), allow_paths=False, of_a_run=True).job
        assert job.framework.host.layer_seconds == 0
    assert resolve(request, allow_paths=False).job.framework.host.layer_seconds == 0
