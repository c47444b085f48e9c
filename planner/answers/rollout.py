"""GRPO: a request in, the split of its GPUs and the plan of its training out, phase by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.advice.plan import Plan
from planner.advice.rollout_plan import make_rollout_plan
from planner.advice.rollout_setup import RolloutSetup
from planner.answers.parts import layout_answer, term_answer
from planner.core.errors import UnsupportedError
from planner.domain.job import Job
from planner.request.remarks import Assumption
from planner.request.schema import HOW_MANY, Request
from planner.search.pinned_fields import PinnedFields

if TYPE_CHECKING:
    from planner.answers.shapes import RolloutAnswer, RolloutSetupAnswer

_TRAINED_BY = "trained by replicas and sharding alone, as TRL does"


def suggest_rollout(request: Request, job: Job, pinned: PinnedFields) -> Plan:
    """Return the plan of a job of GRPO.

    Raises:
        UnsupportedError: the number of GPUs is left open.
        PlannerError: see `make_rollout_plan`.
    """
    for name in HOW_MANY:
        if getattr(request, name) not in {None, "time"}:
            raise UnsupportedError(
                f"{name} is not estimated of GRPO, whose GPUs generate and train",
                hint="leave it out, and ask for each number of GPUs",
                field=name,
            )
    return make_rollout_plan(job, pinned)


def as_trained(plan: Plan) -> tuple[Assumption, ...]:
    """Return what is taken of a plan's training: shorter completions shorten it only where the longest is shorter."""
    found = (Assumption(text=_TRAINED_BY, field="recipe.job"),)
    setup = plan.rollout.chosen if plan.rollout else None
    if setup is None or setup.rollout.mean_completion_length is None:
        return found
    tokens = setup.trained_tokens
    text = f"trained on completions padded to {tokens:,} tokens, the longest of a step, as TRL does"
    return (*found, Assumption(text=text, field="recipe.mean_completion_length"))


def refuse_rollout(request: Request) -> None:
    """Refuse GRPO where one layout is looked at, which is the training of its step alone.

    Raises:
        UnsupportedError: says what answers it.
    """
    if request.recipe.job == "grpo":
        raise UnsupportedError(
            "here one layout is looked at, which of GRPO is the training of a step alone",
            hint="planner suggest --job grpo says what generation takes too; the training alone is --job finetune",
            field="recipe.job",
        )


def rollout_answer(plan: Plan) -> RolloutAnswer | None:
    """Return where a plan generates and what each phase takes and holds; None of one that generates nothing."""
    found = plan.rollout
    if found is None:
        return None
    return {
        **_setup(found.chosen),
        "alternatives": [_setup(each) for each in found.others],
        "impossible": list(found.impossible),
    }


def _setup(setup: RolloutSetup) -> RolloutSetupAnswer:
    step, engine, generation = setup.step, setup.engine, setup.generation
    trains, generates = setup.idle_seconds
    return {
        "mode": setup.mode,
        "nodes": setup.nodes,
        "generation_gpus": setup.generation_gpus,
        "training_gpus": setup.training_gpus,
        "engines": engine.replicas,
        "tensor_parallel_size": engine.tensor_parallel_size,
        "gpu_memory_utilization": engine.share,
        "sequences": generation.sequences,
        "sequences_at_once": generation.at_once,
        "step_seconds": step.step_seconds,
        "low_seconds": step.low_seconds,
        "high_seconds": step.high_seconds,
        "tokens_per_second": setup.tokens_per_second,
        "training_gpus_wait_seconds": trains,
        "generation_gpus_wait_seconds": generates,
        "generating_bytes": round(setup.generating_bytes),
        "training_bytes": round(setup.training_bytes),
        "strategy": layout_answer(setup.job, setup.candidate.strategy),
        "phases": {
            name: [term_answer(term, "seconds") for term in terms]
            for name, terms in step.phases.items()
        },
        "engine": [term_answer(term, "bytes") for term in setup.held],
    }
