"""A plan's JSON -> what its run is to show: ranges, layout, terms."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.answers.shapes import WholeStepAnswer
from planner.answers.whole_step import whole_step
from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.plans import request_of_plan
from planner.core.errors import InvalidInputError
from planner.core.files import open_file
from planner.core.frozen import frozen
from planner.domain.job import sequences_of_a_sample
from planner.rollout.step import GENERATION, TRAINING

LARGEST_PLAN = 2**25
"""Bytes of a plan.json that are read."""
_LARGEST = 1e18
"""Of any amount of a plan."""


@frozen
class Range:
    """What an amount is planned to be."""

    low: float
    likely: float
    high: float


@frozen
class Planned:
    """What a plan says of its run."""

    name: str
    """Its folder or file, as it was given."""
    folder: Path | None
    """Of the launch files, where there are some."""
    data: Mapping[str, Any]
    request: Mapping[str, Any]
    """An estimate request of the layout."""
    gpu: str
    ranks: int
    nodes: int
    stages: int
    """Of the pipeline."""
    micro_batch_size: int | None
    recompute: str
    """What the chosen layout has of both; None and "" where a plan does not say."""
    tokens_per_step: int
    tokens_per_second: float
    """Of all ranks, padding too, as launch files print it; 0 where the plan does not say it."""
    step_seconds: Range
    peak_bytes: Range
    """Allocated, on the fullest rank."""
    stage_peak_bytes: tuple[float, ...]
    """By pipeline stage."""
    first_peak_bytes: Range
    """Of the first pipeline stage, where rank 0 is."""
    reserved_bytes: Range
    """By the allocator, on the fullest rank."""
    usable_bytes: float
    """Of a GPU; 0 where a plan does not say it."""
    terms: Mapping[str, float]
    """Seconds of the step."""
    memory_terms: Mapping[str, float]
    generates: bool = False
    """Whether its step is GRPO's: the seconds are of the whole, the terms those of its phases."""

    @property
    def is_of_cpus(self) -> bool:
        """Return whether the plan is for the CPUs of a machine."""
        return self.gpu.startswith("cpu")


def read_planned(given: str, *, field: str = "") -> Planned:
    """Return the plan that a folder of launch files, or a file, holds.

    Args:
        given: its path.
        field: of the flag that gave it, for an error; "" of an argument.

    Raises:
        InvalidInputError: there is none, or it lacks something.
    """
    path = Path(given)
    try:
        is_folder = path.is_dir()
        file = path / "plan.json" if is_folder else path
        with open_file(file) as stream:
            raw = stream.read(LARGEST_PLAN + 1)
        value = json.loads(raw.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        said = getattr(error, "strerror", None) or "it is no JSON"
        raise _no_plan(f"cannot read the plan of {shown(given)}: {said}", field) from None
    try:
        return _planned(given, file.parent if is_folder else None, value)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise _no_plan(f"{shown(given)} holds no plan", field) from None


def _planned(given: str, folder: Path | None, plan: dict[str, Any]) -> Planned:
    job, chosen = plan["job"], plan["chosen"]
    rollout: Mapping[str, Any] = plan.get("rollout") or {}
    whole = whole_step(plan) if rollout else None
    time, memory = (whole or chosen)["time"], chosen["memory"]
    cluster, recipe = job["cluster"], job["recipe"]
    around = (
        memory["low_bytes"] / memory["reserved_bytes"],
        memory["high_bytes"] / memory["reserved_bytes"],
    )
    peak = _around(memory["peak_bytes"], *around)
    terms = {str(term["name"]): _amount(term["seconds"]) for term in time["terms"]}
    planned = Planned(
        name=shown(given),
        folder=folder,
        data=plan,
        request=request_of_plan(plan, _config(folder)),
        gpu=str(cluster["gpu"]),
        ranks=_count(cluster["world_size"]),
        nodes=_count(cluster["nodes"]),
        stages=len(memory["stages"]),
        micro_batch_size=chosen.get("strategy", {}).get("micro_batch_size"),
        recompute=str(chosen.get("strategy", {}).get("recompute", "")),
        tokens_per_step=_count(recipe["sequence_length"])
        * sequences_of_a_sample(recipe.get("job"))
        * _count(recipe["global_batch_size"]),
        tokens_per_second=_amount(chosen.get("tokens_per_second_per_gpu") or 0.0)
        * _count(cluster["world_size"])
        / (1 - (recipe.get("padding_share") or 0.0)),
        step_seconds=Range(
            low=_amount(time["low_seconds"], above=0.0),
            likely=_amount(time["step_seconds"], above=0.0),
            high=_amount(time["high_seconds"], above=0.0),
        ),
        peak_bytes=peak,
        stage_peak_bytes=tuple(_amount(stage["peak_bytes"]) for stage in memory["stages"]),
        first_peak_bytes=_around(memory["stages"][0]["peak_bytes"], *around),
        reserved_bytes=Range(
            low=peak.low,
            likely=_amount(memory["reserved_bytes"]),
            high=_amount(memory["high_bytes"]),
        ),
        usable_bytes=_amount(memory.get("usable_bytes") or 0.0),
        terms=terms,
        memory_terms={str(t["name"]): _amount(t["bytes"]) for t in memory["terms"]},
    )
    return _of_whole_step(planned, whole, rollout) if whole else planned


def _of_whole_step(
    training: Planned, whole: WholeStepAnswer, rollout: Mapping[str, Any]
) -> Planned:
    """Return a plan of GRPO: the speed of its step, and what a GPU that trains holds in the fuller of both phases.

    vLLM beside training is in its process, and in what that says of its memory; a server is in others.
    """
    rate, phases = _amount(rollout["tokens_per_second"], above=0.0), whole["memory"]["phases"]
    generating = _amount(phases[GENERATION]["reserved_bytes"])
    if rollout["mode"] == "server":
        generating = 0.0
    asleep = _amount(phases[TRAINING]["reserved_bytes"]) - training.reserved_bytes.likely
    return replace(
        training,
        generates=True,
        tokens_per_step=_count(round(rate * training.step_seconds.likely)),
        tokens_per_second=rate,
        peak_bytes=_at_least(training.peak_bytes, generating),
        first_peak_bytes=_at_least(training.first_peak_bytes, generating),
        reserved_bytes=_at_least(training.reserved_bytes, generating, asleep),
    )


def _at_least(trained: Range, generating: float, asleep: float = 0.0) -> Range:
    amounts = (trained.low, trained.likely, trained.high)
    low, likely, high = (max(each + asleep, generating) for each in amounts)
    return Range(low=low, likely=likely, high=high)


def _around(likely: float, low: float, high: float) -> Range:
    amount = _amount(likely)
    return Range(low=amount * low, likely=amount, high=amount * high)


def _amount(value: float, above: float = -1.0) -> float:
    if not math.isfinite(value) or not above < value < _LARGEST:
        raise ValueError
    return float(value)


def _count(value: int) -> int:
    if not isinstance(value, int) or not 0 < value < 2**40:
        raise ValueError
    return value


def _config(folder: Path | None) -> dict[str, Any] | None:
    """Return the model's config as the launch files have it; its name may be of a local folder."""
    for file in sorted(folder.glob("*/config.json")) if folder else ():
        try:
            value = json.loads(file.read_bytes()[:LARGEST_PLAN])
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "model_type" in value:
            return value
    return None


def _no_plan(message: str, field: str) -> InvalidInputError:
    hint = "give a folder of `planner suggest ... --out DIR`, or its plan.json"
    return InvalidInputError(message, hint=hint, field=field)
