"""DeepSpeed reads ds_config.json as it is meant; test_trainer_shards.py trains with it."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import deepspeed
import pytest
from deepspeed.runtime import constants
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.zero.config import ZERO_OPTIMIZATION
from launched import ACCUMULATED, TINY
from pydantic import ValidationError
from run_specs import refusal, with_layout

from planner.generate import RunSpec
from planner.generate.deepspeed import settings

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
        ({"tensor_parallel_size": 2, "global_batch_size": 8}, "divides the data, not the model"),
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
    assert re.search(reason, refusal(with_layout(TINY, framework="deepspeed", **layout), "trainer"))
