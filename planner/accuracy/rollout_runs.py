"""Published steps of GRPO, estimated again: generation, weights, log-probabilities and training as each ran them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from planner.catalog.records import read
from planner.catalog.rollout import EngineRecord, FittedRecord, rollout
from planner.core.frozen import frozen
from planner.core.term import plain
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.request.schema import parse_request, resolve
from planner.request.sections import StrategyRequest
from planner.request.strategy import requested_layout
from planner.rollout.engine import Engine
from planner.rollout.generation import Prompts, generate
from planner.rollout.handover import gathering, loading
from planner.rollout.lengths import lengths
from planner.rollout.step import GrpoStep, grpo_step
from planner.search.candidate import estimate
from planner.step_time.ledger import StepTime

_GENERATIONS = 32


@frozen
class RolloutRun:
    """A published step, and all that does not depend on the engine's constants."""

    said: Mapping[str, Any]
    job: Job
    training: StepTime
    prompts: Prompts
    gpu_memory_share: float

    @property
    def gpus(self) -> int:
        """Return the GPUs, which generate and train."""
        return int(self.said["gpus_per_node"] * self.said["nodes"])


@cache
def rollout_runs(name: str = "nemo_rl") -> tuple[RolloutRun, ...]:
    """Return the runs of a record of `data/measurements/post_training`, their training estimated."""
    record = read("measurements/post_training", name)
    rows = (dict(zip(record["columns"], row, strict=True)) for row in record["rows"])
    return tuple(_run(row, record["prompt_tokens"], record["gpu_memory_share"]) for row in rows)


def _run(said: Mapping[str, Any], prompt_tokens: int, share: float) -> RolloutRun:
    """Return a run: completions are packed, so that a sequence of the training is as long as a completion may be.

    Leaves out: optimizer steps within a step, where a batch is smaller than the completions; their updates are short.
    """
    most = said["most_tokens"]
    sizes = {
        name: size
        for name, size in said.items()
        if name.endswith("_parallel_size") and not name.startswith("generation")
    }
    ranks = said["gpus_per_node"] * said["nodes"] // Layout(**sizes).model_parallel_size
    packed = said["completions"] * said["mean_tokens"] / most
    batch = max(1, round(packed / ranks)) * ranks
    strategy = {
        **sizes,
        "sequence_parallel": said["tensor_parallel_size"] > 1,
        "zero_stage": 1,
        "micro_batch_size": 1,
        "recompute": said["recompute"],
    }
    request = {
        "model": said["model"],
        "cluster": {name: said[name] for name in ("gpu", "gpus_per_node", "nodes")},
        "recipe": {
            "framework": "megatron",
            "sequence_length": most,
            "global_batch_size": batch,
            "precision": "bf16-mixed",
            "attention": "flash",
        },
        "strategy": strategy,
    }
    job = resolve(parse_request(request), allow_paths=False, of_a_run=True).job
    training = estimate(job, requested_layout(StrategyRequest(**strategy), job)).step_time
    return RolloutRun(
        said=said,
        job=job,
        training=_scaled(training, packed / batch),
        prompts=Prompts(
            completions=said["completions"],
            generations=_GENERATIONS,
            prompt_tokens=prompt_tokens,
            lengths=lengths(most - prompt_tokens, said["mean_tokens"] - prompt_tokens),
        ),
        gpu_memory_share=share,
    )


def _scaled(step: StepTime, share: float) -> StepTime:
    """Return a step of so many times the tokens: whole micro-batches on every rank are seldom what was packed."""
    terms = tuple(replace(term, arithmetic=plain(share) * term.arithmetic) for term in step.terms)
    return replace(
        step,
        terms=terms,
        step_seconds=share * step.step_seconds,
        low_seconds=share * step.low_seconds,
        high_seconds=share * step.high_seconds,
    )


def predicted(run: RolloutRun, record: EngineRecord) -> GrpoStep:
    """Return the step of a run, by an engine's constants."""
    size = run.said["generation_tensor_parallel_size"]
    engine = Engine(
        tensor_parallel_size=size,
        replicas=run.gpus // size,
        share=run.gpu_memory_share,
        card_bytes=run.job.cluster.gpu.memory_bytes,
        record=record,
    )
    generation = generate(run.job, engine, run.prompts)
    if generation is None:
        raise ValueError(f"no room for a sequence of {run.said}")
    handover = (*gathering(run.job.model, run.job.cluster), loading(run.job.model, record))
    return grpo_step(generation.terms, handover, run.said["passes"], run.training, record)


def without(model: str) -> EngineRecord:
    """Return the engine's constants that a model's runs had no part in."""
    known = rollout()
    fitted = known.left_out.get(model)
    return with_constants(known.engine, fitted) if fitted else known.engine


def with_constants(record: EngineRecord, fitted: FittedRecord) -> EngineRecord:
    """Return an engine's record with other constants."""
    return replace(
        record,
        hbm_share=fitted.hbm_share,
        matmul_share=fitted.matmul_share,
        step_seconds=fitted.step_seconds,
        sequence_seconds=fitted.sequence_seconds,
        tensor_seconds=fitted.tensor_seconds,
        between_share=fitted.between_share,
    )
