"""The network that nodes of a GPU are sold with: `data/calibration/node_networks.toml`, typed."""

import math
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class NodeNetwork:
    """One record: what joins nodes of these GPUs, where nothing was said."""

    gpus: tuple[str, ...]
    link: str
    """A record of `data/links`, by port."""
    ports_per_gpu: float = 0.0
    """0: one port per node, however many GPUs it has."""
    because: str
    """Said of the assumption, as in "as DGX H100 has"."""
    otherwise: str
    """Another network that such nodes are commonly found on, one port per node."""
    source: str

    def ports(self, gpus_per_node: int) -> int:
        """Return the ports of a node of so many GPUs."""
        return max(1, math.ceil(self.ports_per_gpu * gpus_per_node))


@cache
def _by_gpu() -> dict[str, NodeNetwork]:
    tables = read("calibration", "node_networks")["network"]
    path = "calibration/node_networks"
    found = (build(NodeNetwork, table, f"{path}[{i}]") for i, table in enumerate(tables))
    return {gpu: network for network in found for gpu in network.gpus}


def node_network(gpu: str) -> NodeNetwork | None:
    """Return what nodes of that GPU are sold with; None for several kinds in one node."""
    return _by_gpu().get(gpu)
