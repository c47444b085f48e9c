"""A batch and what follows from it, as JSON."""

from dataclasses import asdict

from planner.advice.batch_plan import BatchPlan
from planner.answers.envelope import SCHEMA_VERSION
from planner.answers.shapes import BatchPlanAnswer


def answer_batch_plan(plan: BatchPlan) -> BatchPlanAnswer:
    """Return a batch as `planner batch --json` prints it."""
    first = plan.splits[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "global_batch_size": first.global_batch_size,
        "data_parallel_size": first.data_parallel_size,
        "splits": [asdict(split) for split in plan.splits],
        "run": asdict(plan.run) if plan.run else None,
        "warmup_steps": plan.warmup_steps,
        "accelerate_schedule_ends_at_step": plan.scheduler_end,
        "tuned": asdict(plan.tuned) if plan.tuned else None,
        "learning_rates": [asdict(rate) for rate in plan.rates],
        "settings": {name: list(lines) for name, lines in plan.settings.items()},
        "warnings": list(plan.warnings),
    }
