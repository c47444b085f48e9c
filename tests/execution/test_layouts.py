"""Every layout that divides a model trains like one process on the same global batch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launched import ACCUMULATED, DEEP_GPT2, DEEP_LLAMA, deep, launch_several
from reference import TOLERANCE, assert_parity, expected, mean_distance, train
from run_specs import with_layout

from planner.domain.strategy import Offload, Recompute
from planner.generate import RunSpec

SHAPES = {"deep-gpt2": DEEP_GPT2, "deep-llama": DEEP_LLAMA}
TENSOR: dict[str, Any] = {"tensor_parallel_size": 2}
SEQUENCE = TENSOR | {"sequence_parallel": True}
PIPELINE: dict[str, Any] = {"pipeline_parallel_size": 2}
CONTEXT: dict[str, Any] = {"context_parallel_size": 2}
INTERLEAVED = {"pipeline_schedule": "interleaved-1f1b", "virtual_pipeline_size": 2}
V_SHAPED = {"pipeline_schedule": "zbv", "virtual_pipeline_size": 2}
ON_TWO: Mapping[str, Mapping[str, Any]] = {
    "tensor": TENSOR,
    "sequence": SEQUENCE | {"recompute": "selective"},
    "sequence-eager": SEQUENCE | {"attention": "eager"},
    "context": CONTEXT,
    "context-selective": CONTEXT | {"recompute": "selective"},
    "1f1b": PIPELINE | {"recompute": "full"},
    "gpipe-uneven": PIPELINE | {"pipeline_schedule": "gpipe", "layers_per_stage": (3, 1)},
    "interleaved": PIPELINE | INTERLEAVED,
    "zb-h1": PIPELINE | {"pipeline_schedule": "zb-h1"},
    "zbv": PIPELINE | V_SHAPED,
}
DATA: dict[str, Any] = {"data_parallel_size": 2}
ONE_SHARD = DATA | {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 1}
HYBRID = {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 2, "zero_stage": 3}
ON_FOUR: Mapping[str, Mapping[str, Any]] = {
    "data-tensor": DATA | TENSOR,
    "zero1-tensor": DATA | SEQUENCE | {"zero_stage": 1},
    "zero3-tensor": DATA | SEQUENCE | {"zero_stage": 3},
    "zero3-tensor-offload": DATA | TENSOR | {"zero_stage": 3, "offload": "optimizer+parameters"},
    "data-pipeline": DATA | PIPELINE,
    "zero1-pipeline": DATA | PIPELINE | {"zero_stage": 1},
    "zero2-zbv": DATA | PIPELINE | V_SHAPED | {"zero_stage": 2},
    "zero3-interleaved": DATA | PIPELINE | INTERLEAVED | {"zero_stage": 3},
    "pipeline-4": {"pipeline_parallel_size": 4},
    "zero3-context": DATA | CONTEXT | {"zero_stage": 3, "recompute": "full"},
    "zbv-context": PIPELINE | V_SHAPED | CONTEXT,
    "zero1-tensor-one-shard": ONE_SHARD | TENSOR | {"zero_stage": 1},
    "zero3-pipeline-one-shard": ONE_SHARD | PIPELINE | {"zero_stage": 3},
}


def plans(
    layouts: Mapping[str, Mapping[str, Any]], shapes: Mapping[str, Any]
) -> dict[str, RunSpec]:
    """Return a plan for every layout of every shape."""
    return {
        f"{layout}@{shape}": deep(shapes[shape], **layouts[layout])
        for shape in shapes
        for layout in layouts
    }


def assert_all(folder: Path, specs: Mapping[str, RunSpec]) -> None:
    for name, run in launch_several(folder, specs, "--no-dropout").items():
        spec = specs[name]
        assert_parity(run, expected(name.partition("@")[2]), spec.world_size)


def test_two_processes_train_like_one(tmp_path: Path) -> None:
    """Not preloaded, as few are: what a script forgets to import is seen here."""
    assert_all(tmp_path, plans(ON_TWO, SHAPES))


@pytest.mark.usefixtures("preloaded")
def test_four_processes_train_like_one(tmp_path: Path) -> None:
    """Layouts of two kinds at once, and replicas of shards, which need not divide the model.

    What a shape changes two processes show; stages have the one whose first and last weights are tied.
    """
    hybrid = with_layout(ACCUMULATED, gpus_per_node=4, gradient_accumulation_steps=2, **HYBRID)
    gpt2 = replace(hybrid, model_config=DEEP_GPT2)
    specs = {
        "hybrid@deep-llama": replace(hybrid, model_config=DEEP_LLAMA),
        "hybrid-selective@deep-gpt2": replace(gpt2, recompute=Recompute.SELECTIVE),
        "hybrid-offload@deep-gpt2": replace(
            gpt2, zero_stage=2, offload=Offload.OPTIMIZER_AND_PARAMETERS
        ),
        "hybrid-one-shard@deep-gpt2": replace(
            gpt2, data_parallel_replicate_size=4, data_parallel_shard_size=1
        ),
    }
    for name, layout in ON_FOUR.items():
        shape = "deep-gpt2" if "pipeline_parallel_size" in layout else "deep-llama"
        specs |= plans({name: layout}, {shape: SHAPES[shape]})
    assert_all(tmp_path, specs)


@pytest.mark.usefixtures("preloaded")
def test_eight_processes_train_like_one(tmp_path: Path) -> None:
    layout = DATA | SEQUENCE | PIPELINE
    layouts = {"0": layout | {"zero_stage": 0}, "1": layout | {"zero_stage": 1}}
    specs = {
        **plans({"0": layouts["0"]}, {"deep-llama": DEEP_LLAMA}),
        **plans({"1": layouts["1"]}, {"deep-gpt2": DEEP_GPT2}),
    }
    assert_all(tmp_path, specs)


def relatives() -> dict[str, RunSpec]:
    """Return relatives of llama, with what sets them apart; and vocabularies that do not divide."""
    shapes = {
        "mistral": DEEP_LLAMA | {"sliding_window": None},
        "qwen2": DEEP_LLAMA,
        "qwen3": DEEP_LLAMA | {"head_dim": 16},
        "llama": DEEP_LLAMA | {"tie_word_embeddings": True, "vocab_size": 97},
        "gpt2": DEEP_GPT2 | {"vocab_size": 97},
    }
    return {
        name: deep(
            shape | {"model_type": name, "architectures": None},
            **(PIPELINE if name == "llama" else TENSOR),
        )
        for name, shape in shapes.items()
    }


@pytest.mark.usefixtures("preloaded")
def test_relatives_and_mixed_precision_stay_close(tmp_path: Path) -> None:
    """Keys' biases have gradients of rounding alone, which AdamW turns into steps: means, there."""
    mixed = {
        "tensor": TENSOR | {"precision": "bf16-mixed"},
        "sequence": SEQUENCE | {"zero_stage": 3, "precision": "bf16-mixed"},
        "pipeline": PIPELINE | {"zero_stage": 2, "precision": "bf16-mixed"},
        "pure": PIPELINE | {"precision": "bf16"},
        "scaled": TENSOR | {"precision": "fp16-mixed"},
        "scaled-shards": SEQUENCE | {"zero_stage": 3, "precision": "fp16-mixed"},
        "scaled-pipeline": PIPELINE | {"zero_stage": 2, "precision": "fp16-mixed"},
        "scaled-stages": PIPELINE | V_SHAPED | {"precision": "fp16-mixed"},
        "scaled-context": CONTEXT | {"zero_stage": 3, "precision": "fp16-mixed"},
    }
    close, exact = plans(mixed, {"deep-gpt2": DEEP_GPT2}), relatives()
    runs = launch_several(tmp_path, close | exact, "--no-dropout")
    for name, spec in exact.items():
        reference = train(spec.model_config)
        assert runs[name].losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
        assert mean_distance(runs[name].weights, reference.weights) < TOLERANCE / 100
    reference = expected("deep-gpt2")
    moved = mean_distance(reference.initial, reference.weights)
    for name in close:
        assert runs[name].losses == pytest.approx(reference.losses, abs=0.02)
        weights = {key: weight.float() for key, weight in runs[name].weights.items()}
        assert mean_distance(weights, reference.weights) < 0.5 * moved


@pytest.mark.usefixtures("preloaded")
def test_rows_that_do_not_divide_are_where_they_belong(tmp_path: Path) -> None:
    """Neither by shards nor by the ranks of a tensor-parallel group."""
    odd = DEEP_LLAMA | {"vocab_size": 97, "intermediate_size": 66}
    specs = {"odd": deep(odd, **DATA, **TENSOR, zero_stage=3)}
    (run,) = launch_several(tmp_path, specs, "--no-dropout").values()
    assert run.losses == pytest.approx(train(odd).losses, abs=TOLERANCE, rel=0)
