"""What can be launched in place of a plan that no target writes."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from planner.advice.choice import chosen_layout, reserved_bytes, smallest_replica
from planner.advice.rules.base import Situation, is_roomy
from planner.catalog import records
from planner.catalog.choice import prices, trusted_lead
from planner.core.frozen import frozen
from planner.domain.job import Job
from planner.domain.optimizer import ADAMW
from planner.domain.strategy import Layout
from planner.search.candidate import Candidate
from planner.search.largest_that_fits import SHORTEST_SEQUENCE, lighter_losses
from planner.search.pinned_fields import PinnedFields
from planner.step_time.doubt import Cause
from planner.step_time.terms import COMMUNICATION
from planner.targets import common, launch, targets_of

_HALF = ("bf16", "bf16-mixed"), ("fp16", "fp16-mixed")
"""Mixed precisions that a script runs, with the dtype that a GPU must multiply fast; the better first."""

HOW_MANY = ("objective", "max_gpus", "deadline_hours")
"""Fields of a request that leave the number of GPUs open."""
_HALVINGS = 4
"""Of the sequence: to a sixteenth of it."""
_ANYWHERE = "adamw"
"""The optimizer that every script steps, over every layout."""
_WITH_LOGITS = "standard"
"""The loss that every script has."""
_MOST_OF_A_STEP = 0.5
"""Share of exchanges, or of what a slow host would add, from which on other frameworks are searched: there their
layouts differ the most."""


@frozen
class Instead:
    """The fastest layout that can be written of a job as near to the asked one as there is."""

    candidate: Candidate
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the wire contract, with the values that they must have."""
    drops_pins: bool = False
    """Whether it has other values of what was held fixed."""
    is_faster: bool = False
    """Whether it is named for its step, beside a plan that has files."""
    is_smallest: bool = False
    """Whether the least memory was asked for, not the least time."""
    holds_gpus: bool = False
    """Whether it is on the plan's GPUs, of more or others that were offered."""
    has_room: bool = False
    """Whether it is named for the room that it leaves the card, beside a plan that leaves none."""

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Return the fields of the request that may not be said with it."""
        if not self.holds_gpus:
            return ()
        return tuple(name for name in HOW_MANY if not (self.is_smallest and name == "objective"))


def surely_better(situation: Situation, pinned: PinnedFields) -> Instead | None:
    """Return the fastest layout with files of another framework or loss, where it beats a plan that has its own.

    Estimates of two frameworks share less than those of one, so the lead must be one that published pairs
    trust, and the longest step of its range shorter than the shortest of the choice's. Searched only where
    the choice suffers from what another framework may do without: it offloads, has no room, or spends most
    of its step on exchanges, although the model must be divided. Where it has no room, one that has some is
    named for as much time as a layout of the same search may take for it.
    """
    job, chosen = situation.job, situation.candidate
    if "offload" in pinned and chosen.strategy.offloads_optimizer:
        return None
    variants = [*_lighter_replicas(situation), *_ways_out(situation)]
    tried = [
        (changes, variant, candidate)
        for changes, variant in variants
        if changes and _is_as_asked(job, variant)
        if (candidate := chosen_layout(variant, pinned, written_alone=True)) is not None
    ]
    faster = [
        Instead(candidate=candidate, changes=changes, is_faster=True)
        for changes, variant, candidate in tried
        if _leads(variant, candidate, chosen, is_other="recipe.framework" in changes)
    ]
    roomier = [
        Instead(candidate=candidate, changes=changes, has_room=True)
        for changes, _, candidate in tried
        if _is_roomier(candidate, chosen)
    ]
    # One that offloads too, or gives up trained weights, is no way out where another does without.
    return min(
        faster or roomier,
        key=lambda each: (
            each.candidate.strategy.offloads_optimizer,
            gives_up_weights(job, each),
            _roomy_seconds(each),
        ),
        default=None,
    )


def gives_up_weights(job: Job, instead: Instead) -> bool:
    """Return whether trained weights are not loaded that the job's own files would load."""
    own, other = job.framework.name, instead.changes.get("recipe.framework")
    has_adapters = job.recipe.lora is not None
    if not job.model.is_pretrained or other is None:
        return False
    loads = partial(
        common.loads_weights, has_adapters=has_adapters, model_type=job.model.model_type
    )
    return loads(own) and not loads(other)


def _roomy_seconds(found: Instead) -> float:
    price = 0.0 if found.candidate.is_comfortable else prices().tight_lead
    return (1 + price) * _seconds(found)


def _ways_out(situation: Situation) -> Iterator[tuple[dict[str, Any], Job]]:
    job = situation.job
    if not _suffers(situation):
        return
    yield from _variants(job)
    for loss in _other_losses(job):
        yield {"recipe.loss": loss}, _changed(job, {"recipe.loss": loss})


def _is_roomier(candidate: Candidate, chosen: Candidate) -> bool:
    worth = (1 + prices().tight_lead) * float(chosen.step_time.step_seconds)
    is_in_time = float(candidate.step_time.step_seconds) <= worth
    return candidate.is_comfortable and not chosen.is_comfortable and is_in_time


def _suffers(situation: Situation) -> bool:
    """Return whether the choice offloads, is tight, or waits for exchanges or for the host more than it computes."""
    chosen = situation.candidate
    if chosen.strategy.offloads_optimizer:
        return True
    if situation.fits_on_one_gpu:
        return False
    step_time = chosen.step_time
    by_host = float(step_time.doubts[Cause.HOST]) / float(step_time.step_seconds)
    most = max(situation.share(*COMMUNICATION), by_host)
    return not chosen.is_comfortable or most > _MOST_OF_A_STEP


def _lighter_replicas(situation: Situation) -> Iterator[tuple[dict[str, Any], Job]]:
    if situation.fits_on_one_gpu:
        return
    for loss, lighter in lighter_losses(situation.job):
        if is_roomy(lighter, reserved_bytes(lighter, smallest_replica(lighter))):
            yield {"recipe.loss": loss}, lighter


def _is_as_asked(job: Job, variant: Job) -> bool:
    """Return whether a variant steps as the job does: AdamW has other names elsewhere."""
    optimizers = {job.recipe.optimizer, variant.recipe.optimizer}
    return len(optimizers) == 1 or optimizers <= set(ADAMW)


def _leads(job: Job, candidate: Candidate, chosen: Candidate, *, is_other: bool) -> bool:
    """Return whether a layout is surely faster; in another framework the ranges of both may not meet."""
    own, other = candidate.step_time, chosen.step_time
    lead = float(other.step_seconds / own.step_seconds) - 1
    is_apart = own.high_seconds < other.low_seconds or not is_other
    return bool(is_apart) and lead >= trusted_lead(job.framework.name)


def best_written(job: Job, pinned: PinnedFields, objective: str = "time") -> Instead | None:
    """Return the fastest layout with files, or the smallest, in whichever framework; None where there are none.

    What the scripts do not run (a precision, an attention) is replaced first; then every
    framework with targets is searched, without the pinned fields where they leave nothing, and with
    the optimizer that all layouts have files for where its own leaves nothing; then with another loss,
    one that holds no logits first, and at last with half the sequence length and less.

    Args:
        job: of which the choice has no files.
        pinned: values that were held fixed.
        objective: "memory" for the smallest layout.
    """
    is_smallest = objective == "memory"
    size = {"recipe.global_batch_size": job.recipe.global_batch_size}
    fixed, changes = _within_scripts(job)
    for own in _nearest(fixed):
        base, changed = _changed(fixed, own), changes | own
        for pins in (pinned, {}) if pinned else (pinned,):
            held = base if pins else replace(base, pipeline_layout=())
            # Pinned micro-batches may be all that says how large the batch is.
            kept = size if pins != pinned else {}
            found = [
                Instead(
                    candidate=candidate,
                    changes=changed | others | kept,
                    drops_pins=pins != pinned,
                    is_smallest=is_smallest,
                )
                for others, variant in _variants(held)
                if (candidate := chosen_layout(variant, pins, objective, written_alone=True))
                is not None
            ]
            if found:
                return min(found, key=_bytes if is_smallest else _seconds)
    return None


def _nearest(job: Job) -> Iterator[dict[str, Any]]:
    """Yield what else of the recipe may change for there to be files, the least of people's first."""
    yield {}
    if job.recipe.optimizer != _ANYWHERE:
        yield {"recipe.optimizer": _ANYWHERE}
    yield from ({"recipe.loss": loss} for loss in _other_losses(job))
    is_text = not job.model.reads_images
    if is_text and any(launch(variant, Layout()).targets for _, variant in _variants(job)):
        length = job.recipe.sequence_length
        for halved in (length >> times for times in range(1, _HALVINGS + 1)):
            if halved >= SHORTEST_SEQUENCE:
                yield {"recipe.sequence_length": halved}


def _other_losses(job: Job) -> Iterator[str]:
    """Yield the losses that the job does not have: those without logits, and after them the plain one."""
    if job.loss is None:
        yield from (loss for loss, _ in lighter_losses(job))
        return
    yield from (loss for loss in job.framework.losses if loss != job.recipe.loss)
    yield _WITH_LOGITS


def _seconds(found: Instead) -> float:
    """Return the time of a step; in another framework it must be shorter by a lead that published pairs trust."""
    other = found.changes.get("recipe.framework")
    lead = trusted_lead(other) if other else 0.0
    return (1 + lead) * float(found.candidate.step_time.step_seconds)


def _bytes(found: Instead) -> float:
    return float(found.candidate.memory.reserved_bytes)


def on_its_gpus(instead: Instead | None, job: Job, *, is_mixed: bool = False) -> Instead | None:
    """Return it with the GPUs that it is on, where more were offered, or their number was open.

    And with its batch, which may have been assumed for as many as were offered.

    Args:
        instead: what there is in place of a plan, or beside it.
        job: of that plan.
        is_mixed: whether GPUs of other models were offered beside these.
    """
    if instead is None:
        return None
    cluster = job.cluster
    size: dict[str, Any] = {
        "cluster.gpus_per_node": cluster.gpus_per_node,
        "cluster.nodes": cluster.nodes,
    }
    if 1 < cluster.gpus_per_node < len(cluster.gpu_order):
        # Some of a node's are wired as its others leave them.
        size = {"max_gpus": cluster.world_size}
    if is_mixed:
        size["cluster.gpu"] = cluster.gpu.name
    batch = {"recipe.global_batch_size": job.recipe.global_batch_size}
    return replace(instead, changes={**instead.changes, **size, **batch}, holds_gpus=True)


def _within_scripts(job: Job) -> tuple[Job, dict[str, Any]]:
    changes: dict[str, Any] = {}
    if job.recipe.precision not in common.PRECISIONS:
        peaks = job.cluster.gpu.peak_flops
        half = next((name for dtype, name in _HALF if dtype in peaks), "fp32")
        changes["recipe.precision"] = half
    if common.lacks_flash_attention(job):
        changes["recipe.attention"] = "sdpa"
    fixed = _changed(job, changes)
    if common.loss_scale(fixed).broken:
        changes["recipe.weights_dtype"] = "fp32"
    return _changed(fixed, changes), changes


def _variants(job: Job) -> Iterator[tuple[dict[str, Any], Job]]:
    """Yield the job in every framework whose targets write it in some layout, with what changed."""
    for name in records.framework_names():
        changes: dict[str, Any] = {} if name == job.framework.name else {"recipe.framework": name}
        framework, recipe = records.framework(name), job.recipe
        if changes and recipe.optimizer in ADAMW:
            recipe = replace(recipe, optimizer=framework.usual_optimizer)
        if recipe.optimizer != job.recipe.optimizer:
            changes["recipe.optimizer"] = recipe.optimizer
        knows = (
            recipe.precision in framework.precisions and recipe.optimizer in framework.optimizers
        )
        if targets_of(name) and knows:
            variant = _changed(job, changes)
            if common.lacks_attention(variant):
                changes = changes | {"recipe.attention": "eager"}
                variant = _changed(job, changes)
            keeps = common.trains_in_config_dtype(variant) or not common.trains_in_config_dtype(job)
            if keeps and launch(variant, Layout()).targets:
                yield changes, variant


def _changed(job: Job, changes: Mapping[str, Any]) -> Job:
    values: dict[str, Any] = {
        name.removeprefix("recipe."): value for name, value in changes.items()
    }
    name = values.pop("framework", "")
    framework = records.framework(name) if name else job.framework
    if name and job.recipe.compile:
        framework = framework.compiled()
    return replace(
        job,
        framework=framework,
        recipe=replace(job.recipe, **values),
        pipeline_layout=() if name else job.pipeline_layout,
    )
