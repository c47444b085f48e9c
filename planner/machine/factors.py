"""How much longer each kind of work takes on one machine than the planner says, put into what a job is computed from."""

from dataclasses import replace

from planner.core.frozen import frozen
from planner.domain.cluster import Cluster
from planner.domain.framework import Framework
from planner.domain.uncertainty import Uncertainty
from planner.machine.document import Anchors


@frozen
class Factors:
    """Seconds of this machine over those that are estimated, by kind of work."""

    compute: float = 1.0
    """Kernels: matmuls, attention, what memory bounds, the optimizer."""
    communication: float = 1.0
    adapters: float = 1.0
    """Kernels of trainings with adapters, beside `compute`."""
    host: float = 1.0
    """Launching kernels, and what waits for the host between micro-batches and layers."""


def factors_of(anchors: Anchors) -> Factors:
    """Return what anchors say; 1 where they say nothing."""
    found = {
        name: anchor.factor
        for name in ("compute", "adapters", "communication", "host")
        if (anchor := getattr(anchors, name)) is not None
    }
    return Factors(**found)


def scaled_cluster(cluster: Cluster, factors: Factors) -> Cluster:
    """Return a cluster whose kernels and exchanges take so much longer."""
    gpu = replace(
        cluster.gpu,
        kernel_factor=cluster.gpu.kernel_factor * factors.compute,
        adapters_factor=cluster.gpu.adapters_factor * factors.adapters,
        optimizer_bytes_per_second=cluster.gpu.optimizer_bytes_per_second / factors.compute,
    )
    factor = cluster.exchange_factor * factors.communication
    return replace(cluster, gpu=gpu, exchange_factor=factor)


def scaled_framework(framework: Framework, factors: Factors) -> Framework:
    """Return a framework whose host takes so much longer."""
    host = framework.host
    changed = replace(
        host,
        operation_seconds=host.operation_seconds * factors.host,
        micro_batch_seconds=host.micro_batch_seconds * factors.host,
        layer_seconds=host.layer_seconds * factors.host,
        exchange_seconds_per_rank=host.exchange_seconds_per_rank * factors.host,
        crossing_seconds_per_rank=host.crossing_seconds_per_rank * factors.host,
    )
    return replace(framework, host=changed)


def narrowed(uncertainty: Uncertainty, share: float) -> Uncertainty:
    """Return half-widths of a step's range of which a share is left."""
    return replace(
        uncertainty,
        compute=uncertainty.compute * share,
        memory_bound=uncertainty.memory_bound * share,
        host=uncertainty.host * share,
        communication={name: width * share for name, width in uncertainty.communication.items()},
        offload=uncertainty.offload * share,
        adapters=uncertainty.adapters * share,
        unknown_release=uncertainty.unknown_release * share,
        named_release=uncertainty.named_release * share,
        kind=uncertainty.kind * share,
    )
