"""Seconds of every operation in groups of all kinds of place, beside what they were."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from known_ledgers import check
from made_clusters import cluster, link

from planner.collectives import operations
from planner.domain.cluster import Cluster, Group

GROUPS = [
    (ranks, stride)
    for ranks in (2, 3, 4, 8, 12, 16, 32)
    for stride in (1, 2, 4, 8)
    if ranks * stride <= 32
]
SIZES = (1e3, 3e6, 2e9)
PLACES: dict[str, Cluster] = {
    "given": cluster(4),
    "nvswitch": cluster(4, intra_node=link(240, "nvswitch")),
    "measured": cluster(4, intra_node=link(370, "nvswitch", system="h100_sxm")),
    "pcie": cluster(4, intra_node=link(20, "pcie"), gpus_per_node=8),
    "slow": cluster(4, exchange_factor=1.5),
}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def figures(place: Cluster) -> Iterator[tuple[str, list[float]]]:
    for operation, (ranks, stride) in itertools.product(OPERATIONS, GROUPS):
        spend = getattr(operations, operation)
        alone = [float(spend(place, Group(ranks=ranks, stride=stride), size)) for size in SIZES]
        yield f"{operation} {ranks} {stride}", alone
        rows = Group(ranks=np.full(3, ranks), stride=np.full(3, stride))
        assert np.asarray(spend(place, rows, np.array(SIZES))).tolist() == pytest.approx(alone)
    several = operations.all_to_all(place, Group(ranks=32), 2e9, copies=4)
    yield "copies", [float(several), float(operations.all_reduce(place, Group(ranks=8), 2e9, 7))]


def test_every_operation_takes_what_it_took(request: pytest.FixtureRequest) -> None:
    found = ((name, dict(figures(place))) for name, place in PLACES.items())
    update = bool(request.config.getoption("--update-golden"))
    check(Path(__file__).with_name("known_collectives.json"), found, update=update)
