"""What one machine was measured to do, put in place of the catalogue's figures: nearer wins, and each is named."""

import math
from collections.abc import Sequence
from dataclasses import replace

from planner.catalog import records
from planner.core.errors import InvalidInputError, UnknownNameError
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_fraction
from planner.domain.cluster import Cluster, Gpu
from planner.domain.framework import Framework
from planner.domain.timed import FLASH_BACKWARD, TimedAttention
from planner.domain.uncertainty import Uncertainty
from planner.machine.document import Anchors, AttentionCurve, Machine
from planner.machine.factors import factors_of, narrowed, scaled_cluster, scaled_framework
from planner.machine.gemm_fit import aligned, fitted_curve
from planner.machine.own_gpu import COPY_SHARE, CORES
from planner.machine.wires import timed_collectives, wired

_FIRST_DTYPES = ("bf16", "fp16", "tf32", "fp32")
"""Whose products make the curve, where several dtypes were timed."""
_HOST_OF = "torch"
"""The framework record whose host launches as PyTorch's eager operations do."""


@frozen
class Applied:
    """A cluster and a framework with a machine's own figures."""

    cluster: Cluster
    framework: Framework
    own: tuple[str, ...]
    """Which figures are the machine's own, in words."""
    from_catalogue: tuple[str, ...]
    """Which it has none of."""
    notes: tuple[str, ...] = ()


def apply_machine(machine: Machine, cluster: Cluster, framework: Framework) -> Applied:
    """Return a job's cluster and framework with what was measured of that machine.

    Raises:
        InvalidInputError: the machine has other GPUs than the cluster.
    """
    check_gpu(machine, cluster.gpu)
    source = source_of(machine)
    gpu, own, notes = _own_gpu(machine, cluster.gpu, source)
    framework, launched = _own_host(machine, framework)
    framework = _sustaining(framework) if "matmuls" in own else framework
    cluster = replace(cluster, gpu=gpu)
    curves = timed_collectives(machine.collectives)
    fitting = [each for each in curves if _is_of(cluster, each.ranks, each.ranks_in_node)]
    if fitting:
        cluster = wired(cluster, fitting, source)
        own["collectives"] = "collectives among " + _counts({each.ranks for each in fitting})
    own |= launched
    missing = [name for name in _parts(cluster) if name not in own]
    own |= _anchored(machine.anchors)
    applied_cluster = scaled_cluster(cluster, factors_of(machine.anchors))
    changed = scaled_framework(framework, factors_of(machine.anchors))
    share = machine.anchors.range_share or 1.0
    return Applied(
        cluster=_narrowed_gpu(applied_cluster, share),
        framework=_reserving(
            replace(changed, uncertainty=_known_host(machine.anchors, changed, share)), machine
        ),
        own=tuple(own.values()),
        from_catalogue=tuple(missing),
        notes=(*notes, *_unknown_memory(machine, gpu), *_other_sizes(machine, cluster)),
    )


def check_gpu(machine: Machine, gpu: Gpu) -> None:
    """Refuse a machine with other GPUs.

    Raises:
        InvalidInputError: says which both are.
    """
    measured = machine.cluster.gpu
    try:
        name = records.gpu(measured).name
    except UnknownNameError:
        name = measured
    if name != gpu.name:
        raise InvalidInputError(
            f"the machine has {name} GPUs, and the job asks for {gpu.name}",
            hint=f"plan for {name}, or leave the machine out",
            field="machine.cluster.gpu",
        )


def source_of(machine: Machine) -> str:
    """Return what a figure of the machine names as its source."""
    name = f" {machine.name}" if machine.name else ""
    return f"measured on machine{name}, {machine.created}"


def _own_gpu(machine: Machine, gpu: Gpu, source: str) -> tuple[Gpu, dict[str, str], list[str]]:
    """Return the GPU with the machine's rates, what they are, and what could not be used."""
    own: dict[str, str] = {}
    notes = []
    if machine.memory_bytes_per_second:
        gpu = replace(gpu, hbm_bytes_per_second=machine.memory_bytes_per_second / COPY_SHARE)
        own["memory bandwidth"] = "memory bandwidth"
    by_dtype = {curve.dtype: curve.points for curve in machine.gemm if curve.points}
    known = [dtype for dtype in (*_FIRST_DTYPES, *by_dtype) if dtype in gpu.peak_flops]
    dtype = next((each for each in known if each in by_dtype), "")
    if dtype:
        curve = fitted_curve(gpu, dtype, aligned(by_dtype[dtype]), source)
        # What was timed was timed under the card's own power limit.
        gpu = replace(gpu, gemm=curve, full_watts=gpu.tdp_watts)
        own["matmuls"] = f"matmuls in {dtype}"
    elif by_dtype:
        notes.append(f"{gpu.name} has no peak in {', '.join(by_dtype)}: those matmuls are not used")
    attention = tuple(
        _attention(gpu, curve)
        for curve in machine.attention
        if curve.points and curve.dtype in gpu.peak_flops
    )
    if attention:
        gpu = replace(gpu, timed_attention=attention)
        own["attention"] = "attention"
    if machine.host_to_device_bytes_per_second:
        rate = machine.host_to_device_bytes_per_second
        gpu = replace(gpu, host_link_bytes_per_second=rate)
        own["copies to the host"] = "copies to the host"
    if machine.optimizer_bytes_per_second:
        gpu = replace(gpu, optimizer_bytes_per_second=machine.optimizer_bytes_per_second)
        own["the optimizer"] = "the optimizer"
    return gpu, own, notes


def _attention(gpu: Gpu, curve: AttentionCurve) -> TimedAttention:
    """Return the shares of the peak that timed attention reached.

    forward = 4 b a s^2 d / 2 if causal / seconds / peak;  backward: 2.5 times the FLOPs
    """
    peak = gpu.peak_flops[curve.dtype]
    by_length = {point.sequence_length: point for point in curve.points}
    points = [by_length[length] for length in sorted(by_length)]
    flops = [
        (2.0 if curve.causal else 4.0) * p.batch * p.heads * p.sequence_length**2 * curve.head_size
        for p in points
    ]
    pairs = list(zip(points, flops, strict=True))
    return TimedAttention(
        dtype=curve.dtype,
        is_causal=curve.causal,
        head_size=curve.head_size,
        sequence_lengths=tuple(point.sequence_length for point in points),
        forward=tuple(each / point.forward_seconds / peak for point, each in pairs),
        backward=tuple(
            FLASH_BACKWARD * each / point.backward_seconds / peak for point, each in pairs
        ),
    )


def _sustaining(framework: Framework) -> Framework:
    """Return the framework whose matmuls keep what they have alone, as far as PyTorch's own do.

    They are timed for longer than a card takes to reach its power limit, which is what the share that
    a run sustains of catalogue figures stands for; one H100 kept all of it through GPT-2's steps.
    """
    usual = records.framework(_HOST_OF).matmul.sustained_fraction
    share = min(1.0, framework.matmul.sustained_fraction / usual)
    return replace(framework, matmul=replace(framework.matmul, sustained_fraction=share))


def _own_host(machine: Machine, framework: Framework) -> tuple[Framework, dict[str, str]]:
    """Return the framework on this machine's host.

        operation = operation of the framework * sqrt(launch / usual launch)

    Notation: launch of the smallest operation, usual of the hosts that eager PyTorch's operations were timed on.
    Python's share of an operation differs less than the driver's: where a launch took 9.4 and 6.7 us, GPT-2's
    operations took 42 and 36 ms (data/measurements/runs/h100_one_gpu.json, h200_one_gpu.json).
    Cores that stand for GPUs launch their own work, in what was timed: it adds to the work, all of it.
    """
    host, launch = framework.host, machine.launch_seconds
    if _is_of_cores(machine):
        host = replace(host, sharpness=1.0, operation_seconds=launch or host.operation_seconds)
    elif launch:
        slower = math.sqrt(launch / records.framework(_HOST_OF).host.launch_seconds)
        host = replace(host, operation_seconds=slower * host.operation_seconds)
    return replace(framework, host=host), {"launches": "launches"} if launch else {}


def _is_of(cluster: Cluster, ranks: int, ranks_in_node: int) -> bool:
    return ranks <= cluster.world_size and ranks_in_node <= cluster.joined_gpus


def _parts(cluster: Cluster) -> tuple[str, ...]:
    parts = ("matmuls", "attention", "memory bandwidth", "the optimizer", "launches")
    wires = ("collectives",) if cluster.world_size > 1 else ()
    return (*parts, *wires, "copies to the host")


def _anchored(anchors: Anchors) -> dict[str, str]:
    words = {
        "compute": "kernels",
        "adapters": "kernels with adapters besides",
        "communication": "exchanges",
        "host": "the host",
    }
    return {
        f"anchor {name}": f"{word} x {anchor.factor:.2f} (+-{format_fraction(anchor.spread)}, by {_runs(anchor.runs)})"
        for name, word in words.items()
        if (anchor := getattr(anchors, name)) is not None
    }


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"


def _counts(ranks: set[int]) -> str:
    return ", ".join(map(str, sorted(ranks))) + " ranks"


def _known_host(anchors: Anchors, framework: Framework, share: float) -> Uncertainty:
    left = narrowed(framework.uncertainty, share)
    if anchors.host is None:
        return left
    return replace(left, host=min(left.host, anchors.host.spread))


def _narrowed_gpu(cluster: Cluster, share: float) -> Cluster:
    curve = replace(cluster.gpu.gemm, spread=cluster.gpu.gemm.spread * share)
    return replace(cluster, gpu=replace(cluster.gpu, gemm=curve))


def _is_of_cores(machine: Machine) -> bool:
    return machine.cluster.gpu.startswith(CORES)


def _reserving(framework: Framework, machine: Machine) -> Framework:
    """Return the framework with what a process of this machine takes of a GPU besides."""
    anchor = machine.anchors.memory
    if _is_of_cores(machine):  # no CUDA there
        framework = replace(framework, device=replace(framework.device, context_bytes=0.0))
    if anchor is None:
        return framework
    held = max(0.0, framework.device.context_bytes + anchor.more_bytes)
    return replace(framework, device=replace(framework.device, context_bytes=held))


def _unknown_memory(machine: Machine, gpu: Gpu) -> Sequence[str]:
    if gpu.nvml_names or machine.cluster.memory_bytes or gpu.name in records.gpu_names():
        return ()
    taken = format_bytes(gpu.memory_bytes)
    return (
        f"how much memory one {gpu.name} has was not said (cluster.memory_bytes): {taken} taken",
    )


def _other_sizes(machine: Machine, cluster: Cluster) -> Sequence[str]:
    """Return a note where the cluster is not as large as what was measured."""
    measured = machine.cluster.gpus_per_node * machine.cluster.nodes
    if machine.anchors.communication is None or measured == cluster.world_size:
        return ()
    sizes = f"with {measured} GPUs, and this is for {cluster.world_size}"
    return (f"the machine was measured {sizes}: what it says of exchanges may not hold",)
