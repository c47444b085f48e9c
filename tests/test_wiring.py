"""Bandwidths worked by hand from the records in `data/links` and the shares in `data/calibration`."""

from pathlib import Path

import pytest

from planner import catalog
from planner.cluster import Link, Provenance
from planner.errors import InvalidInputError, UnknownNameError
from planner.topology import Topology, parse_topology
from planner.units import GIGA, MICRO
from planner.wiring import assumed_network, intra_node_link, named_link

PUBLISHED = Path(__file__).parent / "topologies"
PAIRS = [(low, high) for high in range(8) for low in range(high)]


def _published(name: str) -> Topology:
    return parse_topology((PUBLISHED / f"{name}.txt").read_text(encoding="utf-8"))


def _of_record(gpu: str, gpus_per_node: int) -> Link:
    return intra_node_link(catalog.gpu(gpu), gpus_per_node, None)


def _of_topology(gpu: str, gpus_per_node: int, topology: Topology) -> Link:
    return intra_node_link(catalog.gpu(gpu), gpus_per_node, topology)


@pytest.mark.parametrize(
    ("gpu", "links", "gb_per_s_per_link"),
    [
        ("a100-sxm-80gb", 12, 20),
        ("h100-sxm-80gb", 18, 20.6),
        ("h800-sxm-80gb", 8, 20.6),
        ("b200-sxm", 18, 40.1),
    ],
)
def test_a_switch_gives_a_gpu_all_its_links(gpu: str, links: int, gb_per_s_per_link: float) -> None:
    for gpus_per_node in (2, 4, 8):
        link = _of_record(gpu, gpus_per_node)
        assert link.bytes_per_second == pytest.approx(links * gb_per_s_per_link * GIGA)
        assert link.is_fast
        assert link.provenance is Provenance.DERIVED


def test_a_cube_mesh_has_two_links_between_a_pair_and_six_for_all() -> None:
    # NVLink 2: 20 GB/s achievable per link; P100 has 4 links of 18 GB/s, one to each neighbour.
    rates = {n: _of_record("v100-sxm2-32gb", n).bytes_per_second / GIGA for n in (2, 3, 4, 8)}
    assert rates == pytest.approx({2: 40, 3: 80, 4: 120, 8: 120})
    rates = {n: _of_record("p100-sxm2-16gb", n).bytes_per_second / GIGA for n in (2, 4, 8)}
    assert rates == pytest.approx({2: 18, 4: 54, 8: 72})


def test_more_gpus_than_a_mesh_holds_meet_over_pcie() -> None:
    link = _of_record("v100-sxm2-32gb", 16)
    assert not link.is_fast
    assert link.name == "PCIe 3 x16 with P2P"


def test_bridges_do_not_count_until_a_topology_shows_them() -> None:
    # PCIe 4 x16: 24 GB/s achievable, 0.8 of it with peer-to-peer.
    assert _of_record("a100-pcie-80gb", 2).bytes_per_second == pytest.approx(0.8 * 24 * GIGA)
    pair = Topology(num_gpus=2, nvlink={(0, 1): 12}, pcie={})
    bridged = _of_topology("a100-pcie-80gb", 2, pair)
    assert bridged.bytes_per_second == pytest.approx(12 * 20 * GIGA)
    assert (bridged.name, bridged.is_fast) == ("NVLink 3 x 12", True)


def test_a_bridge_of_ga102_cards_has_slower_links() -> None:
    pair = Topology(num_gpus=2, nvlink={(0, 1): 4}, pcie={})
    assert _of_topology("a6000", 2, pair).bytes_per_second == pytest.approx(4 * 12 * GIGA)


def test_two_bridged_pairs_are_as_slow_as_the_way_between_them() -> None:
    # A30, PCIe 4 x16 with peer-to-peer, between sockets: 24 * 0.8 * 0.7 GB/s.
    topology = _published("a30-two-bridged-pairs")
    four = _of_topology("a30", 4, topology)
    assert four.bytes_per_second == pytest.approx(24 * 0.8 * 0.7 * GIGA)
    assert not four.is_fast
    two = _of_topology("a30", 2, topology)
    assert two.bytes_per_second == pytest.approx(4 * 20 * GIGA)


def test_a_switch_shows_the_same_links_to_every_peer() -> None:
    topology = _published("a100-nvswitch-8-gpus-8-nics")
    for gpus_per_node in (2, 4, 8):
        link = _of_topology("a100-sxm-80gb", gpus_per_node, topology)
        assert link == _of_record("a100-sxm-80gb", gpus_per_node)


def test_a_ring_through_a_cube_mesh_never_leaves_nvlink() -> None:
    topology = _published("dgx1-v100-cube-mesh")
    eight = _of_topology("v100-sxm2-32gb", 8, topology)
    assert eight == _of_record("v100-sxm2-32gb", 8)
    # GPU0 and GPU1 share one link; GPU0 to GPU2 have 2, 3 and 3 among them, and two bound the ring.
    assert _of_topology("v100-sxm2-32gb", 2, topology).name == "NVLink 2 x 1"
    assert _of_topology("v100-sxm2-32gb", 3, topology).name == "NVLink 2 x 2"
    # GPU4 and GPU5 of the other half hang on GPU0 and GPU1: 0-2-3-1-5-4-0.
    assert _of_topology("v100-sxm2-32gb", 6, topology).is_fast
    # GPU4 alone of its half hangs on GPU0 only: no ring.
    assert _of_topology("v100-sxm2-32gb", 5, topology).name == "PCIe 3 x16 with P2P"


def test_without_a_switch_the_links_to_all_peers_add_up() -> None:
    link = _of_topology("v100-sxm2-32gb", 4, _published("c4140-v100-all-pairs"))
    assert link.bytes_per_second == pytest.approx(3 * 2 * 20 * GIGA)


def test_the_gpu_with_the_fewest_links_bounds_the_ring() -> None:
    uneven = Topology(
        num_gpus=4,
        nvlink={(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2},
        pcie={},
    )
    assert _of_topology("v100-sxm2-16gb", 4, uneven).name == "NVLink 2 x 4"


def test_a_large_node_with_one_pair_unlinked_is_taken_for_pcie() -> None:
    pairs = [(low, high) for high in range(16) for low in range(high)]
    topology = Topology(num_gpus=16, nvlink=dict.fromkeys(pairs[1:], 6), pcie={pairs[0]: "NODE"})
    assert not _of_topology("v100-sxm2-32gb", 16, topology).is_fast


def test_only_the_gpus_in_use_say_how_far_pcie_goes() -> None:
    near = {pair: "PIX" if pair[1] < 4 else "SYS" for pair in PAIRS}
    topology = Topology(num_gpus=8, nvlink={}, pcie=near)
    four, eight = (_of_topology("l40s", n, topology) for n in (4, 8))
    assert four.bytes_per_second == pytest.approx(24 * 0.8 * GIGA)
    assert eight.bytes_per_second == pytest.approx(24 * 0.8 * 0.7 * GIGA)


def test_cards_without_peer_to_peer_go_through_the_host_and_are_slower() -> None:
    geforce, data_centre = _of_record("rtx-4090", 4), _of_record("l40s", 4)
    assert geforce.bytes_per_second == pytest.approx(24 * 0.45 * GIGA)
    assert geforce.bytes_per_second < data_centre.bytes_per_second
    assert geforce.name == "PCIe 4 x16 through host memory (no P2P)"


def test_half_the_lanes_have_half_the_bandwidth() -> None:
    # PCIe 5: 54.75 GB/s on 16 lanes; a 5060 Ti has 8 and no peer-to-peer.
    link = _of_record("rtx-5060ti", 2)
    assert link.bytes_per_second == pytest.approx(54.75 / 2 * 0.45 * GIGA)


def test_eight_cards_sit_on_two_sockets() -> None:
    four, eight = _of_record("rtx-4090", 4), _of_record("rtx-4090", 8)
    assert eight.bytes_per_second == pytest.approx(0.7 * four.bytes_per_second)
    assert _of_topology("rtx-4090", 8, _published("rtx4090-8-gpus-pcie")) == eight


def test_a_pcie_generation_nobody_measured_is_taken_at_three_quarters() -> None:
    assert not catalog.link("pcie-6-x16").achievable_bytes_per_second
    topology = Topology(num_gpus=2, nvlink={}, pcie={(0, 1): "PIX"})
    link = _of_topology("b300-sxm", 2, topology)
    assert link.bytes_per_second == pytest.approx(0.75 * 121 * 0.8 * GIGA)


def test_a_fabric_other_than_nvlink_is_taken_at_four_fifths() -> None:
    link = _of_record("mi300x", 8)
    assert link.bytes_per_second == pytest.approx(0.8 * 448 * GIGA)
    assert link.is_fast


@pytest.mark.parametrize("name", catalog.gpu_names())
@pytest.mark.parametrize("gpus_per_node", [1, 2, 4, 8, 16, 72, 1024])
def test_every_gpu_has_some_link_at_any_count(name: str, gpus_per_node: int) -> None:
    link = _of_record(name, gpus_per_node)
    assert 0.5 * GIGA < link.bytes_per_second < 1000 * GIGA
    assert link.latency_seconds == pytest.approx(15 * MICRO)
    assert link.source
    bare = Topology(num_gpus=gpus_per_node, nvlink={}, pcie={})
    assert _of_topology(name, gpus_per_node, bare).bytes_per_second > 0.5 * GIGA


def test_more_links_are_never_slower() -> None:
    rates = [
        _of_topology(
            "a100-sxm-80gb",
            4,
            Topology(num_gpus=4, nvlink=dict.fromkeys(PAIRS[:6], links), pcie={}),
        ).bytes_per_second
        for links in range(1, 19)
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_a_topology_of_fewer_gpus_than_the_node_has_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="shows 4 GPUs, but --gpus is 8") as caught:
        _of_topology("a30", 8, _published("a30-two-bridged-pairs"))
    assert caught.value.field == "cluster.topology"
    assert "--gpus 4" in caught.value.hint


def test_a_named_network_reaches_what_it_is_known_to_reach() -> None:
    roce, infiniband, measured = (
        named_link(name, "cluster.inter_node")
        for name in ("roce-100g", "infiniband-ndr", "aws-efa-v4-b200")
    )
    assert roce.bytes_per_second == pytest.approx(12 * GIGA)
    assert infiniband.bytes_per_second == pytest.approx(0.9 * 50 * GIGA)
    assert measured.bytes_per_second == pytest.approx(381.8 * GIGA)
    assert [link.provenance.value for link in (roce, infiniband, measured)] == [
        "derived",
        "derived",
        "measured",
    ]
    assert roce.latency_seconds == pytest.approx(30 * MICRO)
    assert not roce.is_fast


def test_a_named_link_inside_a_node_is_fast_when_it_is_nvlink() -> None:
    assert named_link("nvswitch-h100", "cluster.intra_node").is_fast
    assert not named_link("PCIE-4-x16 ", "cluster.intra_node").is_fast
    assert named_link("pcie-5-x16", "cluster.intra_node").latency_seconds == pytest.approx(
        0.85 * MICRO
    )
    assert named_link("pcie-4-x16", "cluster.intra_node").latency_seconds == pytest.approx(
        15 * MICRO
    )


def test_a_named_nvlink_generation_means_all_links_of_the_gpu() -> None:
    one = named_link("nvlink-3", "cluster.intra_node")
    assert one.name == "nvlink-3"
    assert one.bytes_per_second == pytest.approx(20 * GIGA)
    all_of_them = named_link("nvlink-3", "cluster.intra_node", catalog.gpu("a100-sxm-80gb"))
    assert all_of_them.name == "nvlink-3 x 12"
    assert all_of_them.bytes_per_second == pytest.approx(12 * 20 * GIGA)


@pytest.mark.parametrize("name", ["nvswitch-h100", "pcie-4-x16", "roce-100g", "xgmi-mi300x"])
def test_other_names_mean_the_same_whatever_the_gpu(name: str) -> None:
    gpu = catalog.gpu("mi300x" if name.startswith("xgmi") else "h100")
    assert named_link(name, "cluster.intra_node", gpu) == named_link(name, "cluster.intra_node")


@pytest.mark.parametrize("name", catalog.link_names())
def test_every_link_can_be_named(name: str) -> None:
    link = named_link(name, "cluster.inter_node")
    assert 0.1 * GIGA < link.bytes_per_second < 1000 * GIGA
    assert 0 < link.latency_seconds < 1e-3
    assert link.source


def test_an_unknown_link_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="'infiniband-ndrr'") as caught:
        named_link("infiniband-ndrr", "cluster.inter_node")
    assert caught.value.field == "cluster.inter_node"
    assert "infiniband-ndr" in caught.value.hint


def test_a_link_like_no_other_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        named_link("??", "cluster.intra_node")
    assert "ethernet-10g" in caught.value.hint


def test_a_measured_link_is_taken_at_its_word() -> None:
    link = named_link({"bus_gb_per_s": 230, "latency_us": 9}, "cluster.intra_node")
    assert link.bytes_per_second == 230 * GIGA
    assert link.latency_seconds == pytest.approx(9e-6)
    assert (link.provenance, link.is_fast) == (Provenance.MEASURED, True)
    between = named_link({"gb_per_s_per_node": 25}, "cluster.inter_node")
    assert between.bytes_per_second == 25 * GIGA
    assert between.latency_seconds == pytest.approx(15 * MICRO)
    assert not between.is_fast


def test_a_network_nobody_spoke_of_is_a_stated_assumption() -> None:
    link = assumed_network()
    assert (link.name, link.provenance) == ("roce-100g", Provenance.ASSUMED)
    assert link.bytes_per_second == pytest.approx(12 * GIGA)
    assert link.source.startswith("assumed")
