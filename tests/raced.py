"""Folders of launch files whose launch.sh only prints steps as ours do, or fails in some way."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from planner.answers import answer_plan, suggest
from planner.generate.write_bundle import bundle_files
from planner.race.entrants import Entrant
from planner.request.schema import parse_request
from planner.request.sections import FilesRequest
from planner.verify.planned import read_planned

TOKENS = 16 * 512
REQUEST: Mapping[str, Any] = {
    "model": "gpt2",
    "cluster": {"gpu": "l40s", "gpus_per_node": 2},
    "recipe": {
        "sequence_length": 512,
        "global_batch_size": 16,
        "framework": "torch",
        "compile": False,
        "loss": "standard",
    },
}
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
    " 44.53 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 43.40 GiB memory in use."
)


@cache
def _files(nodes: int) -> Mapping[str, str]:
    wanted = {**REQUEST, "strategy": {"zero_stage": 0}}
    wanted["cluster"] = {**REQUEST["cluster"], "nodes": nodes}
    resolved, plan = suggest(parse_request(wanted), allow_paths=True)
    answer = answer_plan(resolved, plan, None)
    files = FilesRequest(targets=["torchrun"], launchers=["slurm", "ssh"])
    return bundle_files(plan, answer, files)


def write(folder: Path, script: str, step_seconds: float = 0.12, nodes: int = 1) -> Path:
    """Write a plan's folder with another launch.sh and another planned step."""
    for name, text in _files(nodes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "torchrun" / "launch.sh").write_text(script)
    (folder / "torchrun" / "requirements.txt").unlink()
    plan = json.loads((folder / "plan.json").read_text())
    scale = step_seconds / plan["chosen"]["time"]["step_seconds"]
    for name in ("step_seconds", "low_seconds", "high_seconds"):
        plan["chosen"]["time"][name] *= scale
    del plan["files"]["torchrun/requirements.txt"]
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


def entrant(folder: Path, script: str, nodes: int = 1, **more: Any) -> Entrant:
    """Return such a folder as a plan that is raced."""
    write(folder, script, nodes=nodes)
    fields: dict[str, Any] = {
        "name": folder.name,
        "target": "torchrun",
        "planned": read_planned(str(folder)),
    }
    return Entrant(folder=folder, **(fields | more))


def steps(seconds: float, number: int = 12, *, jitter: float = 0.0, pause: float = 0.0) -> str:
    """Return a script that says so many steps took so long, and the first one four times as long."""
    lines = [
        f"echo 'step {step}/100: loss 4.12, lr 1.00e-04, norm 1.23, {TOKENS / (seconds * (4 if step == 1 else 1 + jitter * (step % 5 - 2))):,.0f} tokens/s (plan 67,892),"
        " MFU 7.0%, peak 8.00 GiB on rank 0 (plan 7.43 on the fullest)'"
        for step in range(1, number + 1)
    ]
    return "\n".join(["#!/usr/bin/env bash", *(f"{line}; sleep {pause}" for line in lines)]) + "\n"
