"""Time of a reference model's forward, which each micro-batch runs between the policy's own and backward.

Notation: A gradient accumulation steps; F forward seconds of a micro-batch of the policy.
"""

from planner.core.term import Term, micro_batches, seconds
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.parallel.partition import Stage
from planner.step_time import data_parallel
from planner.step_time.micro_batch import MicroBatch, Spent
from planner.step_time.terms import StepTerm


def forward_term(job: Job, s: Strategy, stage: Stage, slowest: MicroBatch) -> Term:
    """Forward of the reference: the policy's again without adapters, and the gather that it does not hide.

        seconds = A * (F - adapters + max(first block's gather, gather - overlap * F))

    Source: TRL 1.16, trainer/dpo_trainer.py, _compute_loss: the same batch, after the policy's forward, which
    recomputes nothing.
    """
    own = slowest.forward
    if job.recipe.lora is not None:
        own = own - slowest.of(Spent.FORWARD_ADAPTERS)
    gathered = data_parallel.gathered_in_forward(job, s, stage, own)
    each = seconds(own, "reference forward") + seconds(gathered, "gather")
    return Term(
        name=StepTerm.REFERENCE_FORWARD,
        arithmetic=micro_batches(s.gradient_accumulation_steps) * each,
        source="TRL 1.16, trainer/dpo_trainer.py",
    )
