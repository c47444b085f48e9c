"""Why a run was not as planned, and what to try: by a trace where there is one, else by the plan's own doubt."""

from collections.abc import Mapping
from types import MappingProxyType

from planner import answers
from planner.calibrate.logs.kineto import Busy
from planner.core.errors import PlannerError
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_fraction, format_seconds
from planner.request.schema import parse_request
from planner.step_time.doubt import Cause
from planner.step_time.terms import COMMUNICATION, StepTerm
from planner.verify.planned import Planned

_CLOCKS = "compare the GPU's clock and power limit (nvidia-smi -q -d CLOCK,POWER) and look for other processes on it"
_HOST = "look for processes that wait for data or for the CPU (py-spy dump --pid PID); plan with --compile"
_WIRES = "measure the links: nccl-tests' all_reduce_perf on these GPUs, then planner calibrate --from its output"
_MORE = "a trace says which: bash launch.sh --profile trace, then --trace on one of its files"
_BY_CAUSE: Mapping[Cause, tuple[str, str]] = MappingProxyType(
    {
        Cause.KERNELS: ("what training keeps of a kernel's speed", _CLOCKS),
        Cause.CURVE: ("the matmul curve of this GPU", _CLOCKS),
        Cause.MEMORY_BOUND: (
            "elementwise kernels and the optimizer",
            "plan with --compile",
        ),
        Cause.HOST: ("how fast the host launches", _HOST),
        Cause.NETWORK: ("the network", _WIRES),
        Cause.OFFLOAD: (
            "the host's memory and CPUs",
            "pin the processes to the GPU's own NUMA node",
        ),
        Cause.ADAPTERS: ("matmuls beside frozen weights", _CLOCKS),
        Cause.KIND: ("what such jobs are off by elsewhere", _MORE),
        Cause.RELEASE: (
            "the framework's release",
            "plan again with --framework-version of what is installed",
        ),
    }
)
_COMPUTED = (StepTerm.FORWARD, StepTerm.BACKWARD, StepTerm.OPTIMIZER)
_SHOWN, _MOST = 3, 2
_PROFILED = "torchrun"
"""The target whose train.py takes --profile."""


@frozen
class Part:
    """One kind of work in a traced step, in seconds."""

    name: str
    measured: float
    planned: float
    attempt: str
    """What to try where it takes longer."""


@frozen
class Reason:
    """One thing that explains a difference."""

    name: str
    text: str
    attempt: str
    """What to try."""


_DIVERGED = Reason(
    name="loss",
    text="such a run learns nothing more, as fast as it is",
    attempt="a lower learning rate or a longer warm-up, gradients clipped, bf16-mixed in place of fp16; and look at the data",
)


def reasons(
    planned: Planned, failed: Mapping[str, float | None], busy: Busy | None
) -> tuple[Reason, ...]:
    """Return what explains most of what is not as planned.

    Args:
        planned: the plan.
        failed: measured amounts that are not as planned, by the name of their check.
        busy: what a trace says that the GPU did.
    """
    found: list[Reason] = []
    if failed.get("step"):
        found += _by_trace(planned, busy) if busy else _by_doubt(planned)
    for name, amounts in (("allocated", planned.peak_bytes), ("reserved", planned.reserved_bytes)):
        measured = failed.get(name)
        if measured is not None:
            found.append(_memory(planned, name, measured, is_more=measured > amounts.low))
            break
    if "memory" in failed:
        found.append(_memory(planned, "memory", None, is_more=True))
    if "loss" in failed:
        found.append(_DIVERGED)
    return tuple(found)


def parts(planned: Planned, busy: Busy) -> tuple[Part, ...]:
    """Return what a trace says of each kind of work in a step, beside the plan: in the open, not what is hidden.

    Kernels that compute stand beside forward, backward and the optimizer; exchanges beside all that they cost;
    what no kernel fills beside the pipeline's bubble.
    """
    computing = sum(planned.terms.get(name, 0.0) for name in _COMPUTED)
    exchanging = sum(planned.terms.get(name, 0.0) for name in COMMUNICATION)
    idle = planned.terms.get(StepTerm.PIPELINE_BUBBLE, 0.0)
    exposed = busy.exposed_communication_seconds
    return (
        Part(name="computing", measured=busy.compute_seconds, planned=computing, attempt=_CLOCKS),
        Part(name="exchanges", measured=exposed, planned=exchanging, attempt=_WIRES),
        Part(name="idle", measured=busy.idle_seconds, planned=idle, attempt=_HOST),
    )


def _by_trace(planned: Planned, busy: Busy) -> list[Reason]:
    over = [part for part in parts(planned, busy) if part.measured > part.planned]
    return [
        Reason(
            name=part.name,
            text=f"{part.name}: {format_seconds(part.measured)} of a traced step,"
            f" planned {format_seconds(part.planned)}",
            attempt=part.attempt,
        )
        for part in sorted(over, key=lambda part: part.planned - part.measured)[:_MOST]
    ]


def _by_doubt(planned: Planned) -> list[Reason]:
    """Return the causes that the plan is least sure of: a cause's share is of the squares; of GRPO the longest phase."""
    if planned.generates:
        return [_largest_term(planned)]
    try:
        _, candidate = answers.estimate_request(
            parse_request(dict(planned.request)), allow_paths=True
        )
    except PlannerError:
        return [_largest_term(planned)]
    squares = {cause: float(width) ** 2 for cause, width in candidate.step_time.doubts.items()}
    together = sum(squares.values())
    if not together:
        return [_largest_term(planned)]
    largest = max(squares, key=squares.__getitem__)
    words, attempt = _BY_CAUSE[largest]
    share = format_fraction(squares[largest] / together)
    return [
        Reason(
            name=str(largest), text=f"{share} of the plan's doubt is in {words}", attempt=attempt
        ),
        *_traceable(planned),
    ]


def _traceable(planned: Planned) -> list[Reason]:
    """Return that a trace would say more, of files that write one."""
    if not _has_profile(planned):
        return []
    said = "which part takes longer, the log does not say"
    return [Reason(name="trace", text=said, attempt=_MORE)]


def _has_profile(planned: Planned) -> bool:
    targets = planned.data.get("launch", {}).get("targets")
    return isinstance(targets, list) and _PROFILED in targets


def _largest_term(planned: Planned) -> Reason:
    name = max(planned.terms, key=planned.terms.__getitem__, default="step")
    seconds = format_seconds(planned.terms.get(name, planned.step_seconds.likely))
    attempt = _MORE if _has_profile(planned) else _CLOCKS
    return Reason(name=name, text=f"the largest term is {_words(name)}, {seconds}", attempt=attempt)


def _memory(planned: Planned, name: str, measured: float | None, *, is_more: bool) -> Reason:
    largest = sorted(planned.memory_terms.items(), key=lambda item: -item[1])[:_SHOWN]
    terms = ", ".join(f"{_words(term)} {format_bytes(amount)}" for term, amount in largest)
    if measured is None:
        text = f"more was needed than there is; planned most: {terms}"
    else:
        text = f"{name} {format_bytes(measured)}; planned most: {terms}"
    attempt = (
        _less_memory(planned)
        if is_more
        else "there is room: a larger micro-batch, or less recompute"
    )
    return Reason(name=name, text=text, attempt=attempt)


def _less_memory(planned: Planned) -> str:
    """Return what takes less memory, as far as the plan does not do it already."""
    less = ["lower the micro-batch"] if planned.micro_batch_size != 1 else []
    if planned.recompute != "full":
        less.append("plan with --recompute full")
    if not less:
        less.append("plan with --offload optimizer, shorter sequences or on more GPUs")
    trace = "; --profile trace shows what is held" if _has_profile(planned) else ""
    return f"{', or '.join(less)}{trace}"


def _words(term: str) -> str:
    return term.replace("_", " ")
