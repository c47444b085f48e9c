"""GPUs, cloud instances and links -> pages of the catalogue."""

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

from planner.catalog import records
from planner.catalog.records import LinkRecord
from planner.core.units import (
    GIB,
    format_bit_rate,
    format_bytes,
    format_flops,
    format_fraction,
    format_rate,
    format_seconds,
)
from planner.domain.cluster import Gpu, Instance
from planner.report.catalog import half_precision_peak
from web.sheet import Cell, Fact, Sheet, SheetTable, facts, number


def _known(amount: float, show: Callable[[float], str]) -> str:
    return show(amount) if amount else ""


def gpus_sheet() -> Sheet:
    """Return every GPU, those with the most memory first."""
    known = sorted(map(records.gpu, records.gpu_names()), key=lambda gpu: -gpu.memory_bytes)
    rows = tuple(
        (
            Cell(text=gpu.name, href=f"/gpus/{gpu.name}"),
            Cell(text=gpu.vendor),
            number(format_bytes(gpu.memory_bytes)),
            number(format_rate(gpu.hbm_bytes_per_second)),
            number(half_precision_peak(gpu)),
            number(_known(gpu.tdp_watts, lambda watts: f"{watts:,g} W")),
        )
        for gpu in known
    )
    headings = ("GPU", "Vendor", "Memory", "Memory bandwidth", "16-bit peak", "Power")
    return Sheet(
        title="GPUs",
        json="/gpus.json",
        lead="What can be planned for, by memory, from data sheets and measurements.",
        tables=(
            SheetTable(
                title="",
                headings=headings,
                rows=rows,
                details=("Vendor", "Memory bandwidth", "Power"),
            ),
        ),
    )


def gpu_sheet(name: str) -> Sheet:
    """Return what is known of a GPU, and where it is rented."""
    gpu = records.gpu(name)
    curve = gpu.gemm
    lines: list[tuple[str, str | Cell]] = [
        ("Vendor", gpu.vendor),
        ("Memory", format_bytes(gpu.memory_bytes)),
        ("Usable by a process", _known(gpu.usable_bytes, format_bytes)),
        ("Memory bandwidth", format_rate(gpu.hbm_bytes_per_second)),
        ("Compute capability", gpu.compute_capability),
        ("NVLink", _nvlink(gpu)),
        ("PCIe", f"{gpu.pcie_generation} x{gpu.pcie_lanes}" if gpu.pcie_generation else ""),
        ("Copies between cards", "yes" if gpu.has_p2p else "through the host"),
        ("Power limit", _known(gpu.tdp_watts, lambda watts: f"{watts:,g} W")),
        ("Also called", ", ".join(gpu.aliases)),
        ("nvidia-smi says", ", ".join(gpu.nvml_names)),
        ("Large matmuls reach", f"{format_fraction(curve.peak_fraction)} of the peak at most"),
        ("Source", gpu.source),
        ("Source of the matmuls", curve.source),
    ]
    peaks = tuple(
        (Cell(text=dtype), number(f"{format_flops(rate)}/s"))
        for dtype, rate in gpu.peak_flops.items()
    )
    return Sheet(
        title=gpu.name,
        json=f"/gpus/{gpu.name}.json",
        above=(Cell(text="GPUs", href="/gpus"),),
        facts=facts(lines),
        tables=(
            SheetTable(title="Dense peak by dtype", headings=("Dtype", "Operations"), rows=peaks),
            *_rented(gpu),
        ),
        actions=(Cell(text="Plan on it", href="/?" + urlencode({"gpu": gpu.name})),),
    )


def _nvlink(gpu: Gpu) -> str:
    if not gpu.nvlink_generation:
        return ""
    rate = format_rate(gpu.nvlink_links * gpu.nvlink_bytes_per_second_per_link)
    fabric = f", {gpu.nvlink_fabric}" if gpu.nvlink_fabric else ""
    return f"{gpu.nvlink_generation} x {gpu.nvlink_links}: {rate} each way{fabric}"


def _rented(gpu: Gpu) -> tuple[SheetTable, ...]:
    of_it = [each for each in _instances() if each.gpu == gpu.name]
    if not of_it:
        return ()
    return (_instances_table("Rented as", of_it),)


def _instances() -> list[Instance]:
    return [records.instance(name) for name in records.instance_names()]


_OF_INSTANCES = (
    "Instance",
    "GPUs",
    "$/hour",
    "As of",
    "Wiring",
    "Network",
    "Host memory",
    "Cloud",
)
_PRICES = "A price is on demand, of one instance, and may be stale; a blank is not known."


def _instances_table(title: str, instances: list[Instance]) -> SheetTable:
    return SheetTable(
        title=title,
        headings=_OF_INSTANCES,
        rows=tuple(_instance_row(each) for each in instances),
        note=_PRICES,
        details=_OF_INSTANCES[3:],
    )


def _of_a_cloud(cloud: str) -> SheetTable:
    table = _instances_table(cloud, [each for each in _instances() if each.cloud == cloud])
    rows = tuple(row[:-1] for row in table.rows)
    return replace(
        table,
        headings=table.headings[:-1],
        rows=rows,
        note="",
        aside=f"{len(rows)} instances; {_dated(cloud)}",
    )


def _dated(cloud: str) -> str:
    dates = [each.price_date.partition(",")[0] for each in _instances() if each.cloud == cloud]
    said = ", ".join(dict.fromkeys(date for date in dates if date))
    return f"prices: {said or 'none'}"


def _instance_row(instance: Instance) -> tuple[Cell, ...]:
    host = instance.host_memory_bytes
    return (
        Cell(text=instance.name, href=f"/instances/{instance.name}"),
        Cell(text=f"{instance.gpus_per_node} x {instance.gpu}", href=f"/gpus/{instance.gpu}"),
        number(_known(instance.usd_per_hour, lambda usd: f"{usd:,.2f}")),
        Cell(text=instance.price_date),
        Cell(text=instance.wiring),
        number(_known(instance.network_bytes_per_second, format_bit_rate)),
        number(f"{host / GIB:,.0f} GiB" if host else ""),
        Cell(text=instance.cloud),
    )


def instances_sheet() -> Sheet:
    """Return every cloud instance with its price and the date of it."""
    return Sheet(
        title="Cloud instances",
        json="/instances.json",
        lead="Machines by name: a plan for one knows its GPUs, wiring, network and price.",
        notes=(_PRICES,),
        tables=tuple(map(_of_a_cloud, dict.fromkeys(each.cloud for each in _instances()))),
    )


def instance_sheet(name: str) -> Sheet:
    """Return what is known of a cloud instance, with its sources."""
    instance = records.instance(name)
    table = _instances_table("", [instance])
    told: tuple[Fact, ...] = tuple(
        Fact(name=heading, cell=cell)
        for heading, cell in zip(table.headings, _instance_row(instance), strict=True)
        if cell.text and heading != "Instance"
    )
    vcpus = f"{instance.vcpus}" if instance.vcpus else ""
    more: list[tuple[str, str | Cell]] = [
        ("vCPUs", vcpus),
        ("SageMaker", instance.sagemaker_type),
        ("Price from", instance.price_source),
        ("Source", instance.source),
        ("Notes", instance.notes),
    ]
    return Sheet(
        title=instance.name,
        json=f"/instances/{instance.name}.json",
        above=(Cell(text="Cloud instances", href="/instances"),),
        facts=told + facts(more),
        actions=(Cell(text="Plan on it", href="/?" + urlencode({"instance": instance.name})),),
    )


def links_sheet() -> Sheet:
    """Return every link with its rates, each way."""
    known = [records.link(name) for name in records.link_names()]
    rows = tuple(
        (
            Cell(text=link.name, href=f"/links/{link.name}"),
            Cell(text=link.kind),
            Cell(text=link.scope),
            number(_known(link.bytes_per_second, format_rate)),
            number(_known(_of_collectives(link), format_rate)),
            number(_known(link.latency_seconds, format_seconds)),
        )
        for link in known
    )
    headings = ("Link", "Kind", "Joins", "Data sheet", "Collectives", "Latency")
    return Sheet(
        title="Links",
        json="/links.json",
        lead="What joins GPUs and nodes: what a data sheet says, and what collectives get of it.",
        tables=(
            SheetTable(
                title="", headings=headings, rows=rows, details=("Kind", "Joins", "Latency")
            ),
        ),
    )


def _of_collectives(link: LinkRecord) -> float:
    return link.all_reduce_bus_bytes_per_second or link.achievable_bytes_per_second


def link_sheet(name: str) -> Sheet:
    """Return what is known of a link."""
    link = records.link(name, "name")
    lines: list[tuple[str, str | Cell]] = [
        ("Kind", link.kind),
        ("Joins", link.scope),
        ("NCCL talks over", link.transport),
        ("Data sheet, each way", _known(link.bytes_per_second, format_rate)),
        ("Large messages reach", _known(link.achievable_bytes_per_second, format_rate)),
        ("An all-reduce reaches", _known(link.all_reduce_bus_bytes_per_second, format_rate)),
        ("Latency", _known(link.latency_seconds, format_seconds)),
        ("GPUs across nodes", f"{link.domain_gpus}" if link.domain_gpus else ""),
        ("Source", link.source),
    ]
    return Sheet(
        title=link.name,
        json=f"/links/{link.name}.json",
        above=(Cell(text="Links", href="/links"),),
        facts=facts(lines),
    )
