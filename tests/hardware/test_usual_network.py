from dataclasses import replace

import pytest
from made_clusters import cluster

from planner.catalog import records
from planner.core.units import GIGA, MICRO
from planner.domain.cluster import Provenance
from planner.hardware.named_links import link_between
from planner.hardware.usual_network import node_network, other_network, usual_network


@pytest.mark.parametrize("name", records.gpu_names())
def test_every_gpu_has_a_network_between_its_nodes(name: str) -> None:
    gpu = records.gpu(name)
    sold = node_network(name)
    assert sold, f"no [[network]] of data/calibration/node_networks.toml names {name}"
    network, said = usual_network(gpu, 8, None)
    assert network.provenance == Provenance.ASSUMED
    assert network.source == f"assumed: {sold.source}"
    assert said.startswith(f"{network.name} between nodes (")
    assert said.endswith(sold.because)
    assert 1 * GIGA < network.bytes_per_second < 1000 * GIGA
    # What is said can be typed.
    assert link_between(network.name, 8).bytes_per_second == network.bytes_per_second
    assert records.link(sold.otherwise).scope == "port"


@pytest.mark.parametrize(
    ("gpu", "gpus_per_node", "name", "gb_per_s"),
    [
        ("h100", 8, "8x infiniband-ndr", 0.9 * 400),
        ("h100", 4, "4x infiniband-ndr", 0.9 * 200),
        ("h100", 1, "infiniband-ndr", 0.9 * 50),
        ("a100-sxm-80gb", 8, "8x infiniband-hdr", 0.9 * 200),
        ("b300-sxm", 8, "8x infiniband-xdr", 0.9 * 800),
        # One port for two GPUs: 4 of a DGX-1, 8 of a DGX-2.
        ("v100-sxm2-32gb", 8, "4x infiniband-edr", 0.9 * 50),
        ("v100-sxm2-32gb", 16, "8x infiniband-edr", 0.9 * 100),
        ("v100-sxm2-32gb", 1, "infiniband-edr", 0.9 * 12.5),
        ("gaudi2", 8, "24x roce-100g", 24 * 12),
        ("l40s", 8, "ethernet-100g", 0.9 * 12.5),
        ("rtx-4090", 8, "ethernet-10g", 0.9 * 1.25),
    ],
)
def test_nodes_have_the_ports_that_they_are_sold_with(
    gpu: str, gpus_per_node: int, name: str, gb_per_s: float
) -> None:
    network, _ = usual_network(records.gpu(gpu), gpus_per_node, None)
    assert (network.name, network.medium) == (name, "network")
    assert network.bytes_per_second == pytest.approx(gb_per_s * GIGA)
    assert network.latency_seconds == pytest.approx(30 * MICRO)


def test_several_kinds_of_gpus_have_the_least_network() -> None:
    mixed = replace(records.gpu("rtx-3090"), name="mixed: 2 x rtx-3090 + 1 x rtx-3060")
    network, said = usual_network(mixed, 3, None)
    assert (network.name, said) == ("roce-100g", "roce-100g between nodes")
    assert network.source.startswith("assumed")


def test_an_instance_has_its_own_network() -> None:
    a100, p4d = records.gpu("a100-sxm-40gb"), records.instance("p4d.24xlarge")
    network, said = usual_network(a100, 8, p4d)
    assert (network.name, said) == ("p4d.24xlarge network, 400 Gbit/s", "")
    unknown = replace(p4d, network_bytes_per_second=0.0)
    network, said = usual_network(a100, 8, unknown)
    assert (network.name, network.provenance) == ("roce-100g", Provenance.ASSUMED)
    assert "as the network of p4d.24xlarge is not known" in said


def test_another_network_is_looked_at_where_it_was_assumed() -> None:
    h100 = records.gpu("h100")
    assumed, _ = usual_network(h100, 8, None)
    nodes = cluster(4, gpu=h100, inter_node=assumed)
    other = other_network(nodes)
    assert other is not None
    assert (other.name, other.provenance) == ("roce-100g", Provenance.ASSUMED)
    assert other_network(cluster(4, gpu=h100, inter_node=link_between("roce-100g", 8))) is None
    assert other_network(cluster(1, gpu=h100)) is None
