"""Records -> text for a terminal: GPUs, links, instances and models."""

from collections.abc import Sequence

from planner.catalog.records import LinkRecord
from planner.core.units import (
    GIB,
    MICRO,
    format_bit_rate,
    format_bytes,
    format_flops,
    format_rate,
)
from planner.domain.cluster import Gpu, Instance
from planner.domain.model import Linear, Model
from planner.report.values import Terminal, columns_text


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


def model_text(model: Model, terminal: Terminal) -> str:
    """Return what the planner knows of a model: totals, then one line per part."""
    length = model.max_position_embeddings
    rows = [("part", "count", "parameters each", "matrices")]
    rows += [
        (
            part.name,
            str(part.count),
            f"{part.parameters:,}",
            ", ".join(_matrix(layer) for layer in part.linears),
        )
        for part in model.parts
    ]
    flops = format_flops(model.flops_per_token(length))
    active = model.active_parameters
    of_them = f", {active:,} active per token" if active < model.parameters else ""
    totals = (
        f"{model.name} ({model.model_type}): {model.parameters:,} parameters{of_them}",
        f"{flops} per token in forward at {length:,} tokens{_counted(model)}",
    )
    head = "\n".join(terminal.paragraph(line, rest="  ") for line in totals)
    named = head.replace(model.name, terminal.bold(model.name), 1)
    return f"{named}\n\n{columns_text(rows, terminal.width)}"


def _counted(model: Model) -> str:
    """Return how the scores of attention are counted; "" where a model has none."""
    kinds = {part.attention.is_causal for part in model.parts if part.attention}
    causal, whole = "causal attention counted as half", "attention counted in full"
    if kinds == {True, False}:
        return f", {causal}, other {whole}"
    return "".join(f", {causal if is_causal else whole}" for is_causal in kinds)


def instances_text(instances: Sequence[Instance], width: int | None = None) -> str:
    """Return cloud instances as a table; a blank is not known."""
    header = ("cloud", "name", "GPUs", "wiring", "network", "host RAM", "$/hour", "as of")
    rows = [
        (instance.cloud, instance.name, *_instance_cells(instance).values())
        for instance in instances
    ]
    return columns_text([header, *rows], width)


def instance_text(instance: Instance, terminal: Terminal) -> str:
    """Return what is known of a cloud instance, with its sources."""
    cells = _instance_cells(instance)
    cells |= {
        "vCPUs": str(instance.vcpus or ""),
        "SageMaker": instance.sagemaker_type,
        "price from": instance.price_source,
        "source": instance.source,
        "notes": instance.notes,
    }
    known_cells = [(label, text) for label, text in cells.items() if text]
    lines = (
        terminal.paragraph(text, first=f"  {label:<12}", rest=" " * 14)
        for label, text in known_cells
    )
    return "\n".join((f"{terminal.bold(instance.name)} ({instance.cloud})", *lines))


def _instance_cells(instance: Instance) -> dict[str, str]:
    network, memory = instance.network_bytes_per_second, instance.host_memory_bytes
    return {
        "GPUs": f"{instance.gpus_per_node} x {instance.gpu}",
        "wiring": instance.wiring,
        "network": format_bit_rate(network) if network else "",
        "host RAM": f"{memory / GIB:,.0f} GiB" if memory else "",
        "$/hour": f"{instance.usd_per_hour:.2f}" if instance.usd_per_hour else "",
        "as of": instance.price_date,
    }


def _matrix(layer: Linear) -> str:
    experts = (
        f"{layer.experts_per_token} of {layer.num_experts} x " if layer.num_experts > 1 else ""
    )
    return f"{experts}{layer.name} {layer.in_features} x {layer.out_features}"
