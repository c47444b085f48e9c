"""What engines that generate take, beside what their GPUs and links do."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class EngineRecord:
    """What vLLM makes of a GPU while it decodes."""

    hbm_share: float
    """Of the card's bandwidth that reading weights and cache reaches."""
    matmul_share: float
    """Of the dense peak that its matmuls reach in large batches."""
    step_seconds: float
    """Of one token for all sequences, beside the kernels: scheduling, sampling, the host."""
    sequence_seconds: float
    """That each sequence of the batch adds to it."""
    tensor_seconds: float
    """Of a tensor that is handed over, beside its bytes."""
    between_share: float
    """Of the phases' seconds, that pass between them: rewards, batches, waking and emptying memory."""
    held_bytes: float
    """Of its share of a card, beside weights and cache: CUDA graphs, activations, workspaces."""
    asleep_bytes: float
    """That stay on the card while it sleeps: its CUDA graphs and NCCL."""
    smallest_share: float
    """Of a card that an engine is given."""
    largest_share: float
    """Of a card that has nothing else on it."""
    published_steps: int
    median_error: float
    timed_phases: int
    """Of so many other steps somebody timed the phases: by how much two of those are off in the median."""
    generation_error: float
    training_error: float
    """Of those steps, each predicted with constants that its model had no part in."""
    spread: float
    """How far the seconds of generation may lie to either side, as a share."""
    source: str


@frozen
class GenerateRecord:
    """What `generate` of transformers takes, which has no engine."""

    block_seconds: float
    """Of one token through one block: its kernels are launched one by one."""
    source: str


@frozen
class UsualRollout:
    """What is taken where nobody says."""

    generations: int
    completion_tokens: int
    prompt_tokens: int
    completions: int
    """Of a step."""
    source: str


@frozen
class FittedRecord:
    """The fitted constants of an engine, as they are without the runs of a model."""

    hbm_share: float
    matmul_share: float
    step_seconds: float
    sequence_seconds: float
    tensor_seconds: float
    between_share: float


@frozen
class RolloutRecord:
    """The whole of `data/calibration/rollout.toml`."""

    engine: EngineRecord
    generate: GenerateRecord
    usual: UsualRollout
    left_out: Mapping[str, FittedRecord]
    """By the model whose runs had no part in them."""


@cache
def rollout() -> RolloutRecord:
    """Return `data/calibration/rollout.toml`."""
    return build(RolloutRecord, read("calibration", "rollout"), "calibration/rollout")
