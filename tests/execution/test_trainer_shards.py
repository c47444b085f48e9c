"""FSDP and DeepSpeed behind Trainer train like one process, where Accelerate takes processes for GPUs."""

import json
from itertools import product
from pathlib import Path

import pytest
import trl
import yaml
from launched import ACCUMULATED, LLAMA
from reference import distance
from run_specs import with_layout
from trainer_runs import AS_GPUS, ON_GLOO, assert_parity, expected, tokens, train
from transformers import HfArgumentParser

from planner.generate import generate

pytestmark = pytest.mark.usefixtures("preloaded")

SPEC = with_layout(ACCUMULATED, model_config=LLAMA)
DEEPSPEED = with_layout(SPEC, framework="deepspeed", zero_stage=2, offload="optimizer")


def test_deepspeed_behind_trainer_trains_like_one_process(tmp_path: Path) -> None:
    run = train(tmp_path, DEEPSPEED, *tokens(tmp_path), **ON_GLOO)
    assert_parity(run, expected(LLAMA))
    assert "DeepSpeed" in run.printed


@pytest.mark.parametrize("stage", [2, 3])
def test_fsdp_behind_trainer_trains_like_one_process_and_resumes_exactly(
    stage: int, tmp_path: Path
) -> None:
    spec = with_layout(SPEC, zero_stage=stage, recompute="full" if stage == 3 else "none")
    data = tokens(tmp_path)
    whole = train(tmp_path / "whole", spec, *data, "--save_steps", "1", **AS_GPUS)
    assert_parity(whole, expected(LLAMA))
    checkpoint = whole.folder / "model" / "checkpoint-1"
    shards = {path.name for path in (checkpoint / "optimizer_0").glob("*.distcp")}
    assert shards == {"__0_0.distcp", "__1_0.distcp"}
    resume = ("--resume_from_checkpoint", str(checkpoint))
    part = train(tmp_path / "part", spec, *data, *resume, **AS_GPUS).finish()
    assert part.losses == whole.losses[1:]
    assert distance(part.weights, whole.weights) == 0


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ({"zero_stage": 3}, "Trainer's FSDP shards on GPUs alone, not on CPUs"),
        ({"zero_stage": 3, "framework": "deepspeed"}, "DeepSpeed's ZeRO-3 shards on GPUs alone"),
    ],
)
def test_what_a_cpu_cannot_shard_is_refused_before_it_starts(
    layout: dict[str, object], says: str, tmp_path: Path
) -> None:
    """Trainer would take DDP for FSDP, and say nothing."""
    printed = train(tmp_path, with_layout(SPEC, **layout), *tokens(tmp_path)).fail()
    assert says in printed
    assert "Traceback" not in printed.partition("torch/distributed")[0]
    assert not (tmp_path / "model").exists()


def test_deepspeeds_section_agrees_with_trainers_own_arguments(tmp_path: Path) -> None:
    """Trainer compares them, and refuses two values for one thing."""
    alone = with_layout(DEEPSPEED, gpus_per_node=1, global_batch_size=8, offload="none")
    for stage, precision in product(range(4), ("fp32", "bf16-mixed", "bf16")):
        spec = with_layout(alone, zero_stage=stage, precision=precision)
        files = generate(spec, ["trainer"])
        section = json.loads(files["trainer/ds_config.json"])
        settings = yaml.safe_load(files["trainer/sft.yaml"]) | {"deepspeed": section}
        own = {"use_cpu": True, "output_dir": str(tmp_path)}
        parser = HfArgumentParser((trl.ScriptArguments, trl.ModelConfig, trl.SFTConfig))
        *_, read = parser.parse_dict(settings | own)
        assert read.hf_deepspeed_config.config["zero_optimization"]["stage"] == stage
        assert read.hf_deepspeed_config.config["train_batch_size"] == 8
        assert read.hf_deepspeed_config.mismatches == []
