"""model.py builds the model of a config.json out of torchtitan's parts, which trains on two processes."""

import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import TINY, Run, run, write
from run_specs import with_layout
from titan_configs import CONFIGS, MIXTURE, SMALL_DEEPSEEK, TEXTS, assets
from transformers import AutoConfig, AutoModelForCausalLM

from planner.generate import RunSpec

TITAN = Path(__file__).parent / "titan"
ON_CPUS = {"PYTHONPATH": os.pathsep.join([str(TITAN.parent / "gloo_only"), str(TITAN / "on_cpus")])}
# PyTorch 2.13 shards no plain parameters on a mesh of several dimensions, as torchtitan's usual backend does from 2.14 on.
BACKEND = ("--parallelism.spmd_backend", "partial_dtensor")

EVEN = math.log(512)
"""The loss of even guesses, near which new weights begin; those of `with_weights` are larger, and guess worse."""


def spec_of(config: dict[str, Any], **layout: Any) -> RunSpec:
    """Return a plan of two processes that starts from weights."""
    base = replace(
        TINY,
        framework="torchtitan",
        model_config=config,
        is_pretrained=True,
        precision="bf16-mixed",
        sequence_length=64,
        versions={"torch": "2.14.0", "torchtitan": "0.3.0"},
    )
    spec = with_layout(base, **{"micro_batch_size": 2, **layout})
    size = spec.micro_batch_size * spec.gradient_accumulation_steps * spec.data_parallel_size
    return replace(spec, global_batch_size=size)


def with_weights(folder: Path, spec: RunSpec) -> Path:
    """Write the plan, with a tokenizer and random weights of transformers' in its assets."""
    write(folder, spec, "torchtitan")
    own = assets(folder / "torchtitan" / "assets")
    torch.manual_seed(0)
    said: dict[str, Any] = {**spec.model_config, "initializer_range": 0.3}
    auto: Any = AutoModelForCausalLM
    model = auto.from_config(AutoConfig.for_model(**said), dtype=torch.float32)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if "norm" in name or "correction_bias" in name:
            torch.nn.init.uniform_(tensor, 0.5, 1.5)
    model.save_pretrained(own)
    return folder


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """How far torchtitan's logits are from transformers', in one process: its imports take seconds."""
    folder = tmp_path_factory.mktemp("weights")
    for name, config in CONFIGS.items():
        with_weights(folder / name, spec_of(config, zero_stage=3))
    program = ("python", "-W", "ignore", str(TITAN / "compare_logits.py"), *CONFIGS)
    # How many threads MKL takes follows the machine's load, and the sums' order follows them.
    printed = run(folder, *program, **ON_CPUS, OMP_NUM_THREADS="1").output()
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_the_weights_of_the_hub_give_the_logits_of_transformers(
    name: str, differences: dict[str, Any]
) -> None:
    found = differences[name]
    assert found["unread"] == found["absent"] == []
    assert found["largest"] > 1
    assert found["difference"] < 1e-5 * found["largest"]


def losses(started: Run) -> list[float]:
    """Return the losses of a run, those of processes that have the last stage."""
    printed = re.sub(r"\x1b\[[\d;]*m", "", started.output())
    found = re.findall(r"step: +(\d+) +loss: +(\d[\d.]+)", printed)
    return [float(loss) for _, loss in sorted(set(found))]


def trained(folder: Path, *arguments: str) -> list[float]:
    """Return the losses of three steps by the plan's own launch.sh."""
    (folder / "corpus").mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (folder / "corpus" / "texts.json").write_text("".join(lines))
    data = ("--dataloader.dataset", "c4_test", "--dataloader.dataset_path", f"{folder}/corpus")
    command = ("bash", "torchtitan/launch.sh", "--training.steps", "3", *data, *BACKEND)
    return losses(run(folder, *command, *arguments, **ON_CPUS))


def test_experts_are_dealt_out_and_start_from_their_weights(tmp_path: Path) -> None:
    spec = spec_of(MIXTURE, zero_stage=3, expert_parallel_size=2)
    found = trained(with_weights(tmp_path / "dealt", spec))
    whole = trained(
        with_weights(tmp_path / "whole", spec), "--parallelism.expert_parallel_degree", "1"
    )
    assert len(found) == 3
    assert found == pytest.approx(whole, rel=1e-3)
    assert found[0] > EVEN + 1


def test_a_pipeline_of_uneven_stages_trains_from_weights(tmp_path: Path) -> None:
    spec = spec_of(
        SMALL_DEEPSEEK,
        zero_stage=2,
        pipeline_parallel_size=2,
        layers_per_stage=(2, 1),
        gradient_accumulation_steps=4,
    )
    found = trained(with_weights(tmp_path / "run", spec))
    assert len(found) == 3
    assert found[0] > EVEN + 1


def test_without_weights_it_says_how_to_get_them(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", spec_of(MIXTURE, zero_stage=3), "torchtitan")
    assert "download the model" in run(folder, "bash", "torchtitan/launch.sh").fail()
    readme = (folder / "README.md").read_text()
    assert 'hf download example/tiny --include "*.json" --include "*.safetensors"' in readme
