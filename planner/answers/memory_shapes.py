"""What the answers about a layout's memory look like; see `planner.answers.shapes`."""

from typing import Annotated, TypedDict

from planner.answers.shapes import Fields, StageMemory
from planner.domain.strategy import Layout


class MemoryTermAnswer(TypedDict):
    """A share of the memory, with its arithmetic."""

    name: str
    bytes: int
    how: str


class StageAnswer(StageMemory):
    """The memory of a pipeline stage's busiest rank, term by term."""

    phase: str
    low_bytes: int
    high_bytes: int
    terms: list[MemoryTermAnswer]


class CheckpointPeaks(TypedDict):
    """The peak while a checkpoint is written, by its kind."""

    sharded: int
    full: int


class HostBytes(TypedDict):
    """The host memory of a node; null is not known."""

    loading_bytes: int
    training_bytes: int
    available_bytes: int | None
    fits: bool | None


class ChangeAnswer(TypedDict):
    """A change with which it would fit."""

    name: str
    reserved_bytes: int
    slowdown: float


class MemoryOfLayoutAnswer(TypedDict):
    """Where the memory of one layout goes, and what would fit."""

    strategy: Annotated[Fields, Layout]
    fits: bool
    usable_bytes: int
    stages: list[StageAnswer]
    evaluation_peak_bytes: int
    checkpoint_peak_bytes: CheckpointPeaks
    host_memory: HostBytes
    largest_micro_batch_size: int
    longest_sequence_length: int
    fewest_gpus: int | None
    changes: list[ChangeAnswer]
