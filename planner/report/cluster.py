"""What a node's wiring means for a job, as text: links by group size, and which GPU is which rank."""

from collections.abc import Mapping

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.units import format_rate
from planner.domain.cluster import Gpu, Link
from planner.hardware.group_links import group_links
from planner.hardware.placement import cuda_visible_devices, order, rank_grid
from planner.hardware.topology import Topology
from planner.report.text import table
from planner.request.cluster import ASSUMED_GPU


def placement_text(topology: Topology, gpu_name: str | None, sizes: Mapping[str, int]) -> str:
    """Return the links of groups of neighbouring ranks, and the ranks of a job of these sizes.

    Args:
        topology: of one node, which the job has to itself.
        gpu_name: which GPUs they are; None for what the topology says, else the assumed GPU.
        sizes: of "tensor" and "pipeline" parallelism; data parallelism takes the rest.

    Raises:
        PlannerError: the GPU is unknown, or the sizes do not divide the node.
    """
    gpu, note = _gpu(topology, gpu_name)
    gpus = topology.num_gpus
    gpu_order = order(topology, gpus, gpu)
    links = group_links(gpu, gpus, topology, gpu_order)
    model_parallel = sizes.get("tensor", 1) * sizes.get("pipeline", 1)
    if gpus % model_parallel:
        raise InvalidInputError(
            f"tensor x pipeline = {model_parallel} does not divide {gpus} GPUs",
            hint=f"use a divisor of {gpus}",
            field="strategy",
        )
    grid = rank_grid(
        {**sizes, "data": gpus // model_parallel}, gpus_per_node=gpus, gpu_order=gpu_order
    )
    parts = [_links(links, gpus, gpu, note), _ranks(gpu_order), grid.picture()]
    return "\n\n".join(part for part in parts if part)


def _gpu(topology: Topology, name: str | None) -> tuple[Gpu, str]:
    if name is not None:
        return records.gpu(name), ""
    if topology.gpu_names:
        return records.gpu(topology.gpu_names[0]), ""
    return records.gpu(ASSUMED_GPU), ", assumed; --gpu NAME changes it"


def _links(links: Mapping[tuple[int, int], Link], num_gpus: int, gpu: Gpu, note: str) -> str:
    neighbours = [
        (ranks, link)
        for (ranks, stride), link in sorted(links.items())
        if stride == 1 and num_gpus % ranks == 0
    ]
    rows = [
        (
            f"{ranks} GPUs",
            link.name,
            format_rate(link.bytes_per_second),
            str(link.provenance),
        )
        for ranks, link in neighbours
    ]
    if not rows:
        return ""
    title = f"What a ring through neighbouring ranks gets ({gpu.name}{note})"
    return f"{title}\n{table(rows)}"


def _ranks(gpu_order: tuple[int, ...]) -> str:
    shown = " ".join(f"GPU{gpu}" for gpu in gpu_order)
    devices = cuda_visible_devices(gpu_order)
    needed = f"\n  CUDA_VISIBLE_DEVICES={devices}" if devices else ", in index order"
    return f"Ranks\n  {shown}{needed}"
