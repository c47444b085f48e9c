import pytest

from planner.core.errors import PlannerError
from planner.domain.strategy import PipelineSchedule
from planner.parallel.pipeline_schedules import SCHEDULES
from planner.parallel.schedule import StageSeconds, simulate


def test_every_schedule_is_described() -> None:
    assert tuple(SCHEDULES) == tuple(PipelineSchedule)


@pytest.mark.parametrize("name", PipelineSchedule)
def test_a_schedule_runs_every_micro_batch_once(name: PipelineSchedule) -> None:
    """What is added runs with the fewest chunks that it is defined for, and refuses fewer."""
    schedule = SCHEDULES[name]
    stages, virtual = [StageSeconds(forward=1, backward=2, weight=1)] * 4, schedule.chunks.start
    spans = simulate(name, stages, 8, virtual).spans
    kinds = 3 if schedule.splits_backward else 2
    assert len({(span.stage, span.operation) for span in spans}) == 4 * 8 * virtual * kinds
    with pytest.raises(PlannerError, match="is not defined for"):
        simulate(name, stages, 8, virtual - 1)
