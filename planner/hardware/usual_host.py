"""The memory of a host whose own is not known: what machines with such GPUs have."""

import math
from functools import lru_cache

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.domain.cluster import Cluster


def usual_host_bytes(cluster: Cluster) -> float:
    """Return the most that is taken to be in a node.

        bytes = max(host bytes / GPUs over instances of several GPUs) * GPUs of the node

    Over instances whose GPUs have no more memory: hosts grow with their cards, and those of B200 have
    twice what those of A100 have. For consumer cards it is the memory of a desktop's board, or of a
    server's where a desktop's has no slots for so many. Instances with one GPU do not count: they may
    have a whole host.

    Source: the instances' records; `data/calibration/interconnect.toml`, section host.
    """
    host = interconnect().host
    if not cluster.gpu.is_consumer:
        return _most_per_gpu(cluster.gpu.memory_bytes) * cluster.gpus_per_node
    return host.desktop_bytes if _is_desktop(cluster) else host.server_bytes


def usual_host_of(cluster: Cluster) -> str:
    """Return whose memory that is, in words: "as desktops have"."""
    if not cluster.gpu.is_consumer:
        return "as the largest such machines have"
    return "as desktops have" if _is_desktop(cluster) else "as servers of such cards have"


def host_memory_bytes_per_second(cluster: Cluster) -> float:
    """Return what the CPUs read and write of a desktop's memory in a second; inf of other hosts, which nobody said.

    Source: `data/calibration/interconnect.toml`, section host.
    """
    host = interconnect().host
    is_small = cluster.gpu.is_consumer and cluster.gpus_per_node <= host.two_channel_gpus
    return host.two_channel_bytes_per_second if is_small else math.inf


def _is_desktop(cluster: Cluster) -> bool:
    return cluster.gpu.is_consumer and cluster.gpus_per_node <= interconnect().host.desktop_gpus


@lru_cache(maxsize=64)
def _most_per_gpu(gpu_bytes: float) -> float:
    known = [
        (
            records.gpu(instance.gpu).memory_bytes,
            instance.host_memory_bytes / instance.gpus_per_node,
        )
        for instance in map(records.instance, records.instance_names())
        if instance.gpus_per_node > 1 and instance.host_memory_bytes
    ]
    smallest = min(memory for memory, _ in known)
    return max(host for memory, host in known if memory <= max(gpu_bytes, smallest))
