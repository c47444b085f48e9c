"""The memory of a host whose own is not known: what machines with such GPUs have."""

from functools import cache

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.domain.cluster import Cluster


def usual_host_bytes(cluster: Cluster) -> float:
    """Return the most that is taken to be in a node: as much as known machines of its GPU have.

        bytes = max(host bytes / GPUs over instances of several such GPUs) * GPUs of the node

    Without such an instance: a desktop board's memory for consumer cards, else the most of all
    instances per GPU. Of instances with one GPU none counts: it may have a whole host.

    Source: the instances' records; `data/calibration/interconnect.toml`, section host.
    """
    per_gpu = _most_per_gpu(cluster.gpu.name)
    if not per_gpu and cluster.gpu.is_consumer:
        return interconnect().host.desktop_bytes
    return (per_gpu or _most_per_gpu("")) * cluster.gpus_per_node


@cache
def _most_per_gpu(gpu: str) -> float:
    """Return the most host memory per GPU of instances with several of a GPU, or of any for ""."""
    instances = (records.instance(name) for name in records.instance_names())
    return max(
        (
            instance.host_memory_bytes / instance.gpus_per_node
            for instance in instances
            if instance.gpus_per_node > 1 and gpu in {instance.gpu, ""}
        ),
        default=0.0,
    )
