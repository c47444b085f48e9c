"""Bandwidths worked by hand from the records in `data/links` and the shares in `data/calibration`."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.units import GIGA, MICRO
from planner.domain.cluster import Link, Provenance
from planner.hardware.group_links import group_links, intra_node_link
from planner.hardware.topology import Topology, parse_topology

PUBLISHED = Path(__file__).parents[1] / "topologies"
PAIRS = [(low, high) for high in range(8) for low in range(high)]


def _published(name: str) -> Topology:
    return parse_topology((PUBLISHED / f"{name}.txt").read_text(encoding="utf-8"))


def _shuffled_pairs() -> Topology:
    """Return two bridged pairs, {0, 2} and {1, 3}, on a socket each."""
    apart = [(0, 1), (0, 3), (1, 2), (2, 3)]
    numa = {0: 0, 1: 1, 2: 0, 3: 1}
    return Topology(
        num_gpus=4, nvlink={(0, 2): 12, (1, 3): 12}, pcie=dict.fromkeys(apart, "SYS"), numa=numa
    )


def _of_record(gpu: str, gpus_per_node: int) -> Link:
    return intra_node_link(records.gpu(gpu), gpus_per_node, None)


def _of_topology(gpu: str, gpus_per_node: int, topology: Topology) -> Link:
    return intra_node_link(records.gpu(gpu), gpus_per_node, topology)


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


def test_bridges_do_not_count_until_a_topology_shows_them() -> None:
    # PCIe 4 x16: 24 GB/s achievable, 0.8 of it with peer-to-peer.
    assert _of_record("a100-pcie-80gb", 2).bytes_per_second == pytest.approx(20.9 * GIGA)
    pair = Topology(num_gpus=2, nvlink={(0, 1): 12}, pcie={})
    bridged = _of_topology("a100-pcie-80gb", 2, pair)
    assert bridged.bytes_per_second == pytest.approx(12 * 20 * GIGA)
    assert (bridged.name, bridged.is_fast) == ("NVLink 3 x 12", True)


def test_a_bridge_of_ga102_cards_has_slower_links() -> None:
    pair = Topology(num_gpus=2, nvlink={(0, 1): 4}, pcie={})
    assert _of_topology("a6000", 2, pair).bytes_per_second == pytest.approx(4 * 12 * GIGA)


def test_a_switch_shows_the_same_links_to_every_peer() -> None:
    topology = _published("a100-nvswitch-8-gpus-8-nics")
    for gpus_per_node in (2, 4, 8):
        link = _of_topology("a100-sxm-80gb", gpus_per_node, topology)
        assert link == _of_record("a100-sxm-80gb", gpus_per_node)


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


def test_a_pcie_generation_nobody_measured_is_taken_at_three_quarters() -> None:
    assert not records.link("pcie-6-x16").achievable_bytes_per_second
    topology = Topology(num_gpus=2, nvlink={}, pcie={(0, 1): "PIX"})
    link = _of_topology("b300-sxm", 2, topology)
    assert link.bytes_per_second == pytest.approx(0.75 * 121 * 0.8 * GIGA)


def test_sixteen_v100_are_a_dgx2_with_a_switch() -> None:
    link = _of_record("v100-sxm2-32gb", 16)
    assert (link.name, link.medium) == ("NVLink 2 x 6", "nvswitch")
    assert link.bytes_per_second == pytest.approx(6 * 20 * GIGA)
    assert _of_record("v100-sxm2-16gb", 8).medium == "nvlink"


def test_more_gpus_than_a_mesh_or_a_switch_joins_meet_over_pcie() -> None:
    for gpu, count in (("v100-sxm2-32gb", 17), ("p100-sxm2-16gb", 16)):
        link = _of_record(gpu, count)
        assert not link.is_fast
        assert link.name == "PCIe 3 x16 through host memory"


@pytest.mark.parametrize(
    ("gpu", "gpus", "peer_to_peer", "because"),
    [
        ("rtx-4090", 4, None, "rtx-4090 cannot copy to another card over PCIe"),
        ("a40", 4, False, "copies from GPU to GPU are switched off"),
        ("a40", 4, None, "more than 2 of them meet through the CPU, as nodes without a topology"),
        ("a40", 8, None, "meet through the link between two CPUs, as nodes without a topology"),
        ("a40", 2, None, ""),
    ],
)
def test_a_link_says_why_it_goes_through_host_memory(
    gpu: str, gpus: int, *, peer_to_peer: bool | None, because: str
) -> None:
    link = intra_node_link(records.gpu(gpu), gpus, None, peer_to_peer=peer_to_peer)
    assert because in link.staged_because
    assert (link.medium == "host") == bool(link.staged_because)


def test_what_a_topology_shows_is_not_called_assumed() -> None:
    pairs = [(low, high) for high in range(4) for low in range(high)]
    seen = Topology(num_gpus=4, nvlink={}, pcie=dict.fromkeys(pairs, "SYS"))
    because = _of_topology("a40", 4, seen).staged_because
    assert "the link between two CPUs, where NCCL stages" in because
    assert "assumed" not in because
    denied = Topology(
        num_gpus=4,
        nvlink={},
        pcie=dict.fromkeys(pairs, "PIX"),
        peer_to_peer=dict.fromkeys(pairs, False),
    )
    assert "the driver" in _of_topology("a40", 4, denied).staged_because


def test_two_bridged_pairs_are_as_slow_as_the_way_between_them() -> None:
    # A30, PCIe 4 x16, between sockets: each card only sends or only receives, 24 * 0.8 GB/s.
    topology = _published("a30-two-bridged-pairs")
    four = _of_topology("a30", 4, topology)
    assert four.bytes_per_second == pytest.approx(24 * 0.8 * GIGA)
    assert (four.is_fast, four.medium) == (False, "host")
    two = _of_topology("a30", 2, topology)
    assert two.bytes_per_second == pytest.approx(4 * 20 * GIGA)


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
    assert not _of_topology("v100-sxm2-32gb", 5, topology).is_fast


def test_cards_without_peer_to_peer_share_the_host_s_memory() -> None:
    # PCIe 4: 24 GB/s, 0.45 of it both ways at once; 77 GB/s of memory, each byte in and out.
    rates = {n: _of_record("rtx-4090", n).bytes_per_second / GIGA for n in (2, 4, 8)}
    assert rates == pytest.approx({2: 24 * 0.45, 4: 77 / 8, 8: 77 / 16})
    link = _of_record("rtx-4090", 4)
    assert (link.name, link.medium) == ("PCIe 4 x16 through host memory", "host")


def test_four_cards_of_a_seed_measured_over_pcie_3() -> None:
    # Boytsov's four GPUs without peer-to-peer: 5.2 to 6.5 GB/s of bus bandwidth.
    assert 5.2 <= _of_record("rtx-2080ti", 4).bytes_per_second / GIGA <= 6.5


def test_one_slow_server_does_not_speak_for_all_of_its_cards() -> None:
    # One L40S server was measured at 5.2 and 1.45 GB/s among 4 and 8; MLPerf's nodes of 4 leave some 15.
    links = {n: _of_record("l40s", n) for n in (2, 4, 8)}
    rates = {n: link.bytes_per_second / GIGA for n, link in links.items()}
    assert rates == pytest.approx({2: 24 * 0.8, 4: 77 / 8, 8: 77 / 16})
    assert {link.system for link in links.values()} == {""}


def test_a_card_whose_servers_were_measured_takes_their_curve() -> None:
    links = {n: _of_record("rtx-pro-6000", n) for n in (2, 4, 8, 16)}
    for link in links.values():
        assert (link.provenance, link.system) == (Provenance.MEASURED, "rtx_pro_6000_server")
    assert links[16].bytes_per_second == links[8].bytes_per_second


def test_eight_a100s_of_pcie_copy_to_each_other() -> None:
    """MooreThreads/SimuMax measured 12.5 GB/s; staged in host memory it would be 4.8."""
    rates = {n: _of_record("a100-pcie-80gb", n).bytes_per_second / GIGA for n in (3, 4, 8)}
    assert rates == pytest.approx({3: 20.8, 4: 20.8, 8: 12.5})


def test_a_measured_server_says_nothing_about_cards_on_one_switch() -> None:
    topology = _published("rtxpro6000_8gpu_2switch_spaces")
    links = group_links(records.gpu("rtx-pro-6000"), 8, topology)
    # PCIe 5: 54.75 GB/s, 0.8 of it from card to card.
    assert links[4, 1].bytes_per_second == pytest.approx(54.75 * 0.8 * GIGA)
    assert (links[4, 1].provenance, links[4, 1].system) == (Provenance.DERIVED, "")
    assert links[8, 1].bytes_per_second == pytest.approx(24.7 * GIGA)
    assert (links[8, 1].medium, links[8, 1].system) == ("pcie", "rtx_pro_6000_server")
    forced = group_links(records.gpu("rtx-pro-6000"), 8, topology, peer_to_peer=True)
    assert forced[8, 1].bytes_per_second == pytest.approx(54.75 * 0.8 * GIGA)


def test_half_the_lanes_have_half_the_bandwidth() -> None:
    # PCIe 5: 54.75 GB/s on 16 lanes; a 5060 Ti has 8 and no peer-to-peer.
    link = _of_record("rtx-5060ti", 2)
    assert link.bytes_per_second == pytest.approx(54.75 / 2 * 0.45 * GIGA)


def test_a_slot_slower_than_the_card_bounds_it() -> None:
    pair = Topology(
        num_gpus=2, nvlink={}, pcie={(0, 1): "PHB"}, pcie_generation={0: 1, 1: 3}, pcie_lanes={0: 8}
    )
    # PCIe 3 x16 reaches 12 GB/s; the first generation a quarter, 8 lanes half of that.
    link = _of_topology("rtx-4090", 2, pair)
    assert link.bytes_per_second == pytest.approx(12 / 4 / 2 * 0.45 * GIGA)


def test_groups_that_cross_sockets_together_share_the_link_between_the_cpus() -> None:
    near = {pair: "PIX" if (pair[0] < 4) == (pair[1] < 4) else "SYS" for pair in PAIRS}
    topology = Topology(num_gpus=8, nvlink={}, pcie=near)
    links = group_links(records.gpu("a10"), 8, topology)
    assert links[2, 1].bytes_per_second == pytest.approx(24 * 0.8 * GIGA)
    assert links[4, 1].bytes_per_second == pytest.approx(24 * 0.8 * GIGA)
    # Four pairs cross at once; the CPU link of that age carries 24 GB/s.
    assert links[2, 4].bytes_per_second == pytest.approx(24 / 4 * GIGA)
    # One ring through all stages twice in memory, on the way there and back: 24 * 0.45.
    assert links[8, 1].bytes_per_second == pytest.approx(24 * 0.45 * GIGA)


@pytest.mark.parametrize(
    ("pcie_class", "gb_per_s"),
    [("PIX", 19.2), ("PXB", 19.2), ("PHB", 9.625), ("NODE", 9.625), ("SYS", 9.625)],
)
def test_nccl_copies_directly_as_far_as_a_switch_reaches(pcie_class: str, gb_per_s: float) -> None:
    topology = Topology(num_gpus=4, nvlink={}, pcie=dict.fromkeys(PAIRS[:6], pcie_class))
    link = _of_topology("a10", 4, topology)
    assert link.bytes_per_second == pytest.approx(gb_per_s * GIGA)
    # Two GPUs copy directly at any distance.
    assert _of_topology("a10", 2, topology).medium == "pcie"


def test_numa_nodes_outvote_a_class_that_says_sys_everywhere() -> None:
    topology = _published("rtx4090-8-gpus-pcie")
    numa = {gpu: gpu // 4 for gpu in range(8)}
    told = replace(topology, numa=numa)
    links = group_links(records.gpu("rtx-4090"), 8, told, peer_to_peer=True)
    assert links[4, 1].bytes_per_second == pytest.approx(24 * 0.8 * GIGA)
    assert links[4, 2].bytes_per_second == pytest.approx(24 / 2 * GIGA)


def test_pairs_whose_copies_were_read_win_over_the_record() -> None:
    pcie = {(0, 1): "PIX"}
    works = Topology(num_gpus=2, nvlink={}, pcie=pcie, peer_to_peer={(0, 1): True})
    fails = Topology(num_gpus=2, nvlink={}, pcie=pcie, peer_to_peer={(0, 1): False})
    assert _of_topology("rtx-4090", 2, works).medium == "pcie"
    assert _of_topology("a10", 2, fails).medium == "host"


def test_bridged_a100_pairs_are_ten_times_faster_than_the_way_between() -> None:
    topology = _published("a100_pcie80_2bridged_pairs_2numa_tabs")
    links = group_links(records.gpu("a100-pcie-80gb"), 4, topology)
    assert set(links) == {(2, 1), (3, 1), (2, 2), (4, 1)}
    # Measured: 208 for a pair, 20 once the ring leaves it (NVIDIA/nccl-tests #178).
    assert 208 <= links[2, 1].bytes_per_second / GIGA <= 240
    assert links[4, 1].bytes_per_second == pytest.approx(0.8 * 24 * GIGA)
    assert links[3, 1].bytes_per_second == pytest.approx(0.45 * 24 * GIGA)
    assert links[2, 2].bytes_per_second == pytest.approx(24 / 2 * GIGA)


def test_the_order_of_the_gpus_decides_which_groups_are_bridged() -> None:
    shuffled = _shuffled_pairs()
    gpu = records.gpu("a100-pcie-80gb")
    assert not group_links(gpu, 4, shuffled)[2, 1].is_fast
    links = group_links(gpu, 4, shuffled, (0, 2, 1, 3))
    assert links[2, 1].bytes_per_second == pytest.approx(12 * 20 * GIGA)
    assert not links[2, 2].is_fast


def test_a_board_of_four_a100_has_no_switch() -> None:
    topology = _published("a100_sxm4_40gb_4gpu_hgx_nv4_2nic_spaces")
    links = group_links(records.gpu("a100-sxm-40gb"), 4, topology)
    # A pair has 4 of the 12 links; 72 to 73 GB/s were measured over them.
    assert [links[n, 1].bytes_per_second / GIGA for n in (2, 3, 4)] == pytest.approx([80, 160, 240])
    assert (links[4, 1].medium, links[4, 1].system) == ("nvlink", "")


def test_a_switch_is_a_measured_system_only_with_all_of_its_links() -> None:
    gpu = records.gpu("h100-sxm-80gb")
    assert group_links(gpu, 8, None)[8, 1].system == "h100_sxm"
    fewer = Topology(num_gpus=8, nvlink=dict.fromkeys(PAIRS, 8), pcie={})
    link = group_links(gpu, 8, fewer)[8, 1]
    assert (link.medium, link.system, link.name) == ("nvswitch", "", "NVLink 4 x 8")


def test_a_p3_8xlarge_is_bounded_by_its_single_links() -> None:
    links = group_links(records.gpu("v100-sxm2-16gb"), 4, _published("v100_4gpu_p3_8xlarge_tabs"))
    assert links[2, 1].bytes_per_second == pytest.approx(20 * GIGA)
    assert links[4, 1].bytes_per_second == pytest.approx(4 * 20 * GIGA)


def test_a_power9_joins_its_pairs_by_the_x_bus() -> None:
    topology = _published("power9_ac922_4gpu_nv3_6nic_tabs")
    links = group_links(records.gpu("v100-sxm2-16gb"), 4, topology)
    assert links[2, 1].bytes_per_second == pytest.approx(3 * 20 * GIGA)
    assert links[4, 1].bytes_per_second == pytest.approx(32 * GIGA)
    assert links[2, 2].bytes_per_second == pytest.approx(32 / 2 * GIGA)


def test_three_cards_of_which_two_are_bridged() -> None:
    links = group_links(records.gpu("a6000"), 3, _published("rtxa6000_3gpu_2bridged_1alone_tabs"))
    assert links[2, 1].bytes_per_second == pytest.approx(4 * 12 * GIGA)
    assert (links[3, 1].medium, links[3, 1].is_fast) == ("host", False)


def test_switching_peer_to_peer_off_takes_nvlink_away() -> None:
    topology = _published("nv2_2gpu_titanrtx_ml_engineering_spaces")
    bridged = _of_topology("titan-rtx", 2, topology)
    off = intra_node_link(records.gpu("titan-rtx"), 2, topology, peer_to_peer=False)
    assert bridged.bytes_per_second == pytest.approx(2 * 20 * GIGA)
    assert off.bytes_per_second == pytest.approx(12 * 0.45 * GIGA)
    # The published steps (0.510 and 0.657 s) differ by 0.148 s, of which the gradients of gpt2,
    # 498 MB in fp32, can explain no more than their whole extra time on the wire.
    extra = 498e6 / off.bytes_per_second - 498e6 / bridged.bytes_per_second
    assert 0.4 * 0.148 < extra < 0.148


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "v100-sxm2-32gb", "mi300x", "l40s"])
def test_without_peer_to_peer_every_gpu_is_staged_by_its_host(gpu: str) -> None:
    link = intra_node_link(records.gpu(gpu), 2, None, peer_to_peer=False)
    assert (link.medium, link.is_fast) == ("host", False)


def test_a_patched_driver_lets_any_cards_copy() -> None:
    gpu = records.gpu("rtx-4090")
    patched = intra_node_link(gpu, 4, None, peer_to_peer=True)
    assert patched.bytes_per_second == pytest.approx(24 * 0.8 * GIGA)
    assert patched.bytes_per_second > intra_node_link(gpu, 4, None).bytes_per_second


def test_a_fabric_other_than_nvlink_gives_each_pair_its_part() -> None:
    # MI300X: 7 peers of 64 GB/s, 448 in all; a ring is taken to reach 0.8 of it.
    links = group_links(records.gpu("mi300x"), 8, None)
    rates = {n: links[n, 1].bytes_per_second / GIGA for n in (2, 4, 8)}
    assert rates == pytest.approx({2: 0.8 * 64, 4: 0.8 * 3 * 64, 8: 0.8 * 448})
    assert (links[8, 1].is_fast, links[8, 1].medium) == (True, "xgmi")
    assert group_links(records.gpu("gaudi2"), 8, None)[8, 1].medium == "fabric"


def test_two_hives_of_xgmi_meet_over_pcie() -> None:
    hives = {pair: 1 for pair in PAIRS if (pair[0] < 4) == (pair[1] < 4)}
    pcie = {pair: "SYS" for pair in PAIRS if pair not in hives}
    topology = Topology(num_gpus=8, nvlink=hives, pcie=pcie)
    links = group_links(records.gpu("mi250x"), 8, topology)
    assert links[4, 1].bytes_per_second == pytest.approx(3 * 50 * 0.8 * GIGA)
    assert links[4, 1].name == "XGMI x 3"
    assert not links[8, 1].is_fast
    three = group_links(records.gpu("mi300x"), 8, topology)
    assert three[2, 1].bytes_per_second == pytest.approx(64 * 0.8 * GIGA)


def test_a_cube_mesh_of_the_record_has_the_links_of_its_generation() -> None:
    pascal = group_links(records.gpu("p100-sxm2-16gb"), 8, None)
    assert [pascal[n, 1].bytes_per_second / GIGA for n in (2, 4, 8)] == pytest.approx([18, 54, 72])
    volta = group_links(records.gpu("v100-sxm2-32gb"), 8, None)
    assert [volta[n, 1].bytes_per_second / GIGA for n in (2, 4, 8)] == pytest.approx([20, 80, 120])


def test_every_shape_of_a_small_node_has_a_link_and_of_a_large_one_those_that_divide_it() -> None:
    gpu = records.gpu("gb200")
    six = {(2, 1), (3, 1), (2, 2), (4, 1), (5, 1), (2, 3), (3, 2), (6, 1)}
    assert set(group_links(gpu, 6, None)) == six
    rack = group_links(gpu, 72, None)
    assert all(72 % (ranks * stride) == 0 for ranks, stride in rack)
    assert {(72, 1), (2, 36), (8, 9), (9, 1)} <= set(rack)
    assert {link.name for link in rack.values()} == {"NVLink 5 x 18"}
    assert len(group_links(gpu, 1024, None)) == 55
    assert group_links(gpu, 1, None) == {}


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "v100-sxm2-32gb", "rtx-4090", "mi300x"])
def test_the_whole_node_as_one_group_is_the_link_inside_the_node(name: str) -> None:
    gpu = records.gpu(name)
    assert group_links(gpu, 8, None)[8, 1] == intra_node_link(gpu, 8, None)


def test_a_topology_of_a_gpu_without_a_known_fabric_is_taken_as_it_is() -> None:
    # An A10 has no NVLink on record: 12 links to each of three peers must be a switch.
    topology = Topology(num_gpus=4, nvlink=dict.fromkeys(PAIRS[:6], 12), pcie={})
    link = _of_topology("a10", 4, topology)
    assert (link.medium, link.name) == ("nvswitch", "NVLink 3 x 12")


@pytest.mark.parametrize("name", records.gpu_names())
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
        for links in (
            1,
            2,
            3,
            4,
            12,
        )  # between 4 of a GPU's 12 to each peer and a switch lies nothing
    ]
    assert rates == pytest.approx([60e9, 120e9, 180e9, 240e9, 240e9])


def test_a_topology_of_fewer_gpus_than_the_node_has_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="shows 4 GPUs, but --gpus is 8") as caught:
        _of_topology("a30", 8, _published("a30-two-bridged-pairs"))
    assert caught.value.field == "cluster.topology"
    assert "--gpus 4" in caught.value.hint
