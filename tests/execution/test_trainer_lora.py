"""Adapters train in TRL like in one process beside frozen weights, whole or in 4 bit, and resume exactly."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import LLAMA
from reference import TOLERANCE, Reference, distance, weights_of
from reference import train as train_alone
from run_specs import with_layout
from test_lora import MODULES, adapted, plan, quantised
from texts import write_tokenizer
from trainer_runs import AS_GPUS, ON_GLOO, TrainerRun, named, rate, tokens, train

from planner.generate import RunSpec

pytestmark = [
    pytest.mark.usefixtures("preloaded"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
]

RUNS: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "replicas": ({"recompute": "full"}, {}),
    "zero-3": ({"zero_stage": 3, "recompute": "full"}, AS_GPUS),
    "deepspeed": ({"framework": "deepspeed", "zero_stage": 1}, ON_GLOO),
    "replicas in 4 bit": ({"bits": 4}, {}),
    "shards in 4 bit": ({"bits": 4, "zero_stage": 2}, AS_GPUS),
    "offloaded in 4 bit": (
        {"bits": 4, "zero_stage": 3, "offload": "optimizer+parameters"},
        AS_GPUS,
    ),
}


@cache
def expected(bits: int) -> Reference:
    """Train the adapters in this process, once per session; TRL rounds them to bf16 beside 4 bits."""

    def adapt(base: Any) -> Any:
        model = adapted(quantised(base) if bits == 4 else base, MODULES["llama"]).train()
        for parameter in model.parameters():
            if parameter.requires_grad and bits == 4:
                parameter.data = parameter.data.bfloat16().float()
        return model

    return train_alone(LLAMA, adapt=adapt, rate=rate)


def quiet(spec: RunSpec) -> RunSpec:
    assert spec.adapters is not None
    return replace(spec, is_pretrained=True, adapters=replace(spec.adapters, dropout=0.0))


def run(folder: Path, spec: RunSpec, *arguments: str, **environment: str) -> TrainerRun:
    """Train from the reference's initial weights."""
    data = tokens(folder)[1]
    weights_of(LLAMA, folder / "llama")
    options = named(Path(data), write_tokenizer(folder / "llama"))
    return train(folder, quiet(spec), *options, *arguments, **environment)


def assert_parity(run: TrainerRun, reference: Reference) -> None:
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    trained = {
        name.replace(".default", ""): weight
        for name, weight in reference.weights.items()
        if ".lora_" in name
    }
    assert run.adapters.keys() == trained.keys()
    assert distance(run.adapters, trained) <= TOLERANCE
    assert not (run.folder / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("name", RUNS)
def test_adapters_train_like_one_process(name: str, tmp_path: Path) -> None:
    layout, environment = RUNS[name]
    done = run(tmp_path, plan(**layout), **environment).finish()
    assert_parity(done, expected(layout.get("bits", 32)))
    assert {weight.dtype for weight in done.adapters.values()} == {torch.float32}
    config = json.loads((tmp_path / "model" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 8)


@pytest.mark.parametrize("layout", [{}, {"zero_stage": 3}])
def test_adapters_resume_exactly(layout: dict[str, Any], tmp_path: Path) -> None:
    environment = AS_GPUS if layout else {}
    whole = run(tmp_path / "whole", plan(**layout), "--save_steps", "1", **environment).finish()
    checkpoint = whole.folder / "model" / "checkpoint-1"
    resume = ("--resume_from_checkpoint", str(checkpoint))
    part = run(tmp_path / "part", plan(**layout), *resume, **environment).finish()
    assert part.losses == whole.losses[1:]
    assert distance(part.adapters, whole.adapters) == 0


@pytest.mark.parametrize("stage", [0, 3])
def test_4_bit_weights_compute_in_16_bit(stage: int, tmp_path: Path) -> None:
    spec = plan(bits=4, zero_stage=stage, precision="bf16-mixed")
    done = run(tmp_path, spec, **(AS_GPUS if stage else {})).finish()
    assert done.losses == pytest.approx(expected(4).losses, abs=0.02)
    assert {weight.dtype for weight in done.adapters.values()} == {torch.float32}


def test_weights_that_are_multiplied_in_16_bit_are_saved_in_it(tmp_path: Path) -> None:
    spec = with_layout(replace(plan(), adapters=None), precision="bf16-mixed")
    done = train(tmp_path, spec, *tokens(tmp_path)).finish()
    assert {weight.dtype for weight in done.weights.values()} == {torch.bfloat16}
