from dataclasses import replace

import pytest
from made_clusters import cluster, link


@pytest.mark.parametrize(
    ("nodes", "domain", "joined"),
    [
        (18, 72, 72),
        (2, 72, 8),
        (36, 72, 72),
        (32, 72, 64),  # 16 nodes of each rack: 128 GPUs do not fill racks of 72
        (19, 72, 4),
        (18, 0, 4),
        (18, 4, 4),
        (1, 72, 4),
    ],
)
def test_nvlink_joins_as_many_nodes_of_a_rack_as_divide_all(
    nodes: int, domain: int, joined: int
) -> None:
    racks = cluster(nodes, gpus_per_node=4, nvlink_domain_gpus=domain)
    assert racks.joined_gpus == joined
    assert racks.needs_network == (nodes * 4 > joined)


def test_a_group_that_leaves_its_node_sees_the_racks_link() -> None:
    rack = replace(
        cluster(18, gpus_per_node=4, nvlink_domain_gpus=72),
        domain_link=link(50, "nvswitch"),
        group_links={(2, 1): link(30)},
    )
    assert rack.link(2, 1).bytes_per_second == 30e9
    assert rack.link(4, 1) == rack.intra_node
    assert rack.link(2, 4) == rack.link(8, 1) == rack.link(4, 2) == rack.domain_link
    assert rack.slowest_link == rack.intra_node
    racks = replace(rack, nodes=36)
    assert racks.slowest_link == racks.inter_node
    assert replace(rack, nodes=1, inter_node=None).slowest_link == rack.intra_node
