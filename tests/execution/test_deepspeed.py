"""DeepSpeed reads ds_config.json, and trains like one process with every stage and offload."""

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
import transformers
from deepspeed.runtime import constants
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.zero.config import ZERO_OPTIMIZATION
from launched import ACCUMULATED, GPT2, LLAMA, TINY, Run, start, write
from pydantic import ValidationError
from reference import assert_parity, expected, mean_distance
from run_specs import refusal, with_layout

from planner.generate import RunSpec, generate

pytestmark = pytest.mark.usefixtures("preloaded")

GLOO_ONLY = {"PYTHONPATH": str(Path(__file__).parent / "gloo_only")}
OFFLOADED = {"zero_stage": 3, "offload": "optimizer+parameters"}


class Ranks:
    """What DeepSpeed asks of the processes that it will run on."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_data_parallel_world_size(self) -> int:
        return self.count

    def get_data_parallel_rank(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rank of its own DeepSpeed would take the batch for that of one process."""
    monkeypatch.setattr(deepspeed.comm, "get_rank", lambda: 0)


def layouts() -> Iterator[RunSpec]:
    precisions = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
    for stage, precision in product(range(4), precisions):
        yield with_layout(ACCUMULATED, zero_stage=stage, precision=precision)
    for stage in (1, 2, 3):
        yield with_layout(
            ACCUMULATED, zero_stage=stage, offload="optimizer", nodes=2, global_batch_size=32
        )
    yield with_layout(ACCUMULATED, **OFFLOADED)


def settings(spec: RunSpec) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(generate(spec, ["deepspeed"])["deepspeed/ds_config.json"])
    return read


def test_deepspeed_reads_every_layout_as_it_is_meant() -> None:
    for spec in layouts():
        config = DeepSpeedConfig(settings(spec), mpu=Ranks(spec.world_size))
        assert config.train_batch_size == spec.global_batch_size
        assert config.train_micro_batch_size_per_gpu == spec.micro_batch_size
        assert config.gradient_accumulation_steps == spec.gradient_accumulation_steps
        zero = config.zero_config
        assert zero.stage == spec.zero_stage
        assert (zero.offload_optimizer is not None) == spec.offloads_optimizer
        assert (zero.offload_param is not None) == spec.offloads_parameters
        assert config.bfloat16_config.enabled == spec.precision.startswith("bf16")
        assert config.float16_config.enabled == (spec.precision == "fp16-mixed")


def test_deepspeed_knows_every_section() -> None:
    """It drops unknown ones in silence, so their names are compared with those it looks for."""
    known = {value for value in vars(constants).values() if isinstance(value, str)}
    known.add(ZERO_OPTIMIZATION)
    for spec in layouts():
        assert settings(spec).keys() <= known


@pytest.mark.parametrize(
    "change",
    [
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"stage": 2, "ofload_optimizer": {"device": "cpu"}}},
        {"train_batch_size": 17},
        {"bf16": {"enabled": True, "half": True}},
    ],
)
def test_a_contradiction_or_an_unknown_key_would_be_seen(change: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, AssertionError)):
        DeepSpeedConfig(settings(ACCUMULATED) | change, mpu=Ranks(2))


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (
            {"tensor_parallel_size": 2, "global_batch_size": 8},
            "divides data and layers over GPUs, not matrices, sequences or experts",
        ),
        (
            {
                "zero_stage": 3,
                "data_parallel_replicate_size": 2,
                "nodes": 2,
                "data_parallel_shard_size": 2,
                "global_batch_size": 32,
            },
            "without replicas",
        ),
        ({"recompute": "selective"}, "whole blocks or nothing"),
        ({"offload": "optimizer"}, "nothing is sharded"),
        ({"offload": "optimizer+parameters", "zero_stage": 2}, "with ZeRO-3 alone"),
        ({"synchronize_every": 4}, "averages gradients every step"),
    ],
)
def test_what_deepspeed_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(with_layout(TINY, **layout), "deepspeed"))


def launch(folder: Path, spec: RunSpec, *arguments: str) -> Run:
    write(folder, spec, "deepspeed")
    command = ("bash", "deepspeed/launch.sh", "--no-dropout", *arguments)
    return start(folder, *command, **GLOO_ONLY)


def weights_of(model_config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Save the reference's initial weights; return the arguments that start from them.

    ZeRO-3 draws random weights shard by shard, in another order than one process does.
    """
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**model_config)
    auto: Any = transformers.AutoModelForCausalLM
    auto.from_config(config).save_pretrained(folder)
    return ("--init", "pretrained", "--model", str(folder))


def test_every_stage_trains_like_one_process(tmp_path: Path) -> None:
    first = launch(tmp_path / "1", with_layout(ACCUMULATED, zero_stage=1))
    llama = with_layout(ACCUMULATED, zero_stage=3, model_config=LLAMA)
    third = launch(tmp_path / "3", llama, *weights_of(LLAMA, tmp_path / "llama"))
    assert_parity(first.finish(), expected("gpt2"))
    assert_parity(third.finish(), expected("llama"))


def test_offloading_trains_like_one_process(tmp_path: Path) -> None:
    second = launch(tmp_path / "2", with_layout(TINY, zero_stage=2, offload="optimizer"))
    third = launch(
        tmp_path / "3", with_layout(TINY, **OFFLOADED), *weights_of(GPT2, tmp_path / "gpt2")
    )
    for run in (second, third):
        assert_parity(run.finish(), expected("gpt2"))


def test_sixteen_bit_stays_close_and_resumes_exactly(tmp_path: Path) -> None:
    """A CPU has no fp16 in DeepSpeed; bf16 keeps an fp32 copy, and saves what it computes with."""
    spec = with_layout(TINY, zero_stage=2, precision="bf16-mixed", recompute="full")
    save = ("--save-every", "1", "--output", "checkpoints")
    whole = launch(tmp_path / "whole", spec, *save).finish()
    checkpoints = whole.folder / "deepspeed" / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"step-1", "step-2", "step-3"}
    part = launch(tmp_path / "part", spec, "--resume", str(checkpoints / "step-1")).finish()
    assert part.losses == whole.losses[1:]
    reference = expected("gpt2")
    assert whole.losses == pytest.approx(reference.losses, abs=0.02)
    weights = {name: weight.float() for name, weight in whole.weights.items()}
    moved = mean_distance(reference.initial, reference.weights)
    assert mean_distance(weights, reference.weights) < 0.5 * moved
