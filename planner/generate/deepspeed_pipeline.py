"""What DeepSpeed's PipelineModule can run."""

from planner.catalog import records
from planner.domain.strategy import ZERO_1
from planner.generate.families import undividable
from planner.generate.run_spec import RunSpec


def pipeline_refusal(spec: RunSpec) -> str | None:
    """Return why DeepSpeed cannot run the plan's pipeline; None where it can.

    Source: DeepSpeed 0.19.8, runtime/pipe: engine.py asserts a ZeRO stage below 2 and trains by
    TrainSchedule, which is 1F1B; module.py gives each rank consecutive layers.
    Leaves out: DualPipeVModule, whose schedule has no estimates.
    """
    obstacle = undividable(spec)
    schedules = records.framework("deepspeed").capabilities.pipeline_schedules
    reasons = {
        str(obstacle): obstacle is not None,
        "DeepSpeed's PipelineModule allows ZeRO-1 at most": spec.zero_stage > ZERO_1,
        f"DeepSpeed's PipelineModule runs {' or '.join(schedules)}, not {spec.pipeline_schedule}": (
            spec.pipeline_schedule not in schedules
        ),
        "DeepSpeed's PipelineModule has one chunk of layers on each GPU": (
            spec.virtual_pipeline_size > 1
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
