"""Different GPUs in one node, planned as if each were the smallest and slowest of them."""

import re
from collections.abc import Sequence
from dataclasses import replace

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_flops, format_fraction
from planner.domain.cluster import Gpu

LARGEST_NODE = 1024
"""GPUs."""

_PART = re.compile(
    r"(?:(?P<before>[0-9]{1,4}) ?[x*] ?)?(?P<name>[^:,]+?)(?::(?P<after>[0-9]{1,4}))?"
)
_COUNTED = re.compile(r"[0-9]{1,4} ?[x*] ?\S")


@frozen
class GpuCount:
    """The cards of one model in a node."""

    gpu: Gpu
    count: int


def is_list(text: str) -> bool:
    """Return whether a GPU is given with counts: `rtx-3090:2,rtx-3060:1`, or `2x3090`."""
    return ":" in text or "," in text or bool(_COUNTED.match(text.strip().lower()))


def read_gpu_counts(text: str) -> tuple[GpuCount, ...]:
    """Read `NAME:COUNT,NAME:COUNT` or `COUNTxNAME`; a missing count is 1, and equal names are added.

    Raises:
        InvalidInputError: it cannot be read, or the cards are of several vendors.
        UnknownNameError: no GPU has that name.
    """
    counts: dict[str, int] = {}
    for item in text.split(","):
        match = _PART.fullmatch(item.strip().lower())
        if match is None or (match["before"] and match["after"]):
            raise _invalid(f"cannot read {item.strip()[:60]!r} in the list of GPUs")
        typed, count = match["name"], match["before"] or match["after"] or "1"
        if int(count) > LARGEST_NODE and typed.isdigit():  # 3090x2
            typed, count = count, typed
        name = records.gpu(typed).name
        counts[name] = counts.get(name, 0) + int(count)
    if min(counts.values()) < 1 or sum(counts.values()) > LARGEST_NODE:
        raise _invalid(f"a node has 1 to {LARGEST_NODE:,} GPUs, and at least one of each named")
    gpu_counts = tuple(
        GpuCount(gpu=records.gpu(name), count=count) for name, count in counts.items()
    )
    vendors = sorted({gpu_count.gpu.vendor for gpu_count in gpu_counts})
    if len(vendors) > 1:
        raise _invalid(f"GPUs of {' and '.join(vendors)} cannot share a job")
    return gpu_counts


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(
        message, hint="NAME:COUNT,NAME:COUNT, such as rtx-3090:2,rtx-3060:1", field="cluster.gpu"
    )


def governing_gpu(gpu_counts: Sequence[GpuCount]) -> Gpu:
    """Return one card that is as small and as slow as the least of the parts in every respect.

    Ranks of one job hold equal shares and wait for each other, so the least memory, peak and
    bandwidth govern. NVLink bridges and XGMI join cards of one model, and the driver gives peer
    access to pairs of one model only; NVLink therefore counts only through a common switch.

    Source: peer access between models refused: aikitoria/open-gpu-kernel-modules #13 and its
        pull request #5.
    Leaves out: uneven shards and uneven micro-batches, which no framework here offers.
    """
    gpus = [gpu_count.gpu for gpu_count in gpu_counts]
    first = gpus[0]
    if len(gpus) == 1:
        return first
    shares_switch = {(g.nvlink_fabric, g.nvlink_generation) for g in gpus} == {
        ("nvswitch", first.nvlink_generation)
    }
    slowest_slot = min(gpus, key=_slot_speed)
    dtypes = set.intersection(*(set(gpu.peak_flops) for gpu in gpus))
    return replace(
        first,
        name=f"mixed: {_listed(gpu_counts)}",
        nvml_names=(),
        aliases=(),
        memory_bytes=min(gpu.memory_bytes for gpu in gpus),
        usable_bytes=min(gpus, key=lambda gpu: gpu.memory_bytes).usable_bytes,
        peak_flops={dtype: min(g.peak_flops[dtype] for g in gpus) for dtype in sorted(dtypes)},
        hbm_bytes_per_second=min(gpu.hbm_bytes_per_second for gpu in gpus),
        compute_capability=min((g.compute_capability for g in gpus), key=_version),
        pcie_generation=slowest_slot.pcie_generation,
        pcie_lanes=slowest_slot.pcie_lanes,
        nvlink_generation=first.nvlink_generation if shares_switch else 0,
        nvlink_links=min(gpu.nvlink_links for gpu in gpus) if shares_switch else 0,
        nvlink_bytes_per_second_per_link=(
            min(gpu.nvlink_bytes_per_second_per_link for gpu in gpus) if shares_switch else 0
        ),
        nvlink_fabric="nvswitch" if shares_switch else "",
        fabric_bytes_per_second=0,
        fabric_link=first.fabric_link if shares_switch else "",
        has_p2p=False,
        source="; ".join(dict.fromkeys(gpu.source for gpu in gpus)),
        gemm=min(gpus, key=lambda gpu: gpu.peak_flops[_best_dtype(gpu_counts)]).gemm,
    )


def _slot_speed(gpu: Gpu) -> int:
    slot = interconnect().pcie
    lanes = gpu.pcie_lanes or slot.default_lanes
    return lanes << (gpu.pcie_generation or slot.default_generation)


def _version(capability: str) -> tuple[int, ...]:
    return tuple(int(step) for step in capability.split(".") if step)


def _best_dtype(gpu_counts: Sequence[GpuCount]) -> str:
    """Return the dtype in which speeds are compared: the best that every card has."""
    common = set.intersection(*(set(gpu_count.gpu.peak_flops) for gpu_count in gpu_counts))
    return next(dtype for dtype in ("bf16", "fp16", "fp32") if dtype in common)


def _listed(gpu_counts: Sequence[GpuCount]) -> str:
    return " + ".join(f"{gpu_count.count} x {gpu_count.gpu.name}" for gpu_count in gpu_counts)


def waste(gpu_counts: Sequence[GpuCount]) -> str:
    """Return what the larger cards leave unused, and what dropping the least card would give."""
    dtype = _best_dtype(gpu_counts)
    memory, speed = _least(gpu_counts, dtype)
    unused = [
        f"{' and '.join(shares)} of {'the' if gpu_count.count == 1 else 'each'} {gpu_count.gpu.name}"
        for gpu_count in gpu_counts
        if (shares := _unused(gpu_count, memory, speed, dtype))
    ]
    return (
        "with all of them every rank is planned as the smallest and slowest card"
        + (f", which leaves unused {', and '.join(unused)}" if unused else "")
        + _without_the_least(gpu_counts, dtype)
    )


def _unused(gpu_count: GpuCount, memory: float, speed: float, dtype: str) -> list[str]:
    shares = []
    if gpu_count.gpu.memory_bytes > memory:
        spare = format_bytes(gpu_count.gpu.memory_bytes - memory)
        shares.append(f"{spare} of the {format_bytes(gpu_count.gpu.memory_bytes)}")
    if gpu_count.gpu.peak_flops[dtype] > speed:
        shares.append(
            f"{format_fraction(1 - speed / gpu_count.gpu.peak_flops[dtype])} of the {dtype} speed"
        )
    return shares


def _without_the_least(gpu_counts: Sequence[GpuCount], dtype: str) -> str:
    """Return the offer to drop a model, or "" where the rest would be smaller and slower."""
    least, others = _parted(gpu_counts)
    memory, speed = _least(gpu_counts, dtype)
    others_memory, others_speed = _least(others, dtype)
    count, others_count = sum(p.count for p in gpu_counts), sum(p.count for p in others)
    if others_memory <= memory and others_count * others_speed <= count * speed:
        return ""
    return (
        f"; without the {least.gpu.name}: {_listed(others)} with {format_bytes(others_memory)} each and"
        f" {format_flops(others_count * others_speed)}/s together, against {format_bytes(memory)} each"
        f" and {format_flops(count * speed)}/s now"
        f" (--gpu {','.join(f'{p.gpu.name}:{p.count}' for p in others)})"
    )


def larger_gpus(gpu_counts: Sequence[GpuCount]) -> tuple[GpuCount, ...]:
    """Return the cards without the smallest and slowest model."""
    return tuple(_parted(gpu_counts)[1])


def _parted(gpu_counts: Sequence[GpuCount]) -> tuple[GpuCount, list[GpuCount]]:
    dtype = _best_dtype(gpu_counts)
    least = min(
        gpu_counts,
        key=lambda gpu_count: (gpu_count.gpu.memory_bytes, gpu_count.gpu.peak_flops[dtype]),
    )
    return least, [gpu_count for gpu_count in gpu_counts if gpu_count is not least]


def _least(gpu_counts: Sequence[GpuCount], dtype: str) -> tuple[float, float]:
    return (
        min(gpu_count.gpu.memory_bytes for gpu_count in gpu_counts),
        min(gpu_count.gpu.peak_flops[dtype] for gpu_count in gpu_counts),
    )
