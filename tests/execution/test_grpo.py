"""TRL's GRPOTrainer reads what is written, and trains on what a tiny model writes, by transformers' generate."""

import json
import math
import os
import random
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trl
import yaml
from launched import LLAMA, STEPS, unused_port, write
from preloading import OFFLINE_ON_CPUS
from reference import build
from run_specs import with_layout
from test_lora import plan
from test_pairs import SPEC as PAIRS
from test_pairs import parsed
from texts import write_tokenizer
from trainer_runs import (
    AS_GPUS,
    HYPERPARAMETERS,
    ON_GLOO,
    TrainerRun,
    named,
    start,
    without_dropout,
)
from trl.scripts import vllm_serve

from planner.core.errors import InvalidInputError
from planner.domain.rollout import Rollout
from planner.generate import RunSpec, generate

pytestmark = [
    pytest.mark.usefixtures("preloaded"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
]

ROLLOUT = Rollout(
    num_generations=4,
    prompt_tokens=8,
    max_completion_length=8,
    beta=0.04,
    vllm_mode="none",
    vllm_gpu_memory_utilization=0.3,
    vllm_tensor_parallel_size=1,
    generation_gpus=2,
)
WRITER = LLAMA | {"eos_token_id": 1, "initializer_range": 0.5}
SPEC = replace(PAIRS, job="grpo", reference_model="loaded", rollout=ROLLOUT, model_config=WRITER)
REWARD = """

def early(completions, answer, **others):
    return [float("w1" in each) + len(each) / 100 for each in completions]


REWARDS = [is_right, early]
"""
"""Of which nearly every group of completions gets different ones."""


def write_prompts(folder: Path) -> Path:
    chance = random.Random(0)
    rows = [
        {"prompt": " ".join(f"w{chance.randrange(80)}" for _ in range(length)), "answer": "w5"}
        for length in (1, 2, 3, 8, 12) * 12
    ]
    data = folder / "prompts.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return data


LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "zero-3": ({"zero_stage": 3}, AS_GPUS),
    "deepspeed": ({"framework": "deepspeed", "zero_stage": 2}, ON_GLOO),
    "adapters": ({"adapters": plan().adapters, "reference_model": "shared"}, {}),
}


def prepare(folder: Path, spec: RunSpec) -> tuple[str, ...]:
    """Write the files with another reward, a model and prompts; return the arguments that name them."""
    write(folder, without_dropout(spec), "trainer")
    rewards = folder / "trainer" / "rewards.py"
    rewards.write_text(rewards.read_text() + REWARD)
    build(spec.model_config).save_pretrained(folder / "start")
    return named(write_prompts(folder), write_tokenizer(folder / "start"))


def losses(done: TrainerRun) -> list[float]:
    assert len(done.losses) == STEPS
    assert all(map(math.isfinite, done.losses))
    assert {line["world_size"] for line in done.log} == {2}
    return done.losses


def test_it_trains_for_its_steps_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    options = (*prepare(tmp_path, SPEC), *HYPERPARAMETERS, "--save_steps", "2")
    done = start(tmp_path, *options).finish()
    losses(done)
    kl = [line["kl"] for line in done.log if "kl" in line]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[-1] > 0
    again = start(
        tmp_path, *options, "--resume_from_checkpoint", str(tmp_path / "model" / "checkpoint-2")
    ).finish()
    # TRL draws other completions after a start.
    assert len(again.losses) == 1
    assert [line["step"] for line in again.log if "loss" in line] == [STEPS]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_trains(name: str, tmp_path: Path) -> None:
    layout, environment = LAYOUTS[name]
    options = prepare(tmp_path, with_layout(SPEC, **layout))
    losses(start(tmp_path, *options, *HYPERPARAMETERS, **environment).finish())


def test_vllm_on_cpus_is_refused_before_it_starts(tmp_path: Path) -> None:
    spec = replace(SPEC, rollout=replace(ROLLOUT, vllm_mode="colocate"))
    printed = start(tmp_path, *prepare(tmp_path, spec), *HYPERPARAMETERS).fail()
    assert "--use_vllm false" in printed
    assert "Traceback" not in printed


def generating(**changes: Any) -> trl.GRPOConfig:
    """Return what TRL makes of a plan's arguments."""
    spec = replace(SPEC, rollout=replace(ROLLOUT, **changes))
    *_, config = parsed(spec, trl.GRPOConfig, Path("unwritten"))
    assert isinstance(config, trl.GRPOConfig)
    return config


def test_trl_reads_what_the_plan_means() -> None:
    beside = generating(vllm_mode="colocate")
    assert (beside.use_vllm, beside.vllm_mode) == (True, "colocate")
    assert beside.vllm_enable_sleep_mode
    assert beside.vllm_gpu_memory_utilization == ROLLOUT.vllm_gpu_memory_utilization
    assert (beside.num_generations, beside.max_completion_length, beside.beta) == (4, 8, 0.04)
    assert beside.vllm_max_model_length == SPEC.sequence_length
    served = generating(vllm_mode="server")
    assert (served.use_vllm, served.vllm_mode) == (True, "server")
    assert served.vllm_server_host == "127.0.0.1"
    assert not generating(vllm_mode="none").use_vllm


SERVER = """#!/usr/bin/env python3
import http.server, os, sys
print("served", os.environ["CUDA_VISIBLE_DEVICES"], *sys.argv[1:], flush=True)
class Healthy(http.server.BaseHTTPRequestHandler):
    do_GET = lambda self: (self.send_response(200), self.end_headers())
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Healthy).serve_forever()
"""
TRAINER = """import os, sys, urllib.request
port = sys.argv[sys.argv.index("--vllm_server_port") + 1]
print("trained", os.environ["CUDA_VISIBLE_DEVICES"],
      urllib.request.urlopen(f"http://127.0.0.1:{port}/health").status)
"""


def apart(**changes: Any) -> RunSpec:
    """Return a plan with a server on two of four GPUs, one engine."""
    rollout = replace(ROLLOUT, vllm_mode="server", vllm_tensor_parallel_size=2)
    return replace(SPEC, rollout=rollout, completions_at_once=40, **changes)


def serve(folder: Path, server: str) -> subprocess.CompletedProcess[str]:
    """Run launch.sh with stand-ins for vLLM and for train.py, on four GPUs that are not there."""
    for name, text in generate(apart(), ["trainer"]).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "trainer" / "train.py").write_text(TRAINER)
    (folder / "trl").write_text(server)
    (folder / "trl").chmod(0o755)
    environment = os.environ | OFFLINE_ON_CPUS
    environment |= {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{environment['PATH']}",
        "VLLM_PORT": unused_port(),
        "NPROC_PER_NODE": "1",
        "CUDA_VISIBLE_DEVICES": "4,5,6,7",
    }
    return subprocess.run(
        ["bash", "trainer/launch.sh"],  # noqa: S607
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_server_has_gpus_of_its_own_and_ends_with_the_training(tmp_path: Path) -> None:
    done = serve(tmp_path, SERVER)
    assert done.returncode == 0, done.stderr
    assert "trained 4,5 200" in done.stdout
    (served,) = (line for line in done.stdout.splitlines() if line.startswith("served"))
    assert "6,7 vllm-serve --model example/tiny" in served
    assert "--tensor_parallel_size 2" in served


def test_a_server_that_does_not_start_ends_the_run(tmp_path: Path) -> None:
    done = serve(tmp_path, "#!/bin/sh\nexit 3\n")
    assert done.returncode == 1
    assert "trained" not in done.stdout


def test_a_server_of_one_engine_is_told_of_no_other() -> None:
    one = generate(apart(), ["trainer"])["trainer/serve.sh"]
    assert "data_parallel_size" not in one
    mixture = replace(ROLLOUT, vllm_mode="server")
    several = generate(replace(SPEC, rollout=mixture), ["trainer"])["trainer/serve.sh"]
    assert "--data_parallel_size 2" in several


def test_a_server_of_a_node_of_its_own_comes_first_and_every_run_is_told_of_it() -> None:
    readme = generate(apart(generates_on_own_node=True), ["trainer"])["README.md"]
    lines = readme.splitlines()
    commands = [line for line in lines if line.startswith(("bash", "VLLM_HOST"))]
    assert commands[0].startswith("bash trainer/serve.sh")
    assert len(commands) > 2
    assert all(line.startswith("VLLM_HOST=node1 bash trainer/launch.sh") for line in commands[1:])
    assert "vLLM on 2 more" in lines[0]


@pytest.mark.parametrize("launchers", ["all", ["slurm"]])
def test_no_launcher_starts_a_server(launchers: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        generate(apart(), ["trainer"], launchers=launchers)
    assert refused.value.field == "files.launchers"
    assert "--vllm-mode colocate" in refused.value.hint


def test_a_server_knows_of_cards_that_do_not_reach_each_other() -> None:
    files = generate(apart(has_peer_to_peer=False), ["trainer"])
    for name in ("serve.sh", "launch.sh"):
        assert "NCCL_P2P_DISABLE" in files[f"trainer/{name}"]


def test_a_server_writes_as_many_at_once_as_planned() -> None:
    served = generate(apart(), ["trainer"])["trainer/serve.sh"]
    command = served[served.index("exec trl") :].replace("\\\n", " ")
    words = shlex.split(command.replace("${VLLM_PORT:-8000}", "8000"))
    own, others = vllm_serve.make_parser().parse_args_and_config(
        args=words[3:-1], return_remaining_strings=True
    )
    assert (own.tensor_parallel_size, own.data_parallel_size) == (2, 1)
    assert others == ["--max-num-seqs", "40"]


def test_what_generates_beside_another_mode_is_not_written() -> None:
    files = generate(SPEC, ["trainer"])
    assert "trainer/serve.sh" not in files
    assert "vllm" not in files["trainer/requirements.txt"]
    settings = yaml.safe_load(files["trainer/grpo.yaml"])
    assert "max_length" not in settings
    elsewhere = generate(apart(generates_on_own_node=True), ["trainer"])
    assert "VLLM_HOST" in elsewhere["trainer/launch.sh"]
    assert "serve.sh" not in elsewhere["trainer/launch.sh"].replace("runs serve.sh", "")
    assert "vllm_server_host" not in yaml.safe_load(elsewhere["trainer/grpo.yaml"])
