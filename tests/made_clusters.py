"""Clusters whose links have round figures."""

from typing import Any

from planner.catalog import records
from planner.domain.cluster import Cluster, Link, Provenance


def link(gb_per_s: float = 10, medium: str = "given", **fields: Any) -> Link:
    values: dict[str, Any] = {
        "name": "test",
        "bytes_per_second": gb_per_s * 1e9,
        "latency_seconds": 20e-6,
        "provenance": Provenance.DERIVED,
        "source": "this test",
        "medium": medium,
    }
    return Link(**(values | fields))


def cluster(nodes: int = 1, **fields: Any) -> Cluster:
    values: dict[str, Any] = {
        "gpu": records.gpu("a100"),
        "gpus_per_node": 8,
        "nodes": nodes,
        "intra_node": link(),
        "inter_node": link(8, "network", source="that network") if nodes > 1 else None,
    }
    return Cluster(**(values | fields))
