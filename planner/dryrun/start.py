"""Starts the dry run of a folder in a process of its own, beside what its plan says."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError, UnsupportedError
from planner.core.frozen import frozen
from planner.dryrun.program import Numbers
from planner.verify.planned import Planned, read_planned

LIMIT_SECONDS = 1800.0
SCRIPT = "torchrun"
"""The target whose script is run: the others hand the model to a library that needs real devices."""
FINDING = 0.01
"""Of the plan's peak: what differs by more is a finding against the ledger."""


@frozen
class DryRun:
    """What a rank of the script held, phase by phase, beside what was planned."""

    planned: Planned
    rank: int
    stage: int
    left_out: tuple[str, ...]
    """What the plan has that a dry run does not follow."""
    peaks: Mapping[str, int]
    """Bytes of the second step, by forward, backward and optimizer."""
    micro_batches: int
    seconds: float
    torch: str

    @property
    def summary(self) -> str:
        """Return the model and how it is divided."""
        return f"{self.planned.data['job']['model']['name']}, {self._chosen['family']}"

    @property
    def planned_phase(self) -> str:
        """Return in which phase the plan's fullest stage peaks."""
        return str(self._chosen["memory"]["phase"])

    @property
    def _chosen(self) -> Mapping[str, Any]:
        chosen: Mapping[str, Any] = self.planned.data["chosen"]
        return chosen

    @property
    def peak_bytes(self) -> int:
        """Return the peak of the step."""
        return max(self.peaks.values())

    @property
    def planned_bytes(self) -> int:
        """Return the plan's peak of this rank's stage."""
        return int(self.planned.stage_peak_bytes[self.stage])

    @property
    def difference(self) -> float:
        """Return how far the plan's peak is from the script's, as a fraction of the script's."""
        return self.planned_bytes / self.peak_bytes - 1

    @property
    def is_finding(self) -> bool:
        """Return whether the ledger is off by more than it may be."""
        return abs(self.difference) > FINDING


def dry_run(folder: Path, stage: int | None = None) -> DryRun:
    """Run the torchrun script of a folder that `--out` wrote, without a GPU, as one of its ranks.

    The first rank of a pipeline stage, the fullest of the plan unless one is named; the others of a stage
    hold the same, but for what does not divide evenly.

    Raises:
        InvalidInputError: the folder has no plan, no such script or no such stage.
        UnsupportedError: PyTorch or a compiler is missing, or the script cannot be run so.
    """
    planned = read_planned(str(folder))
    script = (folder / SCRIPT).resolve()
    if not (script / "train.py").is_file():
        raise InvalidInputError(
            f"{folder} has no {SCRIPT}/train.py",
            hint=f"a dry run takes the folder that `planner suggest ... --out DIR --target {SCRIPT}` wrote",
        )
    peaks = planned.stage_peak_bytes
    if stage is None:
        stage = peaks.index(max(peaks))
    if not 0 <= stage < planned.stages:
        raise InvalidInputError(
            f"the plan has {planned.stages} pipeline stages, counted from 0", field="--stage"
        )
    try:
        numbers, left_out = _numbers(planned, stage), _left_out(planned.data)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise InvalidInputError(
            f"{planned.name} holds no plan", hint="plan again with --out DIR"
        ) from None
    found = _run(script, numbers)
    return DryRun(planned=planned, rank=numbers.rank, stage=stage, left_out=left_out, **found)


def _numbers(planned: Planned, stage: int) -> Numbers:
    strategy = planned.data["chosen"]["strategy"]
    names = ("data_parallel_replicate_size", "data_parallel_shard_size")
    return Numbers(
        rank=stage * (planned.ranks // planned.stages),  # stages are the outermost axis
        world_size=planned.ranks,
        node_size=int(planned.data["job"]["cluster"]["gpus_per_node"]),
        data_size=math.prod(int(strategy[name]) for name in names),
        # The second finds the gradients of the first; a pipeline holds what waits, and a buffer for each.
        most_micro_batches=2
        if planned.stages == 1
        else int(strategy["gradient_accumulation_steps"]),
    )


def _left_out(plan: Mapping[str, Any]) -> tuple[str, ...]:
    recipe, strategy = plan["job"]["recipe"], plan["chosen"]["strategy"]
    found = {
        "torch.compile: memory is that of the same run without it": bool(recipe["compile"]),
        "host memory: only the GPU's is followed": strategy["offload"] != "none",
        "kernels of flash-attn and quantisation, which need a GPU": recipe["attention"] == "flash",
    }
    return tuple(text for text, is_so in found.items() if is_so)


def _run(script: Path, numbers: Numbers) -> dict[str, Any]:
    words = [sys.executable, "-m", "planner.dryrun.program", str(script)]
    words += [str(getattr(numbers, field.name)) for field in fields(numbers)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UnsupportedError(
            f"the dry run did not end within {LIMIT_SECONDS / 60:.0f} minutes", hint=""
        ) from None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (
            said[-1].removeprefix(f"[rank{numbers.rank}]: ")
            if said
            else f"exit status {done.returncode}"
        )
        raise UnsupportedError(
            f"the script cannot be run without a GPU: {last[:200]}",
            hint="its layout may read values that nothing computes here; estimate or run it instead",
        ) from None
    if "error" in found:
        raise UnsupportedError(str(found["error"]), hint=str(found["hint"]))
    return found
