"""A job and its layouts -> which of them a target can write as files, and why not the others."""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.core.term import Column, pick
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Layout, Strategy, Table, num_rows, tabulate
from planner.targets import (
    axolotl,
    bridge,
    common,
    llama_factory,
    megatron,
    nanotron,
    post_training,
    stored_weights,
    torchrun,
    torchtitan,
    trainer,
)
from planner.targets.base import Judge, refusal

JUDGES: Mapping[str, Judge] = MappingProxyType(
    {
        "torchrun": torchrun.judge,
        "trainer": trainer.judge,
        "megatron": megatron.judge,
        "megatron-bridge": bridge.judge,
        "nanotron": nanotron.judge,
        "torchtitan": torchtitan.judge,
        "axolotl": axolotl.judge,
        "llama-factory": llama_factory.judge,
    }
)
"""By target."""


@frozen
class _Targets:
    """Those that a framework's estimates hold for, the recommended one first."""

    finetune: tuple[str, ...]
    """Of plans that train weights that there are, and divide no model."""
    divided: tuple[str, ...]
    """Of all others."""


@frozen
class _Frameworks:
    source: str
    retired: Mapping[str, str]
    frameworks: Mapping[str, _Targets]


@cache
def _known() -> _Frameworks:
    return build(_Frameworks, read("scripts", "targets"), "scripts/targets")


def _by_framework() -> Mapping[str, _Targets]:
    return _known().frameworks


def retired_targets() -> Mapping[str, str]:
    """Return the targets that earlier releases wrote, each with what took its place."""
    return _known().retired


__all__ = [
    "JUDGES",
    "Launch",
    "framework_of",
    "is_writable",
    "launch",
    "refusals",
    "retired_targets",
    "targets_of",
    "writes_any",
]


@frozen
class Launch:
    """Which targets write a layout."""

    targets: tuple[str, ...]
    """The recommended one first."""
    refused: Mapping[str, Breach]
    """The others, each with the reason."""

    @property
    def unwritten(self) -> dict[str, str]:
        """Return the reasons in words."""
        return {target: breach.reason for target, breach in self.refused.items()}

    @property
    def reason(self) -> str:
        """Return why none of the targets writes it: what they all say, or what which of them say."""
        return _joined(self.unwritten)

    def reason_about(self, field: str) -> str:
        """Return as `reason` what is said of one field of a request; "" where nothing is."""
        return _joined(
            {target: each.reason for target, each in self.refused.items() if each.field == field}
        )


def _joined(unwritten: Mapping[str, str]) -> str:
    of_reason: dict[str, list[str]] = {}
    for target, reason in unwritten.items():
        of_reason.setdefault(reason, []).append(target)
    if len(of_reason) == 1:
        return next(iter(of_reason))
    return "; ".join(f"{', '.join(targets)}: {why}" for why, targets in of_reason.items())


def launch(job: Job, layout: Layout) -> Launch:
    """Return which targets of the job's framework write a layout."""
    refused = refusals(job, layout)
    written = tuple(name for name in _by_rank(job, layout) if name not in refused)
    return Launch(targets=written, refused=refused)


def _by_rank(job: Job, layout: Layout) -> tuple[str, ...]:
    is_tuned = job.model.is_pretrained and job.recipe.job != "pretrain"
    is_divided = bool(layout.divides_model or layout.is_hybrid)
    return targets_of(job.framework.name, is_tuned=is_tuned and not is_divided)


def targets_of(framework: str, *, is_tuned: bool = False) -> tuple[str, ...]:
    """Return the targets that write a framework's plans, the recommended one first; none where there are none yet.

    Args:
        framework: of the plans.
        is_tuned: whether they train weights that there are, and divide no model.
    """
    found = _by_framework().get(framework)
    if found is None:
        return ()
    return found.finetune if is_tuned else found.divided


def framework_of(target: str) -> str:
    """Return the framework whose plans a target writes first of all."""
    return next(name for name, found in _by_framework().items() if target in found.divided)


def refusals(job: Job, layout: Layout, targets: Sequence[str] | None = None) -> dict[str, Breach]:
    """Return the targets that cannot write a layout, each with the first reason that applies.

    Args:
        job: what is trained, on what.
        layout: how.
        targets: which are asked; those of the job's framework where none are named. A framework
            that has none stands for itself.
    """
    name = job.framework.name
    asked = targets_of(name) if targets is None else targets
    if not asked:
        return {name: _no_targets(name)}
    reasons = {target: _first(job, layout, target) for target in asked}
    return {target: reason for target, reason in reasons.items() if reason is not None}


def is_writable(job: Job, table: Table) -> Column:
    """Return which layouts of a table some target of the job's framework writes."""
    found = np.zeros(num_rows(table), dtype=np.bool_)
    for target in targets_of(job.framework.name):
        refused = np.zeros(num_rows(table), dtype=np.bool_)
        for breach in _judged(job, table, target):
            refused |= breach.broken
        found |= np.logical_not(refused)
    return found


def writes_any(job: Job) -> bool:
    """Return whether some target of the job's framework may write a layout of it.

    What a target refuses of every layout does not depend on one, so it is no column even where the layout is a table.
    """
    table = tabulate([Layout()])
    return any(
        not any(np.ndim(breach.broken) == 0 and bool(breach.broken) for breach in judged)
        for target in targets_of(job.framework.name)
        for judged in [_judged(job, table, target)]
    )


def _first(job: Job, layout: Layout, target: str) -> Breach | None:
    judged = _judged(job, layout, target)
    return next((breach.at(0) for breach in judged if pick(breach.broken, 0)), None)


def _judged(job: Job, s: Strategy, target: str) -> tuple[Breach, ...]:
    return (
        *common.judge(job),
        post_training.files(job, target),
        common.for_vendor(job, target),
        *stored_weights.judge(job, s),
        *JUDGES[target](job, s),
    )


def _no_targets(framework: str) -> Breach:
    return refusal(
        broken=True,
        message="files are written for {known}, not for {framework} yet",
        field="recipe.framework",
        framework=framework,
        known=", ".join(_by_framework()),
    )
