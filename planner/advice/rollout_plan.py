"""Job of GRPO -> where it generates and where it trains: every split of the GPUs, each trained as it is best.

Completions are written, scored and trained on in turn. Colocated, every GPU does all of it, and vLLM sleeps while they
train; with a server, some GPUs generate while the others wait, and wait while the others train.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.advice.engine_sizes import (
    check_engine,
    engine_sizes,
    is_one_engine,
    most_gpus,
    nearest_gpus,
)
from planner.advice.plan import Plan, make_plan
from planner.advice.rollout_setup import RolloutPlan, RolloutSetup, padded_completion
from planner.catalog.rollout import EngineRecord, rollout
from planner.core.errors import InvalidInputError, NothingFitsError, PlannerError
from planner.core.term import Term
from planner.domain.cluster import Link
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.rollout import Rollout, VllmMode
from planner.memory.room import COMFORTABLE_FRACTION
from planner.rollout.engine import Engine, holds, share_for
from planner.rollout.generation import Generation, Prompts, generate, sequences_of
from planner.rollout.handover import gathering, loading, sending
from planner.rollout.lengths import lengths
from planner.rollout.step import grpo_step
from planner.search.largest_that_fits import with_gpus
from planner.search.pinned_fields import PinnedFields
from planner.step_time.ledger import StepTime, estimate_step_time

_RESIDENT = ("parameters", "reference_weights", "optimizer_states", "framework_and_context")
"""What training holds between two steps."""
_ROUND, _STEP = 0.01, 0.05
"""Of a share that is named as what is left, and of one that is proposed."""


def make_rollout_plan(job: Job, pinned: PinnedFields) -> Plan:
    """Return the plan of the training of the fastest split that fits, with all splits.

    Args:
        job: of GRPO.
        pinned: values that every layout of the training has.

    Raises:
        InvalidInputError: what is said of the engine contradicts the GPUs or the model.
        NothingFitsError: no split fits.
    """
    asked = job.recipe.rollout
    for dimension in DIMENSIONS:
        if not dimension.is_of_data and pinned.get(dimension.field, 1) != 1:
            raise InvalidInputError(
                f"TRL trains GRPO with whole replicas or shards of them, not with {dimension.field}",
                hint="leave it out; --vllm-tensor-parallel-size divides the engine that generates",
                field=f"strategy.{dimension.field}",
            )
    if asked is None:
        raise TypeError("a job of GRPO says what it generates")
    _check(job, asked)
    held = {each.field: 1 for each in DIMENSIONS if not each.is_of_data} | dict(pinned)
    found: list[tuple[RolloutSetup, Plan]] = []
    errors: list[PlannerError] = []
    reasons: list[str] = []
    for mode, gpus in _splits(job, asked):
        try:
            found.append(_setup(job, asked, mode, gpus, held))
        except PlannerError as error:
            errors.append(error)
            place = f"vLLM on {gpus} of the {job.cluster.world_size} GPUs"
            reasons.append(f"{place if mode == 'server' else mode}: {error.message}")
    if not found:
        of_engine = (each for each in errors if each.field.startswith("recipe.vllm"))
        raise next(of_engine, errors[0])
    (best, plan), *others = sorted(found, key=lambda each: each[0].step.step_seconds)
    splits = tuple(setup for setup, _ in others)
    return replace(
        plan, rollout=RolloutPlan(chosen=best, others=splits, impossible=tuple(reasons)), offers=()
    )


def _splits(job: Job, asked: Rollout) -> Iterator[tuple[VllmMode, int]]:
    """Yield what generates and on how many GPUs: halvings of a node that leave some to train, or of a node of several as many as can."""
    cluster, size = job.cluster, asked.vllm_tensor_parallel_size
    if asked.vllm_mode == "none":
        yield "none", cluster.world_size
        return
    if asked.vllm_mode != "server" and asked.generation_gpus is None:
        yield "colocate", cluster.world_size
    if asked.vllm_mode == "colocate":
        return
    if asked.generation_gpus:
        yield "server", asked.generation_gpus
    elif size and is_one_engine(job, "server"):
        yield "server", size
    elif cluster.nodes > 1:
        yield "server", most_gpus(job)
    else:
        size = 1
        while size < cluster.gpus_per_node:
            yield "server", size
            size *= 2


def _setup(
    job: Job, asked: Rollout, mode: VllmMode, gpus: int, pinned: PinnedFields
) -> tuple[RolloutSetup, Plan]:
    """Return a split, and the plan of its training.

    Raises:
        PlannerError: its training has no layout, or its engine no room.
    """
    record = rollout().engine
    is_apart = mode == "server"
    has_own_node = is_apart and job.cluster.nodes > 1
    _check_weights(job, mode)
    if mode != "none":
        check_engine(job, asked, mode, gpus)
    trainer = _without(job, gpus) if is_apart else job
    said = replace(job.recipe, rollout=replace(asked, vllm_mode=mode))
    trainer = replace(trainer, recipe=said)
    _check_batch(trainer, asked, is_apart=is_apart)
    asleep = record.asleep_bytes if mode == "colocate" else 0.0
    plan = make_plan(_with_less(trainer, asleep), pinned)
    plan = replace(plan, job=replace(plan.job, cluster=trainer.cluster))
    resident = 0.0 if is_apart else _resident(plan)
    engine, generation = _engine(trainer if not is_apart else job, asked, mode, gpus, resident)
    handover: list[Term] = [*gathering(job.model, trainer.cluster)]
    if is_apart:
        handover.append(sending(job.model, _link(job)))
    if mode != "none":
        handover.append(loading(job.model, record))
    # TRL scores what vLLM sampled once more; a reference's forward is part of the training's ledger.
    passes = int(mode != "none")
    setup = RolloutSetup(
        mode=mode,
        generation_gpus=gpus,
        training_gpus=trainer.cluster.world_size,
        job=plan.job,
        has_own_node=has_own_node,
        unused_gpus=job.cluster.gpus_per_node - gpus if has_own_node else 0,
        candidate=plan.chosen,
        engine=engine,
        generation=generation,
        step=grpo_step(generation.terms, handover, passes, _trained_in(plan, asked), record),
        held=holds(job.model, engine, _prompts(job, asked).held_tokens, generation.at_once),
        resident_bytes=resident,
        asleep_bytes=asleep,
    )
    return setup, plan


def _trained_in(plan: Plan, asked: Rollout) -> StepTime:
    """Return the training of a step, whose completions are as long as the longest that there is."""
    tokens = asked.prompt_tokens + padded_completion(plan.job)
    if tokens >= plan.job.recipe.sequence_length:
        return plan.chosen.step_time
    shorter = replace(plan.job, recipe=replace(plan.job.recipe, sequence_length=tokens))
    return estimate_step_time(shorter, plan.chosen.strategy)


def _without(job: Job, gpus: int) -> Job:
    cluster = job.cluster
    if cluster.nodes > 1:
        return with_gpus(job, cluster.gpus_per_node, cluster.nodes - 1)
    return with_gpus(job, cluster.gpus_per_node - gpus, 1)


def _with_less(job: Job, taken: float) -> Job:
    gpu = replace(job.cluster.gpu, usable_bytes=job.usable_bytes - taken)
    return replace(job, cluster=replace(job.cluster, gpu=gpu))


def _resident(plan: Plan) -> float:
    terms = plan.chosen.memory.terms
    return sum(float(term.amount) for term in terms if term.name in _RESIDENT)


def _link(job: Job) -> Link:
    """Return what one GPU of the trainer reaches the server over: its share of the network, or the node's link."""
    cluster = job.cluster
    if cluster.nodes == 1 or cluster.inter_node is None:
        return cluster.intra_node
    network = cluster.inter_node
    each = network.bytes_per_second / cluster.gpus_per_node
    return replace(network, bytes_per_second=each)


def _prompts(job: Job, asked: Rollout) -> Prompts:
    return Prompts(
        completions=job.recipe.global_batch_size,
        generations=asked.num_generations,
        prompt_tokens=asked.prompt_tokens,
        lengths=lengths(asked.max_completion_length, asked.mean_completion_length),
    )


def _engine(
    job: Job, asked: Rollout, mode: VllmMode, gpus: int, resident: float
) -> tuple[Engine, Generation]:
    """Return the engine that writes the completions soonest, of those that have room for them.

    Raises:
        InvalidInputError: the share that was said is not left, or none of the engines has room.
    """
    record, card = rollout().engine, float(job.cluster.gpu.memory_bytes)
    left = max(0.0, (job.usable_bytes - resident) / card)
    said = asked.vllm_gpu_memory_utilization
    if said and said > left:
        raise _refused(
            "vllm_gpu_memory_utilization",
            f"vLLM asks for {said:.0%} of each GPU, and training leaves {left:.0%}",
            f"--vllm-gpu-memory-utilization {max(_ROUND, left // _ROUND * _ROUND):.2f}"
            f"{'' if mode == 'server' else ', or --vllm-mode server'}",
        )
    if mode == "none":
        record = _of_generate(job, record)
    prompts, found = _prompts(job, asked), []
    said_size = 1 if mode == "none" else asked.vllm_tensor_parallel_size
    for size in [said_size] if said_size else engine_sizes(job, mode, gpus):
        engine = Engine(
            tensor_parallel_size=size,
            replicas=gpus // size,
            share=said or left,
            card_bytes=card,
            record=record,
        )
        if not said:
            engine = replace(engine, share=_share(job, engine, prompts, left, mode))
        generation = generate(job, engine, prompts)
        if generation and (mode != "none" or generation.at_once == generation.sequences):
            found.append((engine, generation))
    if not found:
        raise _no_room(job, said or left)
    return min(found, key=lambda each: each[1].total_seconds)


def _share(job: Job, engine: Engine, prompts: Prompts, left: float, mode: VllmMode) -> float:
    """Return the share of a card that an engine is given: what all its completions need, as far as there is room.

    On GPUs of its own it has all that vLLM takes where nobody says: a cache that is larger does no harm there.
    """
    record = engine.record
    if mode == "server":
        return min(record.largest_share, left)
    room = left * COMFORTABLE_FRACTION
    wanted = share_for(job.model, engine, prompts.longest_tokens, sequences_of(engine, prompts))
    steps = math.ceil(max(record.smallest_share, wanted) / _STEP)
    return min(record.largest_share, round(steps * _STEP, 2), room // _ROUND * _ROUND)


def _of_generate(job: Job, record: EngineRecord) -> EngineRecord:
    """Return the record of transformers' generate: no scheduler, but a launch for each kernel of each block."""
    each = rollout().generate.block_seconds * job.model.num_blocks
    return replace(record, step_seconds=each, sequence_seconds=0.0, held_bytes=0.0)


def _check(job: Job, asked: Rollout) -> None:
    """Refuse sizes that the GPUs or the model do not have.

    Raises:
        InvalidInputError: names the field and the nearest value.
    """
    cluster, gpus = job.cluster, asked.generation_gpus
    node = cluster.gpus_per_node
    if asked.vllm_mode == "server" and cluster.world_size == 1:
        raise _refused("vllm_mode", "one GPU has no other to generate on", "--vllm-mode colocate")
    if gpus and cluster.nodes > 1 and gpus > node:
        raise _refused(
            "generation_gpus",
            f"with {cluster.nodes} nodes, generation has one node of {node} GPUs to itself, not {gpus}",
            f"--generation-gpus {most_gpus(job)}",
        )
    if gpus and cluster.world_size == 1:
        raise _refused(
            "generation_gpus", "one GPU has no other to generate on", "leave it out: it does both"
        )
    if gpus and gpus >= cluster.world_size:
        raise _refused(
            "generation_gpus",
            f"{gpus} GPUs for generation leave none to train: there are {cluster.world_size}",
            f"--generation-gpus {nearest_gpus(job, 'server', cluster.world_size // 2)}",
        )


def _check_weights(job: Job, mode: VllmMode) -> None:
    """Refuse quantised weights where TRL cannot give them to vLLM.

    Source: TRL 1.16, generation/vllm_generation.py: vLLM beside training is started with the 4 bits of bitsandbytes, a
    server with those of the model, and what either is sent are the trainer's tensors as they are.

    Raises:
        InvalidInputError: names the mode that has them.
    """
    lora = job.recipe.lora
    if mode == "server" and lora is not None and lora.is_quantised:
        raise _refused(
            "vllm_mode",
            f"TRL sends a server weights as they are held, and {lora.base_bits} bits are not the server's",
            "--vllm-mode colocate, or --method lora",
        )


def _check_batch(trainer: Job, asked: Rollout, *, is_apart: bool) -> None:
    """Refuse a batch that the GPUs which train do not divide.

    Raises:
        InvalidInputError: names the nearest that they and the completions of a prompt divide.
    """
    gpus, batch = trainer.cluster.world_size, trainer.recipe.global_batch_size
    if batch % gpus == 0:
        return
    whole = math.lcm(gpus, asked.num_generations)
    nearest = max(1, round(batch / whole)) * whole
    left = f"{gpus} GPUs that are left to train" if is_apart else f"{gpus} GPUs"
    raise _refused(
        "generation_gpus" if asked.generation_gpus else "global_batch_size",
        f"{batch:,} completions do not split over the {left}",
        f"--global-batch-size {nearest}"
        f"{', or another --generation-gpus' if asked.generation_gpus else ''}",
    )


def _no_room(job: Job, share: float) -> PlannerError:
    said = job.recipe.rollout.vllm_gpu_memory_utilization if job.recipe.rollout else None
    other = "--method lora, shorter sequences, or more GPUs"
    return NothingFitsError(
        f"vLLM has no room beside training: {share:.0%} of a {job.cluster.gpu.name} do not hold the"
        f" weights of {job.model.name} and one sequence of {job.recipe.sequence_length:,} tokens",
        hint="a larger --vllm-gpu-memory-utilization, or none: it is found" if said else other,
    )


def _refused(name: str, message: str, hint: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field=f"recipe.{name}")
