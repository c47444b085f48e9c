"""The memory of a host whose own is not known: what machines with such GPUs have."""

from functools import cache

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.domain.cluster import Cluster


def usual_host_bytes(cluster: Cluster) -> float:
    """Return the most that is taken to be in a node.

        bytes = max(host bytes / GPUs over instances of several GPUs) * GPUs of the node

    For consumer cards it is a desktop board's memory. Instances with one GPU do not count: they may
    have a whole host.

    Source: the instances' records; `data/calibration/interconnect.toml`, section host.
    """
    if cluster.gpu.is_consumer:
        return interconnect().host.desktop_bytes
    return _most_per_gpu() * cluster.gpus_per_node


@cache
def _most_per_gpu() -> float:
    instances = (records.instance(name) for name in records.instance_names())
    return max(
        instance.host_memory_bytes / instance.gpus_per_node
        for instance in instances
        if instance.gpus_per_node > 1
    )
