"""DeepSpeed's pipelines train like one process, with the plan's stages, and resume exactly."""

import json
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
from deepspeed.runtime.config import DeepSpeedConfig
from launched import BERT, DEEP_GPT2, DEEP_LLAMA, TINY, Run, deep, launch_several, write
from reference import Reference, assert_parity, mean_distance, train
from run_specs import refusal, with_layout
from several import load

from planner.catalog import records
from planner.domain.strategy import PipelineSchedule
from planner.generate import RunSpec, generate

pytestmark = pytest.mark.usefixtures("preloaded")

CLIP = 1e-5
"""So small that AdamW's epsilon sees it: at 1 a wrong norm would change next to nothing."""
GLOO_ONLY = {"PYTHONPATH": str(Path(__file__).parent / "gloo_only")}
PIPELINE: dict[str, Any] = {"pipeline_parallel_size": 2}
DATA = PIPELINE | {"data_parallel_size": 2}
EXACT_GPT2 = DEEP_GPT2 | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
UNTIED_GPT2 = EXACT_GPT2 | {"tie_word_embeddings": False}
TIED_QWEN = DEEP_LLAMA | {
    "model_type": "qwen3",
    "architectures": None,
    "head_dim": 16,
    "tie_word_embeddings": True,
}
UNEVEN = {"layers_per_stage": (3, 1)}


class Ranks:
    """What DeepSpeed asks of the processes that it will run on."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_data_parallel_world_size(self) -> int:
        return self.count


def settings(spec: RunSpec) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(generate(spec, ["deepspeed"])["deepspeed/ds_config.json"])
    return read


@pytest.mark.parametrize(
    ("layout", "stage"),
    [
        ({"zero_stage": 0}, 0),
        ({"zero_stage": 1}, 1),
        # The optimizers that DeepSpeed has at stage 0 do not resume, or clip tied weights wrong.
        ({"zero_stage": 0, "precision": "bf16-mixed"}, 1),
        ({"zero_stage": 0, "precision": "fp16-mixed"}, 1),
        ({"zero_stage": 1, "precision": "bf16"}, 1),
        ({"zero_stage": 1, "offload": "optimizer"}, 1),
    ],
)
def test_deepspeed_reads_a_pipeline_as_it_is_meant(
    layout: dict[str, Any], stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepspeed.comm, "get_rank", lambda: 0)
    spec = deep(DEEP_GPT2, **DATA, **layout)
    config = DeepSpeedConfig(settings(spec), mpu=Ranks(2))
    assert config.train_batch_size == 16
    assert config.gradient_accumulation_steps == 4
    assert config.zero_config.stage == stage
    assert (config.zero_config.offload_optimizer is not None) == ("offload" in layout)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"zero_stage": 2}, "allows ZeRO-1 at most"),
        ({"zero_stage": 3}, "allows ZeRO-1 at most"),
        ({"pipeline_schedule": "gpipe"}, "runs 1f1b, not gpipe"),
        (
            {"pipeline_schedule": "interleaved-1f1b", "virtual_pipeline_size": 2},
            "runs 1f1b, not interleaved-1f1b",
        ),
        ({"virtual_pipeline_size": 2}, "one chunk of layers on each GPU"),
        ({"tensor_parallel_size": 2}, "not matrices, sequences or experts"),
        ({"context_parallel_size": 2}, "not matrices, sequences or experts"),
        ({"recompute": "selective"}, "whole blocks or nothing"),
    ],
)
def test_what_its_pipelines_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(deep(DEEP_GPT2, **DATA, **layout), "deepspeed"))


def test_what_is_written_is_what_the_planner_takes_deepspeed_for() -> None:
    """The search proposes no schedule, chunks or ZeRO stage that would have no files."""
    able = records.framework("deepspeed").capabilities
    for schedule, stage, chunks in product(PipelineSchedule.names(), range(4), (1, 2)):
        layout = {"pipeline_schedule": schedule, "zero_stage": stage}
        spec = deep(DEEP_GPT2, **DATA, **layout, virtual_pipeline_size=chunks)
        is_proposed = (
            schedule in able.pipeline_schedules
            and stage <= able.zero_with_pipeline
            and (chunks == 1 or able.virtual_stages)
        )
        assert (not refusal(spec, "deepspeed")) == is_proposed


def test_a_model_whose_parts_nobody_named_is_refused() -> None:
    masked = with_layout(TINY, model_config=BERT, task="masked-lm")
    spec = with_layout(masked, **PIPELINE, layers_per_stage=(1, 1), gradient_accumulation_steps=2)
    assert "not models of type bert" in refusal(spec, "deepspeed")


def stages_of(checkpoint: Path) -> list[set[int]]:
    """Return the numbers of DeepSpeed's layers that each stage wrote; two come before the blocks."""
    paths = sorted((checkpoint / "state").glob("mp_rank_*_model_states.pt"))
    states = [torch.load(path, weights_only=False) for path in paths]
    names = [[name for group in state["param_shapes"] for name in group] for state in states]
    numbers = [{name.partition(".")[0] for name in stage} for stage in names]
    return [{int(number) for number in stage if number.isdigit()} for stage in numbers]


def test_pipelines_train_like_one_process_and_resume_exactly(tmp_path: Path) -> None:
    exact = {
        "replicas": deep(DEEP_LLAMA, **DATA, recompute="full"),
        "offloaded": deep(EXACT_GPT2, **DATA, **UNEVEN, zero_stage=1, offload="optimizer"),
        "untied": deep(UNTIED_GPT2, **DATA, attention="eager"),
        "tied": deep(TIED_QWEN, pipeline_parallel_size=4, attention="eager", recompute="full"),
    }
    dropping = {
        "sharded": deep(DEEP_GPT2, **DATA, zero_stage=1, recompute="full"),
        "bf16": deep(DEEP_GPT2, **DATA, precision="bf16-mixed"),
    }
    clip, save = ("--clip", str(CLIP)), ("--save-every", "1", "--output", "FOLDER/checkpoints")
    resume = ("--resume", "FOLDER/checkpoints/step-1")
    runs = launch_several(
        tmp_path,
        exact | dropping,
        *clip,
        *save,
        again=(*clip, *resume),
        target="deepspeed",
        **GLOO_ONLY,
    )
    assert all(record["gradient_norm"] > 0 for run in runs.values() for record in run.log)
    for name, spec in exact.items():
        assert_parity(runs[name], train(spec.model_config, clip=CLIP), spec.world_size)
    assert_is_close(runs["bf16"], train(EXACT_GPT2, clip=CLIP))
    checkpoint = runs["offloaded"].folder / "checkpoints" / "step-1"
    assert stages_of(checkpoint) == [{1, 2, 3, 4}, {5, 6}]
    for run in runs.values():
        assert_resumed(run, Run(run.folder / "again", run.process))


def assert_is_close(run: Run, reference: Reference) -> None:
    weights = {name: weight.float() for name, weight in run.weights.items()}
    moved = mean_distance(reference.initial, reference.weights)
    assert mean_distance(weights, reference.weights) < 0.5 * moved


def assert_resumed(whole: Run, part: Run) -> None:
    assert [record["step"] for record in part.log] == [2, 3]
    assert part.losses == whole.losses[1:]
    assert part.weights.keys() == whole.weights.keys()
    assert all(weight.equal(whole.weights[key]) for key, weight in part.weights.items())


def test_processes_that_the_stages_do_not_divide_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, deep(DEEP_GPT2, **PIPELINE), "deepspeed")
    script = load(folder / "deepspeed" / "train.py")
    monkeypatch.setattr(sys, "argv", ["train.py", "--cpu"])
    with pytest.raises(SystemExit, match="this plan is for 2 processes, not 3"):
        script.introduce(script.parse_arguments(), [], 0, 3)
