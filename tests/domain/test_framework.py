"""What frameworks can run, against the code of those that are installed here."""

import datetime as dt
import importlib.metadata
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import torch.distributed.tensor.parallel as tensor_styles
from accelerate.parallelism_config import ParallelismConfig  # type: ignore[import-untyped]
from torch.distributed.pipelining import schedules as torch_schedules

from planner.catalog import records
from planner.domain.framework import Capabilities
from planner.domain.strategy import PipelineSchedule
from planner.parallel.pipeline_schedules import SCHEDULES
from planner.parallel.schedule_orders import Kind, Shape

RECORDS = Path(__file__).parents[2] / "data/frameworks"
NAMES = ("accelerate", "composer", "deepspeed", "megatron", "nanotron", "torch", "torchtitan")
LETTERS = {
    Kind.FORWARD: torch_schedules._ComputationType.FORWARD,  # noqa: SLF001
    Kind.BACKWARD: torch_schedules._ComputationType.BACKWARD_INPUT,  # noqa: SLF001
    Kind.WEIGHT: torch_schedules._ComputationType.BACKWARD_WEIGHT,  # noqa: SLF001
}


def can(name: str) -> Capabilities:
    return records.framework(name).capabilities


@pytest.mark.parametrize("name", NAMES)
def test_every_framework_says_itself_what_it_can_do_and_when_that_was_read(name: str) -> None:
    section = tomllib.loads((RECORDS / f"{name}.toml").read_text(encoding="utf-8"))["capabilities"]
    assert set(section) == {field.name for field in fields(Capabilities)}
    found = can(name)
    assert dt.date.fromisoformat(found.date) >= dt.date(2026, 1, 1)
    assert found.version in found.source
    for field in fields(Capabilities):
        kind = dict if field.type == Mapping[str, str] else tuple
        assert isinstance(
            getattr(found, field.name), field.type if field.type in {bool, int, str} else kind
        )


@pytest.mark.parametrize("name", NAMES)
def test_what_a_framework_can_do_hangs_together(name: str) -> None:
    found, framework = can(name), records.framework(name)
    assert set(found.pipeline_schedules) <= set(PipelineSchedule.names())
    assert all(found.pipeline_schedules.values())
    schedules = [SCHEDULES[PipelineSchedule(each)] for each in found.pipeline_schedules]
    deepest = max((each.chunks.start for each in schedules), default=1)
    assert found.virtual_stages == (deepest > 1)
    assert found.zero_with_pipeline <= max(framework.zero_stages)
    assert found.pipeline_schedules or found.zero_with_pipeline == 0
    assert found.tensor_parallel or not found.sequence_parallel
    assert found.tensor_parallel or not found.replicates_with_tensor_parallel
    assert found.recompute[0] == "none"
    assert set(found.recompute) <= {"none", "selective", "full"}


@pytest.mark.parametrize("name", ["deepspeed", "megatron", "nanotron"])
def test_pipelines_go_with_zero_1_at_most_outside_pytorch(name: str) -> None:
    assert can(name).pipeline_schedules
    assert can(name).zero_with_pipeline == 1


def test_neither_accelerate_nor_composer_has_pipelines() -> None:
    assert not can("accelerate").pipeline_schedules
    assert not can("composer").pipeline_schedules


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
