"""A node's topology -> what the section on its wiring shows."""

from typing import Any

from planner.domain.cluster import Cluster
from planner.hardware.placement import cuda_visible_devices
from planner.report.cluster import rings_table
from web.islands import picture
from web.node_text import legend, title
from web.node_tree import node_tree


def wiring(cluster: Cluster) -> dict[str, Any] | None:
    """Return how a node is wired and what that is worth to its ranks, if a topology was read."""
    if cluster.topology is None:
        return None
    order = cluster.gpu_order or tuple(range(cluster.gpus_per_node))
    node = node_tree(cluster.topology, order)
    return {
        "title": title(node),
        "picture": picture(node),
        "legend": tuple(legend(node)),
        "rings": rings_table(cluster.group_links, cluster.gpus_per_node),
        "order": [f"GPU{gpu}" for gpu in order],
        "devices": cuda_visible_devices(order),
        "findings": cluster.topology.findings,
    }
