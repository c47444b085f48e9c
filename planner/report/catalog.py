"""Records -> text for a terminal: GPUs and links, a line each."""

from collections.abc import Sequence

from planner.catalog.records import LinkRecord
from planner.core.units import GIB, MICRO, format_bytes, format_flops, format_rate
from planner.domain.cluster import Gpu
from planner.report.values import columns_text


def gpus_text(gpus: Sequence[Gpu], width: int | None) -> str:
    """Return GPUs as a table; a blank is not known."""
    rows = [("name", "memory", "HBM", "16-bit peak", "aliases")]
    rows += [
        (
            gpu.name,
            format_bytes(gpu.memory_bytes) if gpu.memory_bytes >= GIB else "",
            format_rate(gpu.hbm_bytes_per_second),
            half_precision_peak(gpu),
            " ".join(gpu.aliases),
        )
        for gpu in gpus
    ]
    return columns_text(rows, width)


def half_precision_peak(gpu: Gpu) -> str:
    """Return the dense peak in bf16, else in fp16; "none" where a GPU has neither."""
    peak = gpu.peak_flops.get("bf16") or gpu.peak_flops.get("fp16")
    return f"{format_flops(peak)}/s" if peak else "none"


def links_text(links: Sequence[LinkRecord], width: int | None) -> str:
    """Return links as a table: what a data sheet says, and what collectives get of it."""
    rows = [("name", "kind", "joins", "data sheet", "collectives", "latency")]
    rows += [
        (
            link.name,
            link.kind,
            link.scope,
            _rate(link.bytes_per_second),
            _rate(link.all_reduce_bus_bytes_per_second or link.achievable_bytes_per_second),
            f"{link.latency_seconds / MICRO:g} us" if link.latency_seconds else "",
        )
        for link in links
    ]
    return columns_text(rows, width)


def _rate(bytes_per_second: float) -> str:
    return format_rate(bytes_per_second) if bytes_per_second else ""
