"""What the ranks do together: collectives over a ladder of sizes, in the plan's own groups."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from planner.calibrate.measure.clock import Budget, calls_for
from planner.machine.document import CollectiveCurve, CollectivePoint

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
_BESIDE_COMPUTE = ("all_reduce", "all_gather", "reduce_scatter", "send_receive")
"""That data parallelism has run beside backward, and pipelines beside other chunks."""
_ASYNCHRONOUS = ("all_reduce", "send_receive")
"""Of those, on cores, which have no streams: other calls end before anything else begins."""
_SECONDS = 0.2
"""That one size of one operation runs back to back."""
_FEWEST_CALLS = 3
"""Of a size: one to warm up, one to see how long it takes, one that counts."""
_BESIDE_SECONDS, _BESIDE_SIZE, _TRIALS = 0.05, 256, 3
"""Of an operation beside matmuls: how long it lasts at the least, their rows, and how often it is tried."""
_ROOM_BESIDE = len(_BESIDE_COMPUTE) * _TRIALS * 5 * _BESIDE_SECONDS
"""Seconds for all of that, which messages leave that last longer."""


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where a group of ranks is timed, and the time for it."""

    device: torch.device
    group: dist.ProcessGroup
    budget: Budget


def curves(device: torch.device, sizes: Sequence[int], budget: Budget) -> list[CollectiveCurve]:
    """Return what every operation takes: within a node, over all nodes where there are several, in parts of a node.

    Groups of one kind run at the same time, as in training; seconds are the slowest rank's. The smallest
    messages come first, of every operation, so that a slow link leaves out the largest alone.
    """
    found = []
    for nodes, group in _groups(dist.get_world_size(), _ranks_per_node()):
        if dist.get_world_size(group) > 1:
            found += _of_group(_Bench(device, group, budget), nodes, sizes)
    return found


def _groups(world: int, local: int) -> Iterator[tuple[int, dist.ProcessGroup]]:
    """Yield this rank's groups, each with the nodes that it spans: tensor parallelism has those that are parts of a node."""
    yield 1, _mine(world, local)
    if world > local:
        yield world // local, _mine(world, world)
    part = 2
    while part < local and local % part == 0:
        yield 1, _mine(world, part)
        part *= 2


def _mine(world: int, ranks: int) -> dist.ProcessGroup:
    every: list[dist.ProcessGroup] = [
        dist.new_group([*range(first, first + ranks)]) for first in range(0, world, ranks)
    ]
    return every[dist.get_rank() // ranks]


def _ranks_per_node() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))


def _of_group(bench: _Bench, nodes: int, sizes: Sequence[int]) -> list[CollectiveCurve]:
    points: dict[str, list[CollectivePoint]] = {name: [] for name in OPERATIONS}
    for size in sizes:
        for operation, found in points.items():
            if len(found) == sizes.index(size):  # else a smaller one was left out
                found.extend(_point(bench, operation, size, found))
    return [
        CollectiveCurve(
            operation=operation,
            ranks=dist.get_world_size(bench.group),
            nodes=nodes,
            points=tuple(found),
            slowdown=_slowdown(bench, operation, found),
        )
        for operation, found in points.items()
        if found
    ]


def _point(
    bench: _Bench, operation: str, size: int, smaller: Sequence[CollectivePoint]
) -> Iterator[CollectivePoint]:
    """Yield the seconds of one size; nothing where it fails, or the time is not enough."""
    device, group, budget = bench.device, bench.group, bench.budget
    name = f"{operation} of {size:,} B among {dist.get_world_size(group)} ranks"
    expected = smaller[-1].seconds * size / smaller[-1].bytes if smaller else 0.0
    kept = _ROOM_BESIDE if expected > _BESIDE_SECONDS else 0.0
    if _any(device, is_true=budget.left() <= _FEWEST_CALLS * expected + kept):
        budget.omit(f"{name} and larger ones: no time left")
        return
    budget.show(name)
    failed = True
    with budget.trying(name):
        call = _call(device, operation, group, size)
        call()
        failed = False
    if _any(device, is_true=failed):
        return
    once = _slowest(device, _timed(device, call, 1))
    calls = calls_for(once, min(_SECONDS, max(0.0, budget.left())))
    calls = round(_slowest(device, float(calls)))
    seconds = _slowest(device, (once + _timed(device, call, calls)) / (1 + calls))
    yield CollectivePoint(bytes=float(size), seconds=seconds)


def _slowdown(bench: _Bench, operation: str, points: Sequence[CollectivePoint]) -> float | None:
    """Return the seconds that matmuls lose per second of the operation beside them; None without time for it.

        slowdown = (together - alone) / operation, of 0 to 1

    Started as training does: DDP's all-reduce and hand-overs asynchronously, others on a stream of their own.
    """
    device, budget = bench.device, bench.budget
    if operation not in _BESIDE_COMPUTE:
        return None
    if device.type == "cpu" and operation not in _ASYNCHRONOUS:
        return 1.0
    point = next((each for each in points[::-1] if each.seconds <= _BESIDE_SECONDS), points[0])
    calls = max(1, round(_BESIDE_SECONDS / point.seconds))
    lasting = calls * point.seconds
    if _any(device, is_true=budget.left() <= _TRIALS * 5 * lasting):
        return None
    budget.show(f"matmuls beside {operation}")
    product = _product(device)
    products = calls_for(_slowest(device, _timed(device, product, 20) / 20), 2 * lasting)
    products = round(_slowest(device, float(products)))
    call = _call(device, operation, bench.group, round(point.bytes))
    beside = _started(bench, operation, round(point.bytes))

    def together() -> None:
        works = [beside() for _ in range(calls)]
        for _ in range(products):
            product()
        for work in works:
            work()

    lost = []
    for _ in range(_TRIALS):
        alone = _slowest(device, _timed(device, product, products))
        spent = _slowest(device, _timed(device, call, calls))
        lost.append((_slowest(device, _timed(device, together, 1)) - alone) / spent)
    return min(1.0, max(0.0, sorted(lost)[_TRIALS // 2]))


def _product(device: torch.device) -> Callable[[], object]:
    left = torch.randn(_BESIDE_SIZE, _BESIDE_SIZE, device=device)
    right = torch.randn_like(left)
    torch.matmul(left, right)
    return lambda: torch.matmul(left, right)


def _started(bench: _Bench, operation: str, size: int) -> Callable[[], Callable[[], object]]:
    device, group = bench.device, bench.group
    if operation == "all_reduce":
        whole = torch.zeros(max(1, size // 4), device=device)
        return lambda: partial(_end, [dist.all_reduce(whole, group=group, async_op=True)])
    if operation == "send_receive":
        both = _ring(torch.zeros(max(1, size // 4), device=device), group)
        return lambda: partial(_end, dist.batch_isend_irecv(both))
    cuda: Any = torch.cuda
    stream, call = cuda.Stream(device), _call(device, operation, group, size)

    def start() -> Callable[[], object]:
        with torch.cuda.stream(stream):
            call()
        return lambda: _wait(device)

    return start


def _end(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


def _call(
    device: torch.device, operation: str, group: dist.ProcessGroup, size: int
) -> Callable[[], object]:
    """Return a call of the operation; the size is that of a rank's largest buffer."""
    ranks = dist.get_world_size(group)
    number = max(ranks, size // 4 // ranks * ranks)
    whole = torch.zeros(number, device=device)
    part = torch.zeros(number // ranks, device=device)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if operation == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if operation == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    if operation == "all_to_all":
        other = torch.zeros_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=group)
    both = _ring(whole, group)
    return lambda: _end(dist.batch_isend_irecv(both))


def _ring(whole: torch.Tensor, group: dist.ProcessGroup) -> list[dist.P2POp]:
    mine, ranks = dist.get_rank(group), dist.get_world_size(group)
    after, before = (dist.get_global_rank(group, (mine + way) % ranks) for way in (1, -1))
    return [
        dist.P2POp(dist.isend, whole, after, group),
        dist.P2POp(dist.irecv, torch.zeros_like(whole), before, group),
    ]


def _timed(device: torch.device, call: Callable[[], object], calls: int) -> float:
    _wait(device)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _slowest(device: torch.device, value: float) -> float:
    found = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found.item())


def _any(device: torch.device, *, is_true: bool) -> bool:
    return _slowest(device, float(is_true)) > 0
