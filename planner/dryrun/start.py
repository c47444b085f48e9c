"""Starts the dry run of a folder in a process of its own, and reads what its plan says."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError, UnsupportedError

LIMIT_SECONDS = 1800.0
LARGEST_PLAN = 2**25
"""Bytes of a plan.json that are read."""
SCRIPT = "torchrun"
"""The target whose script is run: the others hand the model to a library that needs real devices."""
FINDING = 0.01
"""Of the plan's peak: what differs by more is a finding against the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What plan.json says of the run that is tried."""

    summary: str
    world_size: int
    gpus_per_node: int
    peak_bytes: tuple[int, ...]
    """By pipeline stage."""
    phase: str
    """In which the fullest stage peaks."""
    left_out: tuple[str, ...]
    """What the plan has that a dry run does not follow."""
    is_pipelined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a rank of the script held, phase by phase, beside what was planned."""

    planned: Planned
    rank: int
    stage: int
    peaks: Mapping[str, int]
    """Bytes of the second step, by forward, backward and optimizer."""
    micro_batches: int
    seconds: float
    torch: str

    @property
    def peak_bytes(self) -> int:
        """Return the peak of the step."""
        return max(self.peaks.values())

    @property
    def planned_bytes(self) -> int:
        """Return the plan's peak of this rank's stage."""
        return self.planned.peak_bytes[self.stage]

    @property
    def difference(self) -> float:
        """Return how far the plan's peak is from the script's, as a fraction of the script's."""
        return self.planned_bytes / self.peak_bytes - 1

    @property
    def is_finding(self) -> bool:
        """Return whether the ledger is off by more than it may be."""
        return abs(self.difference) > FINDING


def dry_run(folder: Path) -> DryRun:
    """Run the torchrun script of a folder that `--out` wrote, without a GPU, as its first rank.

    The ranks of a layout without a pipeline hold the same, but for what does not divide evenly.

    Raises:
        InvalidInputError: the folder has no plan or no such script.
        UnsupportedError: PyTorch or a compiler is missing, or the script cannot be run so.
    """
    planned = read_plan(folder)
    script = (folder / SCRIPT).resolve()
    if not (script / "train.py").is_file():
        raise InvalidInputError(
            f"{folder} has no {SCRIPT}/train.py",
            hint="a dry run takes the folder that `planner suggest --out DIR` wrote, with that target",
        )
    if planned.is_pipelined:
        raise UnsupportedError(
            "a pipeline cannot be run without a GPU: its ranks ask each other for the shapes of what they"
            " exchange, and one rank has nobody to ask",
            hint="`planner memory` has the ledger of every stage",
        )
    return DryRun(planned=planned, rank=0, stage=0, **_run(script, 0, planned))


def read_plan(folder: Path) -> Planned:
    """Return what the folder's plan.json says.

    Raises:
        InvalidInputError: there is none, or it is no plan.
    """
    file = folder / "plan.json"
    try:
        with file.open("rb") as stream:
            raw = stream.read(LARGEST_PLAN)
        return _planned(json.loads(raw))
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {file}: {error.strerror}",
            hint="a dry run takes the folder that `planner suggest --out DIR` wrote",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} is no plan: {type(error).__name__}", hint="plan again with --out DIR"
        ) from None


def _planned(plan: Any) -> Planned:
    cluster, chosen = plan["job"]["cluster"], plan["chosen"]
    memory = chosen["memory"]
    return Planned(
        summary=f"{plan['job']['model']['name']}, {chosen['family']}",
        world_size=int(cluster["world_size"]),
        gpus_per_node=int(cluster["gpus_per_node"]),
        peak_bytes=tuple(int(stage["peak_bytes"]) for stage in memory["stages"]),
        phase=str(memory["phase"]),
        left_out=tuple(_left_out(plan["job"]["recipe"], chosen["strategy"])),
        is_pipelined=int(chosen["strategy"]["pipeline_parallel_size"]) > 1,
    )


def _left_out(recipe: Mapping[str, Any], strategy: Mapping[str, Any]) -> list[str]:
    """Return what a run without values does not follow."""
    found = {
        "torch.compile: memory is that of the same run without it": bool(recipe["compile"]),
        "host memory: only the GPU's is followed": strategy["offload"] != "none",
        "kernels of flash-attn and quantisation, which need a GPU": recipe["attention"] == "flash",
    }
    return [text for text, is_so in found.items() if is_so]


def _run(script: Path, rank: int, planned: Planned) -> dict[str, Any]:
    """Return what the program prints."""
    numbers = (rank, planned.world_size, planned.gpus_per_node)
    words = [sys.executable, "-m", "planner.dryrun.program", str(script), *map(str, numbers)]
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
            said[-1].removeprefix(f"[rank{rank}]: ") if said else f"exit status {done.returncode}"
        )
        raise UnsupportedError(
            f"the script cannot be run without a GPU: {last[:200]}",
            hint="its layout may read values that nothing computes here; estimate or run it instead",
        ) from None
    if "error" in found:
        raise UnsupportedError(str(found["error"]), hint=str(found["hint"]))
    return found
