"""Limits of what a framework can run: read from the capabilities of its record."""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from planner.catalog import records
from planner.core.term import Column, is_one_of
from planner.domain.breach import Breach
from planner.domain.capabilities import Capabilities
from planner.domain.dimensions import DIMENSIONS, Dimension
from planner.domain.expert_ranks import folded_ranks_per_expert
from planner.domain.job import POST_TRAINING, Job
from planner.domain.strategy import (
    ZERO_1,
    Offload,
    PipelineSchedule,
    Recompute,
    Strategy,
)


def technique_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must have the kinds of parallelism that the layout uses.

    Why: dividing a model takes code that only some frameworks bring.

    Instead: another framework, or a layout without that kind.

    Source: the framework record's capabilities, with the version that was looked at.
    """
    lacking = [
        dimension for dimension in DIMENSIONS if not _has(job.framework.capabilities, dimension)
    ]
    used = {dimension: np.asarray(s.uses(dimension)) for dimension in lacking}
    first = next((dimension for dimension in lacking if np.any(used[dimension])), DIMENSIONS[0])
    return _missing(
        job,
        broken=reduce(np.logical_or, used.values(), np.zeros((), dtype=bool)),
        what=f"{first.name} parallelism",
        is_able=lambda capabilities: _has(capabilities, first),
        field=f"strategy.{first.field}",
    )


def pairs_are_not_divided(job: Job, s: Strategy) -> Breach:
    """Pairs of answers, and answers of one's own, are trained with whole models, or shards of them.

    Why: TRL's trainers compare log-probabilities or scores that each rank has whole.

    Instead: ZeRO-3 or FSDP, which share the weights too, adapters, or offload.

    Source: TRL 1.16, trainer/dpo_trainer.py, reward_trainer.py and grpo_trainer.py.
    """
    divided = s.divides_model | (np.asarray(s.context_parallel_size) > 1)
    return Breach(
        broken=divided & (job.recipe.job in POST_TRAINING),
        message="{job} can divide the data over GPUs, not the model",
        hint="--strategy zero-3",
        numbers={"job": job.recipe.job},
        field="strategy",
    )


def zero_stage_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must have the layout's ZeRO stage.

    Why: Megatron-LM and nanotron divide the optimizer alone, FSDP all states at once.

    Instead: a stage that it has, or another framework.

    Source: the framework record, zero_stages.
    """
    known = job.framework.zero_stages
    return Breach(
        broken=np.logical_not(is_one_of(s.zero_stage, known)),
        message="{framework} has no ZeRO stage {stage}",
        hint="it has " + ", ".join(map(str, known)),
        numbers={"framework": job.framework.name, "stage": s.zero_stage},
        field="strategy.zero_stage",
    )


def schedule_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must have the pipeline's schedule.

    Why: a schedule is an order of sends and receives that both sides must run.

    Instead: a schedule that it has; 1f1b is in all of them.

    Source: the framework record's capabilities.
    """
    known = job.framework.capabilities.pipeline_schedules
    is_piped = np.asarray(s.pipeline_parallel_size) > 1
    return Breach(
        broken=is_piped
        & bool(known)
        & np.logical_not(is_one_of(s.pipeline_schedule, map(PipelineSchedule, known))),
        message="{framework} has no pipeline schedule {schedule}",
        hint="it has " + ", ".join(known),
        numbers={
            "framework": job.framework.name,
            "schedule": PipelineSchedule.name_of(s.pipeline_schedule),
        },
        field="strategy.pipeline_schedule",
    )


def sequence_parallelism_is_missing(job: Job, s: Strategy) -> Breach:
    """Sequence parallelism goes with tensor parallelism, in frameworks that have it.

    Why: it divides by tokens what tensor parallelism leaves whole: norms, dropouts, residuals.

    Instead: tensor parallelism alone.

    Source: Korthikanti et al., arXiv:2205.05198, section 4.2; the framework record's capabilities.
    """
    is_able = job.framework.capabilities.sequence_parallel
    is_alone = np.asarray(s.tensor_parallel_size) == 1
    return Breach(
        broken=np.asarray(s.sequence_parallel) & (is_alone | (not is_able)),
        message="sequence_parallel divides what tensor parallelism leaves whole, and"
        + (" there is none" if is_able else " {framework} has none"),
        hint="use tensor_parallel_size 2 or more" if is_able else "leave it out",
        numbers={"framework": job.framework.name},
        field="strategy.sequence_parallel",
    )


def hybrid_sharding_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must be able to replicate shards (HSDP).

    Why: sharding inside a node and replicating over nodes takes two groups of data-parallel ranks.

    Instead: shards over all ranks, or another framework.

    Source: the framework record's capabilities.
    """
    is_hybrid = (np.asarray(s.data_parallel_replicate_size) > 1) & (np.asarray(s.zero_stage) > 0)
    return _missing(
        job,
        broken=is_hybrid & (not job.framework.capabilities.hybrid_shard),
        what="hybrid sharding (replicas of shards)",
        is_able=lambda capabilities: capabilities.hybrid_shard,
        field="strategy.data_parallel_replicate_size",
    )


def local_sgd_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must be able to average parameters every few steps.

    Why: gradients must stay unreduced between averages, which engines with their own optimizer
    step do not offer.

    Instead: accumulation, which also reduces less often.

    Source: the framework record's capabilities.
    """
    return _missing(
        job,
        broken=np.asarray(s.is_local) & (not job.framework.capabilities.local_sgd),
        what="local SGD",
        is_able=lambda capabilities: capabilities.local_sgd,
        field="strategy.synchronize_every",
    )


def replicas_do_not_go_with_tensors(job: Job, s: Strategy) -> Breach:
    """Tensor parallelism goes with plain replicas, where the framework allows it.

    Why: some frameworks put tensor-parallel parameters under FSDP only, which reduces them.

    Instead: ZeRO in place of DDP.

    Source: accelerate's ParallelismConfig; the framework record's capabilities.
    """
    is_replicated = (np.asarray(s.zero_stage) == 0) & (s.data_parallel_size > 1)
    is_divided = np.asarray(s.tensor_parallel_size) > 1
    is_able = job.framework.capabilities.replicates_with_tensor_parallel
    return Breach(
        broken=is_replicated & is_divided & (not is_able),
        message="{framework} cannot combine DDP replicas with tensor parallelism",
        hint="use zero_stage 2 or 3",
        numbers={"framework": job.framework.name},
        field="strategy.zero_stage",
    )


def shares_of_experts_are_given(job: Job, s: Strategy) -> Breach:
    """The framework must be able to divide experts over other groups than all else.

    Why: most divide every matrix of a layer over the same ranks; Megatron Core has groups of its own for experts.

    Instead: Megatron-LM, or no such size.

    Source: the framework record's capabilities, folds_experts.
    """
    given = np.asarray(s.expert_tensor_parallel_size)
    others = s.context_parallel_size * s.data_parallel_size
    folded = folded_ranks_per_expert(s.tensor_parallel_size, others, s.expert_parallel_size)
    return _missing(
        job,
        broken=(given > 0) & (given != folded) & (not job.framework.capabilities.folds_experts),
        what="tensor parallel size of experts alone",
        is_able=lambda capabilities: capabilities.folds_experts,
        field="strategy.expert_tensor_parallel_size",
    )


def recompute_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must have the layout's kind of recompute.

    Why: what is selected is a choice of the framework's own.

    Instead: full recompute, which all have, or none.

    Source: the framework record's capabilities.
    """
    known = job.framework.capabilities.recompute
    return Breach(
        broken=np.logical_not(is_one_of(s.recompute, map(Recompute, known))),
        message="{framework} has no {recompute} recompute",
        hint="it has " + ", ".join(known),
        numbers={"framework": job.framework.name, "recompute": Recompute.name_of(s.recompute)},
        field="strategy.recompute",
    )


def offload_is_missing(job: Job, s: Strategy) -> Breach:
    """The framework must be able to keep in host memory what the layout offloads.

    Why: the optimizer's step moves to the CPU, or its states travel; both are the framework's own.

    Instead: what it can offload, or another framework.

    Source: the framework record, offloads.
    """
    known = job.framework.host_memory.offloads
    offload = np.asarray(s.offload)
    is_unknown = np.logical_not(is_one_of(offload, [Offload.NONE, *map(Offload, known)]))
    names = []
    if np.any(is_unknown):
        wanted = Offload.name_of(offload[is_unknown].flat[0])
        names = [
            name for name in _frameworks() if wanted in records.framework(name).host_memory.offloads
        ]
    own = f"; {job.framework.name} knows {', '.join(known)}" if known else ""
    return Breach(
        broken=is_unknown,
        message="{framework} cannot offload {offload} to host memory",
        hint=f"{_others(names)}{own}",
        numbers={"framework": job.framework.name, "offload": Offload.name_of(s.offload)},
        field="strategy.offload",
    )


def offload_needs_shards(job: Job, s: Strategy) -> Breach:
    """Only shards are offloaded.

    Why: whole replicas would fill the host once per GPU, and step the same parameters on each.

    Instead: the ZeRO stage from which the framework has such shards.

    Source: Ren et al., ZeRO-Offload, arXiv:2101.06840, section 4; the framework record.
    """
    least = np.where(s.offloads_parameters, job.framework.sharding.parameters_sharded_from, ZERO_1)
    return Breach(
        broken=np.asarray(s.offloads_optimizer) & (np.asarray(s.zero_stage) < least),
        message="offload={offload} keeps shards in host memory, but zero_stage {stage} of"
        " {framework} has none to keep",
        hint="use zero_stage {least} or more",
        numbers={
            "offload": Offload.name_of(s.offload),
            "stage": s.zero_stage,
            "framework": job.framework.name,
            "least": least if np.ndim(least) else int(least),
        },
        field="strategy.offload",
    )


def _missing(
    job: Job, *, broken: Column, what: str, is_able: Callable[[Capabilities], bool], field: str
) -> Breach:
    names = []
    if np.any(broken):
        names = [name for name in _frameworks() if is_able(records.framework(name).capabilities)]
    return Breach(
        broken=broken,
        message=f"{job.framework.name} {job.framework.capabilities.version} has no {what}",
        hint=_others(names),
        field=field,
    )


def _others(names: Sequence[str]) -> str:
    """Return which framework to ask for."""
    if not names:
        return "leave it out"
    return f"{', '.join(names)} can: --framework {names[0]}"


def _frameworks() -> tuple[str, ...]:
    return records.framework_names()


def _has(capabilities: Capabilities, dimension: Dimension) -> bool:
    if dimension.name == "pipeline":
        return bool(capabilities.pipeline_schedules)
    return bool(getattr(capabilities, f"{dimension.name}_parallel"))
