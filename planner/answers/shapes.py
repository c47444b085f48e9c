"""What answers look like, for type checkers and for doors that describe them.

A part that is a record's own fields is `Annotated[Fields, Record]`.
"""

from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

from planner.advice.batch_arithmetic import BatchSplit, RunSteps, ScaledRate
from planner.advice.batch_plan import TunedRate
from planner.advice.confidence import Confidence
from planner.advice.plan import ClusterOption, SearchSummary
from planner.advice.replicas import Interval, Way
from planner.core.errors import Problem, WayOut
from planner.core.frozen import frozen
from planner.domain.cluster import Link
from planner.domain.job import Recipe
from planner.domain.model import Linear
from planner.domain.strategy import Layout
from planner.request.machine import MachineUse
from planner.request.remarks import Assumption

Fields: TypeAlias = dict[str, Any]


class TermAnswer(TypedDict):
    """A share of the memory or of the step, with its arithmetic."""

    name: str
    bytes: NotRequired[int]
    seconds: NotRequired[float]
    how: str
    source: str
    parts: NotRequired["list[TermAnswer]"]


class BatchPlanAnswer(TypedDict):
    """How a global batch is made, and what follows from it."""

    schema_version: str
    global_batch_size: int
    data_parallel_size: int
    splits: list[Annotated[Fields, BatchSplit]]
    run: Annotated[Fields, RunSteps] | None
    warmup_steps: int | None
    accelerate_schedule_ends_at_step: int | None
    tuned: Annotated[Fields, TunedRate] | None
    learning_rates: list[Annotated[Fields, ScaledRate]]
    settings: dict[str, list[str]]
    warnings: list[str]


class LocalSgdAnswer(TypedDict):
    """Local SGD: what a step takes by the interval between averages, and the smallest that is enough."""

    fixed_seconds: float
    average_seconds: float
    interval: int
    intervals: list[Annotated[Fields, Interval]]


class ReplicasAnswer(TypedDict):
    """Ways to train with a whole replica on each GPU."""

    schema_version: str
    model: "ModelName"
    strategy: Annotated[Fields, Layout]
    fits: bool
    reserved_bytes: int
    one_gpu: Annotated[Fields, Way]
    ways: list[Annotated[Fields, Way]]
    nn_data_parallel_exchanges: list["TermAnswer"]
    local_sgd: LocalSgdAnswer | None
    run_steps: float
    assumptions: list[Annotated[Fields, Assumption]]
    notes: list[str]


class FindingAnswer(TypedDict):
    """A rule that fired, and what it says."""

    code: str
    name: str
    severity: str
    message: str


class ModelName(TypedDict):
    """Which model, and how large."""

    name: str
    parameters: int


class StageMemory(TypedDict):
    """The memory of a pipeline stage's busiest rank."""

    stage: int
    peak_bytes: int
    reserved_bytes: int


class HeldMemory(TypedDict):
    """What a GPU holds: `low_bytes` and `high_bytes` surround `reserved_bytes`, the others `peak_bytes`."""

    peak_bytes: int
    reserved_bytes: int
    low_bytes: int
    high_bytes: int
    peak_low_bytes: int
    peak_high_bytes: int


class MemoryAnswer(HeldMemory):
    """The memory of the busiest rank."""

    usable_bytes: int
    phase: str
    stages: list[StageMemory]
    terms: list[TermAnswer]


class TimeAnswer(TypedDict):
    """The time of an optimizer step."""

    step_seconds: float
    low_seconds: float
    high_seconds: float
    terms: list[TermAnswer]


class HostMemoryAnswer(TypedDict):
    """The host memory of a node; null is not known."""

    training_bytes: int
    loading_bytes: int
    available_bytes: int | None
    fits: bool | None
    terms: list[TermAnswer]


class TrainingAnswer(TypedDict):
    """The whole run; null is not known."""

    tokens: int
    steps: int
    seconds: float
    start_up_seconds: float
    low_seconds: float
    high_seconds: float
    gpu_hours: float
    usd: float | None
    price_date: str | None


class CandidateAnswer(TypedDict):
    """A layout with its memory, its time, and what it needs of the host."""

    model: ModelName
    strategy: Annotated[Fields, Layout]
    family: str
    fits: bool
    memory: MemoryAnswer
    time: TimeAnswer
    training: TrainingAnswer | None
    tokens_per_second_per_gpu: float
    model_flops_utilization: float
    host_memory_bytes: int
    host_memory: HostMemoryAnswer


class Accepted(TypedDict):
    """What stands before an answer."""

    id: str | int | None
    ok: bool
    schema_version: str


class OfMachine(TypedDict):
    """Which numbers are those of the machine that the request has; absent where it has none."""

    machine: NotRequired[Annotated[Fields, MachineUse]]


class EstimateAnswer(Accepted, CandidateAnswer, OfMachine):
    """The estimate of one layout."""

    findings: list[FindingAnswer]
    assumptions: list[Annotated[Fields, Assumption]]
    notes: list[str]


class AlternativeAnswer(CandidateAnswer):
    """Another layout, and what speaks for it."""

    reason: str
    unwritten: dict[str, str]


class ClusterAnswer(TypedDict):
    """The GPUs, and what joins them."""

    gpu: str
    gpus_per_node: int
    nodes: int
    nvlink_domain_gpus: int | None
    world_size: int
    instance: str | None
    gpu_order: list[int]
    intra_node: Annotated[Fields, Link]
    inter_node: Annotated[Fields, Link] | None


@frozen
class NamedRecipe(Recipe):
    """The training run, and the framework that runs it."""

    framework: str


class JobAnswer(TypedDict):
    """What was planned for, with all that was assumed."""

    model: ModelName
    cluster: ClusterAnswer
    recipe: Annotated[Fields, NamedRecipe]


class OfferAnswer(TypedDict):
    """What is the asker's to change: another tool, other numbers, or what has launch files where the plan has none."""

    changes: dict[str, Any]
    drops_pins: bool
    reason: str
    strategy: Annotated[Fields, Layout]
    family: str
    step_seconds: float


class LaunchAnswer(TypedDict):
    """What launch files there are, and why not for others."""

    targets: list[str]
    unwritten: dict[str, str]
    instead: OfferAnswer | None
    offers: list[OfferAnswer]


class RejectedAnswer(TypedDict):
    """A layout that was not taken, and the rules against it."""

    strategy: Annotated[Fields, Layout]
    family: str
    codes: list[str]
    reasons: list[str]


class ParetoAnswer(TypedDict):
    """A layout that no other beats in both memory and time."""

    gpus: int
    strategy: Annotated[Fields, Layout]
    family: str
    step_seconds: float
    reserved_bytes: int


class WhyAnswer(TypedDict):
    """What stands against a wish, or what it would cost."""

    wish: dict[str, Any]
    strategy: Annotated[Fields, Layout] | None
    step_seconds: float | None
    layouts: int
    findings: list[FindingAnswer]
    comparison: str


class PhaseMemory(HeldMemory):
    """What a GPU holds in a phase of GRPO."""

    gpus: int


class WholeStepMemory(TypedDict):
    """The memory of the fullest GPU, and of one in each phase."""

    reserved_bytes: int
    usable_bytes: int
    phase: str
    phases: dict[str, PhaseMemory]


class WholeStepAnswer(TypedDict):
    """A step of GRPO with all its phases, by the names that a layout has for its training alone."""

    time: TimeAnswer
    memory: WholeStepMemory
    training: TrainingAnswer | None
    tokens_per_second_per_gpu: float


class RolloutSetupAnswer(TypedDict):
    """One split of the GPUs of GRPO: what each phase of a step takes, and what a GPU holds in it."""

    mode: str
    nodes: int
    generation_gpus: int
    training_gpus: int
    engines: int
    tensor_parallel_size: int
    gpu_memory_utilization: float
    sequences: int
    sequences_at_once: int
    step_seconds: float
    low_seconds: float
    high_seconds: float
    tokens_per_second: float
    training_gpus_wait_seconds: float
    generation_gpus_wait_seconds: float
    generating_bytes: int
    training_bytes: int
    strategy: Annotated[Fields, Layout]
    phases: dict[str, list[TermAnswer]]
    engine: list[TermAnswer]


class RolloutAnswer(RolloutSetupAnswer):
    """The fastest split, and the best of the others."""

    alternatives: list[RolloutSetupAnswer]
    impossible: list[str]


class SuggestionAnswer(Accepted, OfMachine):
    """A plan: the choice, what else was considered, and the findings."""

    job: JobAnswer
    chosen: CandidateAnswer
    launch: LaunchAnswer
    alternatives: list[AlternativeAnswer]
    rejected: list[RejectedAnswer]
    pareto: list[ParetoAnswer]
    findings: list[FindingAnswer]
    assumptions: list[Annotated[Fields, Assumption]]
    notes: list[str]
    options: list[Annotated[Fields, ClusterOption]]
    confidence: Annotated[Fields, Confidence]
    search: Annotated[Fields, SearchSummary]
    rollout: NotRequired[RolloutAnswer]
    """Of GRPO: where it generates; `chosen` is the training of its step alone."""
    whole_step: NotRequired[WholeStepAnswer]
    why: NotRequired[WhyAnswer]


class PartAnswer(TypedDict):
    """A part of a model, so many times."""

    name: str
    count: int
    parameters: int
    linears: list[Annotated[Fields, Linear]]


class ModelAnswer(TypedDict):
    """A model: its parameters and parts."""

    name: str
    model_type: str
    parameters: int
    active_parameters: int
    largest_layer_parameters: int
    flops_per_token_forward: float
    parts: list[PartAnswer]


class ErrorAnswer(TypedDict):
    """What is wrong with a line of a batch, where, and what to do."""

    type: str
    """Names the kind of error; stable, for programs."""
    message: str
    hint: str
    field: str
    problems: NotRequired[list[Annotated[Fields, Problem]]]
    ways_out: NotRequired[list[Annotated[Fields, WayOut]]]
    """Where nothing fits: the job as it was asked, and what was tried in its place."""


class RefusedAnswer(TypedDict):
    """A failed line of a batch."""

    id: str | int | None
    ok: bool
    error: ErrorAnswer
