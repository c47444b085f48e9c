"""The measuring program: every rank measures its device, all of them their exchanges; rank 0 writes machine.json."""

import argparse
import datetime as dt
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from planner import __version__
from planner.calibrate.measure import exchanges, kernels
from planner.calibrate.measure.clock import Budget, Clock
from planner.calibrate.measure.tasks import Tasks, read_tasks
from planner.core.errors import PlannerError
from planner.core.units import format_percent
from planner.machine.document import CollectiveCurve, Hardware, Machine
from planner.machine.writing import write_machine

BUDGET_SECONDS = 180.0
_SHARES = {"small": 0.15, "exchanges": 0.4, "attention": 0.3, "matmuls": 0.85}
"""Of the time that is left when it begins: what has few sizes comes first, matmuls get the rest."""
CPU = "cpu"
"""What a machine file calls the cores of a host that stand for accelerators."""


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and write machine.json; an error ends this rank, and with it torchrun all others."""
    args = _arguments(words)
    try:
        measure(args)
    except PlannerError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from None


def measure(args: argparse.Namespace) -> None:
    """Measure what the file of tasks asks for, as far as the time goes."""
    tasks, device = read_tasks(args.tasks), _join(is_cpu=args.cpu)
    is_first = _number("RANK", 0) == 0
    budget = Budget(args.budget, is_shown=is_first)
    machine = _machine(args, tasks, Clock(device), budget)
    if is_first:
        write_machine(machine, args.output)
        if _number("WORLD_SIZE", 1) > _number("LOCAL_WORLD_SIZE", 1):
            budget.say(f"wrote {args.output}")  # of one node, who started it says where
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _number(name: str, otherwise: int) -> int:
    """Return what torchrun says of this process; without it there is one."""
    return int(os.environ.get(name, otherwise))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m planner.calibrate.measure",
        description="Measure this machine; under torchrun, all ranks and their exchanges.",
    )
    add = parser.add_argument
    add(
        "--tasks", type=Path, required=True, help="written by planner calibrate --measure --nodes N"
    )
    add("--output", "-o", type=Path, default=Path("machine.json"))
    add("--budget", type=float, default=BUDGET_SECONDS, help="seconds in all")
    add("--name", default="", help="of the machine, for its file")
    add("--cpu", action="store_true", help="measure cores in place of GPUs")
    return parser.parse_args(words)


def _join(*, is_cpu: bool) -> torch.device:
    """Join the other processes, where there are any; return this process's device."""
    if not is_cpu and not torch.cuda.is_available():
        raise PlannerError(
            "PyTorch finds no GPU here", hint="--cpu measures the host's cores in their place"
        )
    device = torch.device("cpu") if is_cpu else torch.device("cuda", _number("LOCAL_RANK", 0))
    if is_cpu:
        _take_one_core()
    else:
        torch.cuda.set_device(device)
    if _number("WORLD_SIZE", 1) > 1:
        dist.init_process_group("gloo" if is_cpu else "cpu:gloo,cuda:nccl")
    return device


def _take_one_core() -> None:
    """Keep this process on one of the cores that it may use: none that another of this node has, if there are enough."""
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(cores) >= _number("LOCAL_WORLD_SIZE", 1):
        os.sched_setaffinity(0, {cores[_number("LOCAL_RANK", 0)]})


def _machine(args: argparse.Namespace, tasks: Tasks, clock: Clock, budget: Budget) -> Machine:
    """Return what was measured; what failed or had no time is left out, and said on stderr."""
    world = _number("WORLD_SIZE", 1)
    local = _number("LOCAL_WORLD_SIZE", world)
    is_cpu = clock.device.type == "cpu"
    rates = [_rates(tasks, clock, budget)]
    collectives: list[CollectiveCurve] = []
    if world > 1:
        budget.open(_SHARES["exchanges"])
        collectives = exchanges.curves(clock.device, tasks.message_bytes, budget)
    budget.open(_SHARES["attention"])
    attention = kernels.attention(clock, tasks.attention, budget)
    rates += _again(tasks, clock, budget)
    budget.open(_SHARES["matmuls"])
    gemm = kernels.matmuls(clock, tasks.matmuls, budget)
    rates += _again(tasks, clock, budget)
    mine = Machine(
        created=dt.datetime.now(dt.UTC).date().isoformat(),
        name=args.name,
        planner=__version__,
        software=_software(is_cpu=is_cpu),
        cluster=Hardware(
            gpu=CPU if is_cpu else torch.cuda.get_device_name(clock.device),
            gpus_per_node=local,
            nodes=world // local,
            memory_bytes=_host_bytes() / local if is_cpu else None,
        ),
        gemm=gemm,
        attention=attention,
        collectives=tuple(collectives),
        **_medians(rates),
    )
    return slowest_of(_of_all_ranks(mine), budget) if world > 1 else mine


def _of_all_ranks(mine: Machine) -> list[Machine]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def slowest_of(machines: Sequence[Machine], budget: Budget) -> Machine:
    """Return what the rank measured whose matmuls take longest in all, of those that every rank timed: a step waits for it."""
    timed = [
        {(curve.dtype, p.m, p.n, p.k): p.seconds for curve in each.gemm for p in curve.points}
        for each in machines
    ]
    common = set[tuple[str, int, int, int]].intersection(*map(set, timed))
    totals = [sum(each[shape] for shape in common) for each in timed]
    if not common:
        return machines[0]
    rank = totals.index(max(totals))
    budget.say(
        f"the figures are rank {rank}'s, the slowest: its matmuls take"
        f" {format_percent(max(totals) / min(totals) - 1)} longer than the fastest rank's"
    )
    return machines[rank]


def _again(tasks: Tasks, clock: Clock, budget: Budget) -> list[dict[str, float]]:
    """Return the single figures once more, where there is time: what disturbs the machine for a while spoils one of them."""
    budget.open(_SHARES["small"])
    return [_rates(tasks, clock, budget)] if budget.left() > 0 else []


def _medians(rates: Sequence[dict[str, float]]) -> dict[str, Any]:
    return {name: median(each[name] for each in rates if name in each) for name in rates[0]}


def _rates(tasks: Tasks, clock: Clock, budget: Budget) -> dict[str, float]:
    """Return the machine's single figures by their names in the file."""
    budget.open(_SHARES["small"])
    wanted = {
        "memory_bytes_per_second": kernels.memory_bytes_per_second,
        "launch_seconds": kernels.launch_seconds,
        "optimizer_bytes_per_second": lambda clock: kernels.optimizer_bytes_per_second(
            clock, tasks.optimizer_parameters
        ),
    }
    if clock.device.type == "cuda":
        wanted["host_to_device_bytes_per_second"] = kernels.host_to_device_bytes_per_second
    found = {}
    for name, call in wanted.items():
        budget.show(name.replace("_", " "))
        with budget.trying(name):
            found[name] = call(clock)
    return found


def _software(*, is_cpu: bool) -> dict[str, str]:
    found = {"torch": str(torch.__version__)}
    if not is_cpu:
        found["cuda"] = str(torch.version.cuda)
        nccl: Any = torch.cuda.nccl
        version: Any = nccl.version
        with suppress(RuntimeError, AttributeError):
            found["nccl"] = ".".join(str(number) for number in version())
    return found


def _host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
