"""Mixtures of experts whose layouts others published: across nodes, under FSDP2, beside graphs of the whole step.

Where a source names no figure of a request's field, its scripts do: the comments say which.
"""

from typing import Any

import pytest

from planner.answers import answer_estimate
from planner.catalog import records
from planner.core.units import GIB
from planner.request.schema import parse_request

WITHIN = 0.1
H100_NODES = {
    "gpu": "h100-sxm-80gb",
    "gpus_per_node": 8,
    "nodes": 32,
    "inter_node": {"gb_per_s_per_node": 400, "latency_us": 15},
}


def config(name: str) -> dict[str, Any]:
    record = records.model(name)
    assert record is not None
    return dict(record.config)


def answer(model: Any, cluster: Any, recipe: Any, strategy: Any) -> dict[str, Any]:
    request = {"model": model, "cluster": cluster, "recipe": recipe, "strategy": strategy}
    found: dict[str, Any] = dict(answer_estimate(parse_request(request), allow_paths=False))
    return found


def across_nodes(recipe: dict[str, Any], **layout: Any) -> dict[str, Any]:
    """Qwen3-235B on 256 H100: yanring/Megatron-MoE-ModelZoo at e865051, best_practice/qwen3/readme.md.

    Its model file sets experts' tensor parallelism to 1; sequence_parallel, which it sets too, is left unsaid here.
    """
    common = {"pipeline_schedule": "interleaved-1f1b", "expert_tensor_parallel_size": 1}
    return answer(
        config("Qwen/Qwen3-235B-A22B"),
        H100_NODES,
        {"sequence_length": 4096, "global_batch_size": 2048, "precision": "bf16-mixed"}
        | {"optimizer": "adamw", "attention": "flash", "framework": "megatron"}
        | {"expert_dispatch": "once-per-node", **recipe},
        {"zero_stage": 1, "micro_batch_size": 1, **common, **layout},
    )


NORMS = {"recompute": "selective", "recompute_modules": ["layernorm", "moe_act"]}
EP32 = {
    **NORMS,
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 8,
    "virtual_pipeline_size": 4,
    "expert_parallel_size": 32,
}
PP32 = {
    **NORMS,
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 32,
    "virtual_pipeline_size": 3,
    "expert_parallel_size": 8,
}
TP4 = {
    "tensor_parallel_size": 4,
    "pipeline_parallel_size": 8,
    "virtual_pipeline_size": 4,
    "expert_parallel_size": 8,
}


@pytest.mark.parametrize(
    ("recipe", "measured"), [({}, 19.7), ({"expert_parallel_overlap": True}, 17.6)]
)
def test_experts_across_nodes_take_what_was_measured(
    recipe: dict[str, Any], measured: float
) -> None:
    found = across_nodes(recipe, **EP32)
    assert found["fits"]
    assert found["time"]["step_seconds"] == pytest.approx(measured, rel=WITHIN)


@pytest.mark.parametrize(
    ("recipe", "layout", "measured"),
    [({"expert_dispatch": "all-to-all"}, PP32, 24.2), ({}, TP4, 29.0)],
)
def test_small_products_of_experts_in_a_node_are_in_their_range_and_fit(
    recipe: dict[str, Any], layout: dict[str, Any], measured: float
) -> None:
    """15 % too fast, and unexplained: on H800, whose NVLink is half as fast, xtuner's run of the first took 22.4 s."""
    found = across_nodes(recipe, **layout)
    assert found["fits"]
    assert found["time"]["low_seconds"] < measured < found["time"]["high_seconds"]
    assert found["time"]["step_seconds"] == pytest.approx(measured, rel=0.16)


@pytest.mark.parametrize("said", [{}, {"sequence_parallel": False}])
def test_a_mixture_divided_by_tensors_has_its_sequences_divided_too(said: dict[str, bool]) -> None:
    found = across_nodes({}, **EP32, **said)
    assert found["strategy"]["sequence_parallel"]
    (text,) = [
        each["text"]
        for each in found["assumptions"]
        if each["field"] == "strategy.sequence_parallel"
    ]
    assert ("would not run" in text) == bool(said)


def test_nothing_is_assumed_of_dense_models_and_other_frameworks() -> None:
    recipe = {"sequence_length": 512, "global_batch_size": 32}
    cluster = {"gpu": "h100", "gpus_per_node": 8}
    layout = {"tensor_parallel_size": 2, "micro_batch_size": 1}
    for model, framework in (
        ("Qwen/Qwen3-8B", "megatron"),
        ("mistralai/Mixtral-8x7B-v0.1", "torchtitan"),
    ):
        found = answer(model, cluster, {**recipe, "framework": framework}, layout)
        assert not found["strategy"]["sequence_parallel"]


CONTAINERS = {
    ("30B-A3B", "gb300", 2): (31744, 45275, {"micro_batch_size": 8}),
    ("30B-A3B", "gb200", 2): (26112, 40706, {"micro_batch_size": 4}),
    ("30B-A3B", "b300-sxm", 1): (30720, 40769, {"micro_batch_size": 8}),
    ("235B-A22B", "gb300", 64): (
        6944,
        9015,
        {"micro_batch_size": 2, "pipeline_parallel_size": 4, "virtual_pipeline_size": 12},
    ),
    ("235B-A22B", "gb200", 64): (
        5680,
        7376,
        {"micro_batch_size": 1, "pipeline_parallel_size": 8, "virtual_pipeline_size": 3},
    ),
}
"""Model, card and nodes -> tokens per second and GPU of Megatron Bridge's containers 26.04 and 26.06, and their layout:
docs/performance-summary-archive.md at 067f987."""


@pytest.mark.parametrize("run", CONTAINERS)
def test_graphs_of_the_whole_step_hide_the_exchange_of_experts(run: tuple[str, str, int]) -> None:
    (model, gpu, nodes), (before, after, layout) = run, CONTAINERS[run]
    gpus, batch = 4 if gpu.startswith("gb") else 8, 512 if nodes < 3 else 8192
    cluster: dict[str, Any] = {"gpu": gpu, "gpus_per_node": gpus, "nodes": nodes}
    cluster |= {"inter_node": "nvl72-gb200"} if gpus == 4 else {}
    recipe = {
        "sequence_length": 4096,
        "global_batch_size": batch,
        "precision": "fp8",
        "fp8_recipe": "mxfp8",
        "attention": "flash",
        "framework": "megatron-bridge",
        "expert_dispatch": "once-per-node",
        "cuda_graphs": True,
    }
    experts = {"expert_parallel_size": 8 if nodes < 3 else 32, "expert_tensor_parallel_size": 1}
    schedule = {"pipeline_schedule": "interleaved-1f1b"} if nodes > 2 else {}
    strategy = {"zero_stage": 1, **experts, **schedule, **layout}
    for overlaps, published in ((False, before), (True, after)):
        said = {**recipe, "expert_parallel_overlap": overlaps}
        found = answer(config(f"Qwen/Qwen3-{model}"), cluster, said, strategy)
        seconds = batch * 4096 / (nodes * gpus * published)
        assert found["time"]["step_seconds"] == pytest.approx(seconds, rel=WITHIN)


def test_experts_under_fsdp2_take_what_nemo_automodel_measured() -> None:
    """NVIDIA-NeMo/Automodel at 36044ad, docs/performance-summary.mdx; every block recomputes, as its yaml has it."""
    found = answer(
        config("Qwen/Qwen3-30B-A3B"),
        {"gpu": "h100-sxm-80gb", "gpus_per_node": 8},
        {"sequence_length": 4096, "global_batch_size": 512, "precision": "bf16"}
        | {"optimizer": "adamw", "attention": "flash", "framework": "torch"}
        | {"expert_dispatch": "once-per-node"},
        {"data_parallel_shard_size": 8, "expert_parallel_size": 8, "zero_stage": 3}
        | {"micro_batch_size": 4, "recompute": "full"},
    )
    assert found["fits"]
    assert found["time"]["step_seconds"] == pytest.approx(21.773, rel=WITHIN)
    assert any("NeMo AutoModel" in each["text"] for each in found["assumptions"])


@pytest.mark.parametrize(("batch", "published"), [(4, 36731843072), (8, 48770183680)])
def test_experts_that_are_linears_are_quantised(batch: int, published: float) -> None:
    """Mixtral on one A100: foundation-model-stack/fms-acceleration at 24bdadb, scripts/benchmarks/refs/a100_80gb.csv.

    Its plain runs went through PEFT's prepare_model_for_kbit_training, whose fp32 hidden states take 5.6 and 11 GiB more.
    """
    sizes = {
        version: answer(
            config("mistralai/Mixtral-8x7B-v0.1"),
            {"gpu": "a100-sxm-80gb"},
            {"sequence_length": 4096, "global_batch_size": batch, "precision": "bf16-mixed"}
            | {"method": "qlora", "framework": "accelerate", "framework_version": version}
            | {"optimizer": "adamw", "attention": "flash"}
            | {
                "lora": {
                    "rank": 16,
                    "targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
                    "double_quantization": True,
                }
            },
            {"micro_batch_size": batch, "recompute": "full"},
        )
        for version in ("transformers 4.48", "transformers 5.0")
    }
    old, new = sizes.values()
    assert old["memory"]["peak_bytes"] == pytest.approx(published, rel=0.04)
    assert new["memory"]["peak_bytes"] > 85 * GIB
    said = [each["text"] for each in (*old["assumptions"], *new["assumptions"])]
    assert [text.split(":")[0].split(",")[0] for text in said if text.startswith("experts")] == [
        "experts are quantised with the rest",
        "experts stay in 16 bit",
    ]
