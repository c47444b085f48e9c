"""What frameworks can run, against the code of those that are installed here."""

import importlib.metadata
from dataclasses import fields

import pytest
import torch
import torch.distributed.tensor.parallel as tensor_styles
from accelerate.parallelism_config import ParallelismConfig  # type: ignore[import-untyped]
from framework_records import can
from torch.distributed.pipelining import schedules as torch_schedules

from planner.domain.strategy import PipelineSchedule
from planner.parallel.pipeline_schedules import SCHEDULES
from planner.parallel.schedule_orders import Kind, Shape

LETTERS = {
    Kind.FORWARD: torch_schedules._ComputationType.FORWARD,  # noqa: SLF001
    Kind.BACKWARD: torch_schedules._ComputationType.BACKWARD_INPUT,  # noqa: SLF001
    Kind.WEIGHT: torch_schedules._ComputationType.BACKWARD_WEIGHT,  # noqa: SLF001
}


def test_versions_are_those_that_the_tests_run() -> None:
    assert can("torch").version == torch.__version__.partition("+")[0]
    assert can("accelerate").version == importlib.metadata.version("accelerate")


def test_accelerate_refuses_what_its_record_says() -> None:
    assert {"tp_size", "cp_size", "sp_size"} <= {field.name for field in fields(ParallelismConfig)}
    assert "pp_size" not in {field.name for field in fields(ParallelismConfig)}
    with pytest.raises(ValueError, match="pure data parallelism"):
        ParallelismConfig(dp_replicate_size=2, tp_size=2)
    hybrid = ParallelismConfig(dp_replicate_size=2, dp_shard_size=2, tp_size=2, cp_size=2)
    assert hybrid.total_size == 16


def test_torch_has_the_schedules_of_its_record_and_no_style_for_experts() -> None:
    for name in can("torch").pipeline_schedules.values():
        assert getattr(torch_schedules, name)
    for name in can("torchtitan").pipeline_schedules.values():
        assert torch_schedules.get_schedule_class(name)
    assert {"ColwiseParallel", "SequenceParallel"} <= set(tensor_styles.__all__)
    assert not [name for name in tensor_styles.__all__ if "Expert" in name]


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 8), (4, 16)])
def test_zb_h1_is_torchs_zero_bubble_with_one_stage_per_rank(
    stages: int, micro_batches: int
) -> None:
    theirs = object.__new__(torch_schedules.ScheduleInterleavedZeroBubble)
    theirs.n_local_stages, theirs.pp_group_size = 1, stages
    theirs._n_microbatches = micro_batches
    theirs.microbatches_per_round = stages
    for rank in range(stages):
        actions = theirs._calculate_single_rank_operations(rank)
        ours = SCHEDULES[PipelineSchedule("zb-h1")].order(
            Shape(stages=stages, micro_batches=micro_batches), rank
        )
        assert [(LETTERS[op.kind], op.micro_batch) for op in ours] == [
            (action.computation_type, action.microbatch_index) for action in actions if action
        ]
