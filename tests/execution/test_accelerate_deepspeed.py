"""Accelerate hands ds_config.json to DeepSpeed, which trains like one process with every stage."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accelerate import DeepSpeedPlugin  # type: ignore[import-untyped]
from accelerate.commands.config.config_args import load_config_from_file  # type: ignore[import-untyped]
from accelerate.commands.launch import _validate_launch_command, launch_command_parser  # type: ignore[import-untyped]
from accelerate.utils import DistributedType  # type: ignore[import-untyped]
from accelerate.utils.launch import prepare_deepspeed_cmd_env  # type: ignore[import-untyped]
from launched import ACCUMULATED, LLAMA, TINY, Run, start, write
from reference import assert_parity, expected, mean_distance
from run_specs import refusal, with_layout
from test_deepspeed import GLOO_ONLY, OFFLOADED, weights_of

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

ON_GLOO = {**GLOO_ONLY, "ACCELERATE_USE_CPU": "false", "ACCELERATE_ENGINE": "deepspeed"}
TWO_NODES = with_layout(
    replace(ACCUMULATED, framework="deepspeed"), zero_stage=3, nodes=2, global_batch_size=32
)


def planned(spec: RunSpec, **layout: Any) -> RunSpec:
    return with_layout(replace(spec, framework="deepspeed"), **layout)


def launch_environment(spec: RunSpec, folder: Path, *flags: str) -> tuple[Any, dict[str, str]]:
    """Return what the launcher makes of the yaml: torchrun's arguments and the processes' variables."""
    yaml = write(folder, spec, "accelerate") / "accelerate" / "accelerate.yaml"
    command = ["--config_file", str(yaml), *flags, "train.py"]
    arguments, defaults, _ = _validate_launch_command(launch_command_parser().parse_args(command))
    assert arguments.use_deepspeed
    arguments.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
    _, variables = prepare_deepspeed_cmd_env(arguments)
    return arguments, variables


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_launcher_hands_the_plan_to_the_plugin(
    stage: int, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = planned(ACCUMULATED, zero_stage=stage, precision=precision, offload="optimizer")
    _, variables = launch_environment(spec, tmp_path, "--main_process_port", "0")
    monkeypatch.chdir(tmp_path / "accelerate")
    for name in variables.keys() - os.environ.keys():
        monkeypatch.setenv(name, variables[name])
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(variables["ACCELERATE_MIXED_PRECISION"])
    ours = json.loads(Path("ds_config.json").read_text())
    read = plugin.deepspeed_config
    assert {name: read[name] for name in ours} == ours
    assert plugin.zero_stage == ours["zero_optimization"]["stage"] == stage
    assert plugin.zero3_init_flag is (stage == 3)
    assert plugin.offload_optimizer_device == "cpu"
    assert read["bf16"]["enabled"] is (precision == "bf16-mixed")
    assert read["fp16"]["enabled"] is (precision == "fp16-mixed")


def test_every_key_is_known_to_the_launcher(tmp_path: Path) -> None:
    folder = write(tmp_path, TWO_NODES, "accelerate", "deepspeed")
    config = load_config_from_file(str(folder / "accelerate" / "accelerate.yaml"))
    assert config.distributed_type == DistributedType.DEEPSPEED
    assert (config.num_machines, config.num_processes) == (2, 4)
    known = {action.dest for action in launch_command_parser()._actions}  # noqa: SLF001
    assert config.deepspeed_config.keys() <= known
    settings = [
        (folder / name / "ds_config.json").read_text() for name in ("accelerate", "deepspeed")
    ]
    assert settings[0] == settings[1]


def test_a_second_node_joins_the_first(tmp_path: Path) -> None:
    flags = ("--machine_rank", "1", "--main_process_ip", "10.0.0.1", "--main_process_port", "29501")
    arguments, _ = launch_environment(TWO_NODES, tmp_path, *flags)
    assert (arguments.nnodes, arguments.node_rank, arguments.nproc_per_node) == ("2", 1, "2")
    meeting = getattr(arguments, "rdzv_endpoint", "") or (
        f"{arguments.master_addr}:{arguments.master_port}"
    )
    assert meeting == "10.0.0.1:29501"


def launch(folder: Path, spec: RunSpec, *arguments: str) -> Run:
    write(folder, spec, "accelerate")
    return start(folder, "bash", "accelerate/launch.sh", "--no-dropout", *arguments, **ON_GLOO)


def test_every_stage_trains_like_one_process(tmp_path: Path) -> None:
    save = ("--save-every", "3", "--output", "checkpoints")
    first = launch(tmp_path / "1", planned(ACCUMULATED, zero_stage=1), *save)
    llama = planned(ACCUMULATED, zero_stage=3, model_config=LLAMA)
    third = launch(tmp_path / "3", llama, *weights_of(LLAMA, tmp_path / "llama"), *save)
    for run, architecture in ((first, "gpt2"), (third, "llama")):
        assert_parity(run.finish(), expected(architecture))
        engine = run.folder / "accelerate" / "checkpoints" / "step-3" / "pytorch_model"
        for rank in (0, 1):  # each has written the states of its own shard
            assert (engine / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").is_file()


def test_offloading_trains_like_one_process(tmp_path: Path) -> None:
    second = launch(tmp_path / "2", planned(TINY, zero_stage=2, offload="optimizer"))
    weights = weights_of(dict(TINY.model_config), tmp_path / "gpt2")
    third = launch(tmp_path / "3", planned(TINY, **OFFLOADED), *weights)
    for run in (second, third):
        assert_parity(run.finish(), expected("gpt2"))


def test_sixteen_bit_stays_close_and_resumes_exactly(tmp_path: Path) -> None:
    spec = planned(TINY, zero_stage=2, precision="bf16-mixed", recompute="full")
    whole = launch(tmp_path / "whole", spec, "--save-every", "1").finish()
    checkpoint = whole.folder / "accelerate" / "checkpoints" / "step-1"
    part = launch(tmp_path / "part", spec, "--resume", str(checkpoint)).finish()
    assert part.losses == whole.losses[1:]
    reference = expected("gpt2")
    assert whole.losses == pytest.approx(reference.losses, abs=0.02)
    weights = {name: weight.float() for name, weight in whole.weights.items()}
    moved = mean_distance(reference.initial, reference.weights)
    assert mean_distance(weights, reference.weights) < 0.5 * moved


def test_training_without_deepspeed_ends_the_job(tmp_path: Path) -> None:
    """On CPUs Accelerate takes DDP for it, and says nothing."""
    write(tmp_path, planned(TINY, zero_stage=2), "accelerate")
    run = start(tmp_path, "python", "accelerate/train.py")
    assert "Accelerate has no DeepSpeed here" in run.fail()


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"tensor_parallel_size": 2, "global_batch_size": 8}, "divides the data, not the model"),
        ({"recompute": "selective"}, "whole blocks or nothing"),
        ({"offload": "optimizer"}, "DeepSpeed offloads what ZeRO shards"),
        ({"synchronize_every": 2}, "averages gradients every step"),
    ],
)
def test_what_deepspeed_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(planned(TINY, **layout), "accelerate"))
