"""machine.json: what was measured of one machine, as dataclasses; every value in base units.

Only its kind, its version and what the machine is must be there: what was not measured is left out, and the
catalogue's figures stand for it. `planner.machine.reading` reads a file, `planner.machine.writing` writes one.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from planner.core.frozen import frozen
from planner.core.strict_records import Between, Few, Line

KIND = "planner-machine"
VERSION = 1


class Nested:
    """A JSON object of so many levels at most; its reader knows what it holds."""

    deepest = 20

    def holds(self, value: Any, left: int = deepest) -> bool:
        """Return whether one is."""
        if not isinstance(value, Mapping | list):
            return True
        inner = value.values() if isinstance(value, Mapping) else value
        return all(left > 0 and self.holds(each, left - 1) for each in inner)


Text = Annotated[str, Line(200)]
Request = Annotated[Mapping[str, Any], Nested()]

Count = Annotated[int, Between(1, 2**31)]
Bytes = Annotated[float, Between(1, 2**60)]
Seconds = Annotated[float, Between(1e-9, 1e9)]
BytesPerSecond = Annotated[float, Between(1e3, 1e17)]
Factor = Annotated[float, Between(0.02, 50)]
Spread = Annotated[float, Between(0, 10)]


@frozen
class Hardware:
    """Which GPUs were measured, and how many of them."""

    gpu: Text
    """A canonical name, an alias, or what NVML reports."""
    gpus_per_node: Annotated[int, Between(1, 1024)]
    nodes: Annotated[int, Between(1, 65536)] = 1
    memory_bytes: Bytes | None = None
    """Of one, where no record has it: of a process's share of the host, where cores stand for GPUs."""


@frozen
class GemmPoint:
    """One product of an m x k and a k x n matrix."""

    m: Count
    n: Count
    k: Count
    seconds: Seconds


@frozen
class GemmCurve:
    """Products in one dtype."""

    dtype: Text
    """As the GPU's record names its peaks: bf16, fp16, tf32, fp32, fp8."""
    points: Annotated[tuple[GemmPoint, ...], Few(2000)]


@frozen
class AttentionPoint:
    """Attention of one size, forward and backward."""

    batch: Count
    heads: Count
    sequence_length: Count
    forward_seconds: Seconds
    backward_seconds: Seconds


@frozen
class AttentionCurve:
    """Attention in one dtype with one size of heads."""

    dtype: Text
    causal: bool
    head_size: Count
    points: Annotated[tuple[AttentionPoint, ...], Few(2000)]


@frozen
class CollectivePoint:
    """One size of message; bytes as nccl-tests counts them: of the largest buffer of a rank."""

    bytes: Bytes
    seconds: Seconds


@frozen
class CollectiveCurve:
    """One collective operation among so many ranks, spread evenly over so many nodes."""

    operation: Text
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_receive."""
    ranks: Annotated[int, Between(2, 2**20)]
    nodes: Annotated[int, Between(1, 65536)] = 1
    points: Annotated[tuple[CollectivePoint, ...], Few(2000)]
    slowdown: Annotated[float, Between(0, 1)] | None = None
    """Seconds that compute beside it loses per second of it: 1 where nothing runs beside it."""


@frozen
class MeasuredRun:
    """One training run of this machine: what was asked of the planner, and what was measured."""

    request: Request
    """An estimate request of the wire contract; whoever uses it parses it."""
    step_seconds: Seconds | None = None
    peak_bytes: Bytes | None = None
    """Allocated, on the fullest rank."""
    reserved_bytes: Bytes | None = None
    source: Text = ""
    """Where it comes from, such as `trainer log run3.log`."""


@frozen
class Anchor:
    """What runs say of one kind of work: seconds of this machine over the planner's own estimate."""

    factor: Factor
    spread: Spread
    """How far the factor may still be off, as a fraction of it."""
    runs: Annotated[int, Between(1, 2**31)]


@frozen
class MemoryAnchor:
    """What a GPU of this machine reserves beyond what the planner says, of the fullest rank."""

    more_bytes: Annotated[float, Between(-(2**50), 2**50)]
    """Below 0 where it reserves less."""
    spread_bytes: Annotated[float, Between(0, 2**50)]
    runs: Annotated[int, Between(1, 2**31)]


@frozen
class Anchors:
    """What the runs say, by kind of work; None where they say nothing of it."""

    compute: Anchor | None = None
    adapters: Anchor | None = None
    """Of trainings with LoRA or QLoRA alone, beside `compute`."""
    communication: Anchor | None = None
    host: Anchor | None = None
    memory: MemoryAnchor | None = None
    range_share: Annotated[float, Between(0.05, 5)] | None = None
    """What is left of the width of a step's range, by how well each run was predicted from the others."""


@frozen
class Machine:
    """What one machine.json holds, its kind and version left out."""

    created: Text
    """A date, YYYY-MM-DD."""
    cluster: Hardware
    name: Text = ""
    planner: Text = ""
    """The planner's version that wrote it."""
    software: Annotated[Mapping[Text, Text], Few(100)] = field(default_factory=dict)
    """Versions by package: torch, nccl, driver ..."""
    gemm: Annotated[tuple[GemmCurve, ...], Few(20)] = ()
    attention: Annotated[tuple[AttentionCurve, ...], Few(50)] = ()
    memory_bytes_per_second: BytesPerSecond | None = None
    """That a large copy on the device reads and writes."""
    launch_seconds: Seconds | None = None
    """That the host takes to launch one operation."""
    host_to_device_bytes_per_second: BytesPerSecond | None = None
    optimizer_bytes_per_second: BytesPerSecond | None = None
    """That an optimizer step reads and writes."""
    collectives: Annotated[tuple[CollectiveCurve, ...], Few(200)] = ()
    runs: Annotated[tuple[MeasuredRun, ...], Few(1000)] = ()
    anchors: Anchors = field(default_factory=Anchors)
