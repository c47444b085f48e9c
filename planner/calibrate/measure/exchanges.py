"""What the ranks do together: collectives over a ladder of sizes, in the plan's own groups."""

import os
import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist

from planner.calibrate.measure.clock import Budget, calls_for
from planner.machine.document import CollectiveCurve, CollectivePoint

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
_SECONDS = 0.2
"""That one size of one operation runs back to back."""


def curves(device: torch.device, sizes: Sequence[int], budget: Budget) -> list[CollectiveCurve]:
    """Return what every operation takes: within a node, and over all nodes where there are several.

    The groups of all nodes run at the same time, as in training; seconds are the slowest rank's.
    """
    world, local = dist.get_world_size(), _ranks_per_node()
    nodes = world // local
    everyone = dist.new_group()
    groups = {1: everyone}
    if nodes > 1:
        by_node = [[*range(node * local, (node + 1) * local)] for node in range(nodes)]
        mine = dist.get_rank() // local
        groups = {1: [dist.new_group(ranks) for ranks in by_node][mine], nodes: everyone}
    found = []
    for number, group in groups.items():
        ranks = dist.get_world_size(group)
        if ranks == 1:
            continue
        for operation in OPERATIONS:
            points = tuple(_points(device, operation, group, sizes, budget))
            if points:
                found.append(
                    CollectiveCurve(operation=operation, ranks=ranks, nodes=number, points=points)
                )
    return found


def _ranks_per_node() -> int:
    """Return the processes that torchrun started on each node."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))


def _points(
    device: torch.device,
    operation: str,
    group: dist.ProcessGroup,
    sizes: Sequence[int],
    budget: Budget,
) -> Iterator[CollectivePoint]:
    ranks = dist.get_world_size(group)
    for size in sizes:
        name = f"{operation} of {size:,} B among {ranks} ranks"
        if _any(device, is_true=budget.left() <= 0):
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
        yield CollectivePoint(
            bytes=float(size), seconds=_slowest(device, _timed(device, call, calls) / calls)
        )


def _call(
    device: torch.device, operation: str, group: dist.ProcessGroup, size: int
) -> Callable[[], object]:
    """Return a call of the operation; the size is that of a rank's largest buffer."""
    ranks, mine = dist.get_world_size(group), dist.get_rank(group)
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
    return _ring(whole, group, mine, ranks)


def _ring(
    whole: torch.Tensor, group: dist.ProcessGroup, mine: int, ranks: int
) -> Callable[[], object]:
    """Return a call in which every rank sends to the next and receives from the one before."""
    other = torch.zeros_like(whole)
    after = dist.get_global_rank(group, (mine + 1) % ranks)
    before = dist.get_global_rank(group, (mine - 1) % ranks)

    def call() -> None:
        both = [
            dist.P2POp(dist.isend, whole, after, group),
            dist.P2POp(dist.irecv, other, before, group),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return call


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
    """Return the largest value of all ranks."""
    found = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found.item())


def _any(device: torch.device, *, is_true: bool) -> bool:
    """Return whether something is so on any rank."""
    return _slowest(device, float(is_true)) > 0
