"""What can be launched in place of a plan that no target writes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.advice.choice import chosen_layout
from planner.catalog import records
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.search.candidate import Candidate
from planner.search.pinned_fields import PinnedFields
from planner.targets import common, launch, targets_of
from planner.targets.optimizers import WRITTEN

_HALF = ("bf16", "bf16-mixed"), ("fp16", "fp16-mixed")
"""Mixed precisions that a script runs, with the dtype that a GPU must multiply fast; the better first."""

_ANYWHERE = "adamw"
"""The optimizer that every script steps, over every layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """The fastest layout that can be written of a job as near to the asked one as there is."""

    candidate: Candidate
    changes: Mapping[str, str] = field(default_factory=dict)
    """Fields of the wire contract, with the values that they must have."""
    drops_pins: bool = False
    """Whether it has other values of what was held fixed."""


def fastest_written(job: Job, pinned: PinnedFields) -> Instead | None:
    """Return the fastest layout with files, in whichever framework; None where there are none.

    What the scripts do not run (a precision, an optimizer, an attention) is replaced first; then every
    framework with targets is searched, without the pinned fields where they leave nothing, and with
    the optimizer that all layouts have files for where its own leaves nothing.
    """
    fixed, changes = _within_scripts(job)
    stepped = [(fixed, changes)]
    if fixed.recipe.optimizer != _ANYWHERE:
        own = {"recipe.optimizer": _ANYWHERE}
        stepped.append((_changed(fixed, own), changes | own))
    for base, changed in stepped:
        for pins in (pinned, {}) if pinned else (pinned,):
            found = [
                Instead(candidate=candidate, changes=changed | others, drops_pins=pins != pinned)
                for others, variant in _variants(base)
                if (candidate := chosen_layout(variant, pins, written_alone=True)) is not None
            ]
            if found:
                return min(found, key=lambda each: float(each.candidate.step_time.step_seconds))
    return None


def _within_scripts(job: Job) -> tuple[Job, dict[str, str]]:
    """Return the job in a precision, an optimizer and an attention of the scripts, and what changed."""
    changes: dict[str, str] = {}
    if job.recipe.precision not in common.PRECISIONS:
        peaks = job.cluster.gpu.peak_flops
        half = next((name for dtype, name in _HALF if dtype in peaks), "fp32")
        changes["recipe.precision"] = half
    if job.recipe.optimizer not in WRITTEN:
        changes["recipe.optimizer"] = _ANYWHERE
    if common.lacks_attention(job):
        changes["recipe.attention"] = "eager"
    fixed = _changed(job, changes)
    if common.loss_scale(fixed).broken:
        changes["recipe.weights_dtype"] = "fp32"
    return _changed(fixed, changes), changes


def _variants(job: Job) -> Iterator[tuple[dict[str, str], Job]]:
    """Yield the job in every framework whose targets write it in some layout, with what changed."""
    for name in records.framework_names():
        changes = {} if name == job.framework.name else {"recipe.framework": name}
        framework, recipe = records.framework(name), job.recipe
        knows = (
            recipe.precision in framework.precisions and recipe.optimizer in framework.optimizers
        )
        if targets_of(name) and knows:
            variant = _changed(job, changes)
            keeps = common.trains_in_config_dtype(variant) or not common.trains_in_config_dtype(job)
            if keeps and launch(variant, Layout()).targets:
                yield changes, variant


def _changed(job: Job, changes: Mapping[str, str]) -> Job:
    values: dict[str, Any] = {
        name.removeprefix("recipe."): value for name, value in changes.items()
    }
    name = values.pop("framework", "")
    framework = records.framework(name) if name else job.framework
    if name and job.recipe.compile:
        framework = framework.compiled()
    return replace(job, framework=framework, recipe=replace(job.recipe, **values))
