from typing import Any

import pytest

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.units import GIB
from planner.domain.cluster import Provenance
from planner.hardware.usual_network import network_of_instance
from planner.request.cluster import ResolvedCluster, resolve_cluster
from planner.request.sections import ClusterRequest


def resolved(**parts: Any) -> ResolvedCluster:
    return resolve_cluster(ClusterRequest(**parts))


def test_an_instance_says_all_that_a_cluster_needs() -> None:
    found = resolved(instance="P4D.24xlarge", nodes=2)
    cluster = found.cluster
    assert (found.assumptions, found.notes) == ((), ())
    assert (cluster.gpu.name, cluster.gpus_per_node, cluster.nodes) == ("a100-sxm-40gb", 8, 2)
    assert cluster.intra_node.is_fast
    assert cluster.inter_node == network_of_instance(records.instance("p4d.24xlarge"))
    assert cluster.host_memory_bytes == 1152 * GIB
    assert cluster.instance is records.instance("p4d.24xlarge")


def test_an_instances_network_is_a_share_of_its_data_sheet() -> None:
    link = network_of_instance(records.instance("p4d.24xlarge"))
    assert link.name == "p4d.24xlarge network, 400 Gbit/s"
    assert link.bytes_per_second == pytest.approx(45e9)
    assert link.latency_seconds == pytest.approx(30e-6)
    assert (link.provenance, link.medium) == (Provenance.DERIVED, "network")


@pytest.mark.parametrize("text", ["", "\n", "nothing here"])
def test_a_topology_that_holds_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no header line") as caught:
        resolved(topology=text)
    assert caught.value.field == "cluster.topology"


def test_a_topology_without_nvlink_assumes_cards_for_pcie() -> None:
    found = resolved(topology="\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n")
    assert found.cluster.gpu.name == "a100-pcie-80gb"
    (assumption,) = found.assumptions
    assert assumption.field == "cluster.gpu"
    assert "a100-pcie-80gb" in assumption.text
    assert "no NVLink" in assumption.text
    alone = resolved(topology="\tGPU0\nGPU0\t X \n")
    assert alone.cluster.gpu.name == "a100-sxm-80gb"


def test_one_node_has_no_network_to_others() -> None:
    one = {"gpu": "a100", "gpus_per_node": 4}
    said = ("one node has no network to others, so inter_node changes nothing",)
    for network in ("infiniband-ndr", {"gb_per_s_per_node": 50.0}, "nvl72-gb200"):
        assert resolved(**one, inter_node=network).notes == said
    assert resolved(**one).notes == ()
    for wrong in ("no-such-network", "nvlink-3"):
        with pytest.raises(InvalidInputError):
            resolved(**one, inter_node=wrong)


def test_links_of_another_generation_than_the_named_gpu_are_noted() -> None:
    wired = "\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n"
    (note,) = resolved(topology=wired, gpu="h100").notes
    assert note.startswith("the topology shows NV2, which is of another generation")
    assert resolved(topology=wired, gpu="v100").notes == ()


def test_one_node_has_no_network() -> None:
    assert resolved(instance="p4d.24xlarge").cluster.inter_node is None


@pytest.mark.parametrize("instance", records.instance_names())
def test_every_instance_gives_a_cluster(instance: str) -> None:
    found = resolved(instance=instance, nodes=2)
    assert {a.field for a in found.assumptions} <= {"cluster.inter_node"}
    assert found.cluster.gpus_per_node == records.instance(instance).gpus_per_node
    assert found.cluster.intra_node.bytes_per_second > 1e9


def test_an_unknown_network_is_assumed_and_said() -> None:
    found = resolved(instance="gpu_8x_a100", nodes=2)
    (assumption,) = found.assumptions
    assert assumption.field == "cluster.inter_node"
    assert "as the network of gpu_8x_a100 is not known" in assumption.text


def test_nodes_have_the_network_that_their_gpu_is_sold_with_and_it_is_said() -> None:
    found = resolved(gpu="h100", gpus_per_node=8, nodes=2)
    (assumption,) = found.assumptions
    assert assumption.text == ("8x infiniband-ndr between nodes (8 x 400 Gbit/s), as DGX H100 has")
    network = found.cluster.inter_node
    assert network is not None
    assert (network.name, network.provenance) == ("8x infiniband-ndr", Provenance.ASSUMED)
    assert resolved(gpu="h100", gpus_per_node=8).assumptions == ()


def test_a_networks_bare_name_is_one_port_and_that_is_said() -> None:
    one = resolved(gpu="h100", gpus_per_node=8, nodes=2, inter_node="infiniband-ndr")
    (assumption,) = one.assumptions
    assert assumption.text == (
        "one 400 Gbit/s port per node (infiniband-ndr, 50.0 GB/s); 8x infiniband-ndr is one per GPU"
    )
    for said in ("8x infiniband-ndr", "1x infiniband-ndr", "400Gbit/s", "aws-efa-v2"):
        assert resolved(gpu="h100", gpus_per_node=8, nodes=2, inter_node=said).assumptions == ()


RACK = "NVLink joins the nodes of a rack, 72 GPUs, as gb200 is sold"


def test_a_rack_is_joined_by_nvlink_and_needs_no_network() -> None:
    found = resolved(gpu="gb200", gpus_per_node=4, nodes=18)
    assert [assumption.text for assumption in found.assumptions] == [RACK]
    cluster = found.cluster
    assert (cluster.joined_gpus, cluster.needs_network) == (72, False)
    assert cluster.domain_link is not None
    assert cluster.domain_link.bytes_per_second == cluster.intra_node.bytes_per_second
    assert cluster.slowest_link.is_fast
    assert resolved(gpu="gb200", gpus_per_node=4).assumptions == ()


def test_beyond_a_rack_the_network_is_the_racks() -> None:
    found = resolved(gpu="gb200", gpus_per_node=4, nodes=32)
    assert [assumption.text for assumption in found.assumptions] == [
        RACK,
        "4x infiniband-ndr between nodes (4 x 400 Gbit/s), as GB200 NVL72 has",
    ]
    assert found.cluster.joined_gpus == 64
    assert found.cluster.slowest_link.name == "4x infiniband-ndr"


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        ({"gpu": "gb200", "nvlink_domain_gpus": 36}, 36),
        ({"gpu": "gb200", "nvlink_domain_gpus": 4}, 4),
        ({"gpu": "gb200", "inter_node": "nvl72-gb200"}, 72),
        ({"gpu": "gb200", "peer_to_peer": False}, 4),
        ({"instance": "Standard_ND_GB200_v6"}, 72),
        ({"gpu": "h100"}, 4),
        ({"gpu": "h100", "nvlink_domain_gpus": 32, "inter_node": "1x roce-100g"}, 24),
        ({"gpu": "v100-sxm2-32gb", "inter_node": "nvl72-gb200"}, 72),
    ],
)
def test_a_rack_may_be_said(parts: dict[str, Any], joined: int) -> None:
    cluster = resolved(gpus_per_node=4, nodes=18, **parts).cluster
    assert cluster.joined_gpus == joined
    assert (cluster.domain_link is not None) == (joined > 4)


@pytest.mark.parametrize(
    ("gpu", "nodes", "domain", "said"),
    [
        ("a100-sxm-80gb", 1, 72, "more than the 4 in use, so nvlink_domain_gpus changes nothing"),
        ("h100", 2, 72, "more than the 8 in use, so it joins them all"),
        ("h100", 2, 8, ""),
        ("gb200", 1, 72, ""),
    ],
)
def test_a_domain_of_more_gpus_than_are_in_use_is_remarked_on(
    gpu: str, nodes: int, domain: int, said: str
) -> None:
    found = resolved(gpu=gpu, gpus_per_node=4, nodes=nodes, nvlink_domain_gpus=domain)
    notes = [each for each in found.notes if "NVLink domain" in each]
    assert [note.endswith(said) for note in notes] == ([True] if said else [])
    alone = resolved(gpu=gpu, gpus_per_node=4, nodes=nodes).cluster
    assert (found.cluster.joined_gpus == alone.joined_gpus) == (nodes == 1)


@pytest.mark.parametrize(("fabric", "joined"), [("", 4), ("none", 4), (f"a1{'00' * 15}.7", 72)])
def test_a_probe_says_how_far_nvlink_reaches(fabric: str, joined: int) -> None:
    pairs = ", ".join(f'"{a}-{b}": 18' for a in range(4) for b in range(a + 1, 4))
    named = f', "fabric_cluster": "{fabric}"' if fabric else ""
    probed = f'{{"gpus": 4, "nvlink": {{{pairs}}}{named}}}'
    cluster = resolved(topology=probed, gpu="h100", nodes=18).cluster
    assert cluster.joined_gpus == joined
    none = resolved(topology=probed, gpu="gb200", nodes=18).cluster
    assert none.joined_gpus == (4 if fabric == "none" else 72)


def test_a_topology_of_an_instance_decides_its_wiring() -> None:
    by_pair = resolved(instance="Standard_NC96ads_A100_v4", gpus_per_node=2).cluster.intra_node
    whole = resolved(instance="Standard_NC96ads_A100_v4").cluster.intra_node
    assert by_pair.is_fast
    assert not whole.is_fast


def test_part_of_a_machine_is_said() -> None:
    found = resolved(instance="p5.48xlarge", gpus_per_node=4)
    assert found.cluster.gpus_per_node == 4
    assert found.notes == ("4 of the 8 GPUs of p5.48xlarge",)


def test_what_is_given_wins_over_the_instance_and_is_said() -> None:
    found = resolved(
        instance="p4d.24xlarge",
        nodes=2,
        gpu="h100",
        intra_node="pcie-5-x16",
        inter_node="infiniband-ndr",
    )
    assert found.cluster.gpu.name == "h100-sxm-80gb"
    assert found.cluster.intra_node.name == "pcie-5-x16"
    assert found.cluster.inter_node is not None
    assert found.cluster.inter_node.name == "infiniband-ndr"
    assert found.notes == (
        "h100-sxm-80gb as given, not the a100-sxm-40gb of p4d.24xlarge, so its price is not counted",
        "the links inside a node as given, not those of p4d.24xlarge",
        "the network as given, not that of p4d.24xlarge",
    )


def test_another_gpu_has_its_own_wiring() -> None:
    found = resolved(instance="Standard_NC96ads_A100_v4", gpu="h100")
    assert (
        found.cluster.intra_node.name
        == resolved(gpu="h100", gpus_per_node=4).cluster.intra_node.name
    )


def test_the_same_gpu_said_twice_is_no_news() -> None:
    assert resolved(instance="p4d.24xlarge", gpu="A100-40gb").notes == ()


@pytest.mark.parametrize(
    ("parts", "message", "field"),
    [
        ({"instance": "p4d.24xlarge", "gpus_per_node": 9}, "has 8 GPUs, not 9", "gpus_per_node"),
        ({"instance": "g5.xlarge", "gpu": "a10g:2"}, "has 1 GPU, not 2", "gpus_per_node"),
        ({"gpu": "3090:2,3060:1", "gpus_per_node": 2}, "names 3, but --gpus is 2", "gpus_per_node"),
        ({"instance": "p9.xlarge"}, "unknown instance", "instance"),
        (
            {"gpu": "gb200:4", "nodes": 2, "nvlink_domain_gpus": 70},
            "do not fill an NVLink domain of 70",
            "nvlink_domain_gpus",
        ),
        ({"nodes": 2, "inter_node": "8x aws-efa-v2"}, "all that a node has", "inter_node"),
    ],
)
def test_contradictions_are_refused(parts: dict[str, Any], message: str, field: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        resolved(**parts)
    assert caught.value.field == f"cluster.{field}"
    assert caught.value.hint


def test_a_list_of_gpus_counts_itself() -> None:
    found = resolved(gpu="3090:2")
    assert (found.cluster.gpu.name, found.cluster.gpus_per_node) == ("rtx-3090", 2)
    assert (found.assumptions, found.notes) == ((), ())


def test_mixed_gpus_are_planned_as_the_least_and_the_waste_is_said() -> None:
    found = resolved(gpu="rtx-3090:2,rtx-3060:1", gpus_per_node=3)
    assert found.cluster.gpu.name == "mixed: 2 x rtx-3090 + 1 x rtx-3060"
    assert found.cluster.gpu.memory_bytes == 12 * GIB
    assert found.cluster.gpus_per_node == 3
    assert "host memory" in found.cluster.intra_node.name
    (note,) = found.notes
    assert "without the rtx-3060" in note


def test_without_an_instance_host_memory_is_unknown() -> None:
    assert resolved(gpu="h100").cluster.host_memory_bytes == 0


def test_peer_access_is_passed_on_to_the_links() -> None:
    def rate(*, peer_to_peer: bool | None) -> float:
        cluster = resolved(gpu="4090:4", peer_to_peer=peer_to_peer).cluster
        return cluster.intra_node.bytes_per_second

    assert rate(peer_to_peer=None) == rate(peer_to_peer=False) < rate(peer_to_peer=True)
    slow = resolved(gpu="h100", gpus_per_node=8, peer_to_peer=False).cluster.intra_node
    assert not slow.is_fast


def test_peer_access_says_nothing_about_a_link_that_is_given() -> None:
    found = resolved(gpu="h100:8", intra_node="nvlink-4", peer_to_peer=False)
    assert found.notes == ("peer_to_peer changes nothing where the link inside a node is given",)
    assert found.cluster.intra_node.is_fast


def test_a_slot_without_peer_access_stages_in_host_memory() -> None:
    parts = {"gpu": "titan-rtx:2", "intra_node": "pcie-3-x16"}
    named = resolved(**parts).cluster
    staged = resolved(**parts, peer_to_peer=False)
    assert staged.notes == ()
    assert named.intra_node.name == "pcie-3-x16"
    assert staged.cluster.intra_node.name == "PCIe 3 x16 through host memory"
    assert staged.cluster.intra_node.bytes_per_second < named.intra_node.bytes_per_second
    assert staged.cluster.link(2) == staged.cluster.intra_node
    fewer = resolved(gpu="a40:4", intra_node="pcie-3-x8", peer_to_peer=False).cluster
    assert fewer.intra_node.name == "PCIe 3 x8 through host memory"
    assert fewer.gpu.pcie_generation == 4


@pytest.mark.parametrize(
    ("shape", "gpu", "others"),
    [("NV12", "a100-sxm-80gb", "a100-sxm-40gb"), ("NV18", "h100-sxm-80gb", "h200-sxm")],
)
def test_a_topology_without_names_tells_the_gpu_by_its_nvlinks(
    shape: str, gpu: str, others: str
) -> None:
    rows = [f"GPU{i} " + " ".join("X" if i == j else shape for j in range(4)) for i in range(4)]
    found = resolved(topology="\n".join(["GPU0 GPU1 GPU2 GPU3", *rows]))
    (assumption,) = found.assumptions
    assert found.cluster.gpu.name == gpu
    assert assumption.field == "cluster.gpu"
    assert assumption.text.startswith(f"{gpu} GPUs, as NVLink joins them so (")
    assert others in assumption.text


def test_the_topology_that_decided_is_kept() -> None:
    topology = "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X"
    given = resolved(gpu="3090:2", topology=topology, intra_node="pcie-4-x16").cluster
    assert given.topology is not None
    assert given.intra_node.is_fast
    assert resolved(gpu="3090:2").cluster.topology is None
    own = resolved(instance="p3.8xlarge").cluster
    assert own.topology is not None
    assert own.topology.num_gpus == 4


NAMED = """index, name, memory.total [MiB], driver_version
0, NVIDIA A30, 24576 MiB, 550.54
1, NVIDIA A30, 24576 MiB, 550.54
"""
PAIR = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"


def test_a_topology_says_which_gpus_and_how_many() -> None:
    found = resolved(topology=f"{NAMED}\n{PAIR}")
    assert (found.cluster.gpu.name, found.cluster.gpus_per_node) == ("a30", 2)
    assert found.assumptions == ()
    assert found.cluster.intra_node.is_fast
    part = resolved(topology=f"{NAMED}\n{PAIR}", gpus_per_node=1)
    assert part.cluster.gpus_per_node == 1


def test_mixed_names_in_a_topology_are_planned_as_the_smallest() -> None:
    found = resolved(topology=f"{NAMED.replace('1, NVIDIA A30', '1, NVIDIA A40')}\n{PAIR}")
    assert found.cluster.gpu.name == "mixed: 1 x a30 + 1 x a40"
    assert "every rank is planned as the smallest" in found.notes[0]


def test_what_a_paste_leaves_out_comes_from_the_gpus_record_and_is_said() -> None:
    found = resolved(topology=NAMED)
    assert found.cluster.topology is None
    assert any("(TOP002)" in note for note in found.notes)
    assert "so the usual links of a30 are taken" in found.notes[-1]


def test_near_ranks_sit_on_fast_links() -> None:
    crossed = (
        "\tGPU0\tGPU1\tGPU2\tGPU3\n"
        "GPU0\t X \tSYS\tNV4\tSYS\n"
        "GPU1\tSYS\t X \tSYS\tNV4\n"
        "GPU2\tNV4\tSYS\t X \tSYS\n"
        "GPU3\tSYS\tNV4\tSYS\t X \n"
    )
    cluster = resolved(topology=crossed, gpu="a30").cluster
    assert cluster.gpu_order == (0, 2, 1, 3)
    assert cluster.link(2, 1).is_fast
    assert not cluster.link(2, 2).is_fast
    assert not cluster.link(4, 1).is_fast


@pytest.mark.parametrize(
    ("gpu", "gpus", "nodes_of"),
    [
        ("h100", 512, (64, 8)),
        ("v100-sxm2-32gb", 64, (8, 8)),
        ("3090", 64, (8, 8)),
        ("gb300", 144, (36, 4)),
    ],
)
def test_more_gpus_than_a_node_has_are_those_in_all(
    gpu: str, gpus: int, nodes_of: tuple[int, int]
) -> None:
    found = resolved(gpu=gpu, gpus_per_node=gpus)
    assert (found.cluster.nodes, found.cluster.gpus_per_node) == nodes_of
    (said,) = [each.text for each in found.assumptions if each.field == "cluster.gpus_per_node"]
    assert said.startswith(f"{gpus} GPUs in all")
    assert found.cluster.needs_network


@pytest.mark.parametrize(
    ("cluster", "readings"),
    [
        ({"gpus_per_node": 32, "nodes": 4}, ["--gpus 8 --nodes 4 ", "--gpus 8 --nodes 16 "]),
        ({"gpus_per_node": 12}, ["--gpus 6 --nodes 2 "]),
    ],
)
def test_what_makes_no_nodes_of_them_is_asked_back(
    cluster: dict[str, Any], readings: list[str]
) -> None:
    with pytest.raises(InvalidInputError, match="no node with h100-sxm-80gb has") as caught:
        resolved(gpu="h100", **cluster)
    assert all(each in caught.value.hint for each in readings)
    assert caught.value.field == "cluster.gpus_per_node"


@pytest.mark.parametrize(
    "cluster",
    [
        {"gpu": "v100-sxm2-32gb", "gpus_per_node": 16},
        {"gpu": "gb200", "gpus_per_node": 72},
        {"gpu": "h100", "gpus_per_node": 16, "nodes": 2, "intra_node": "nvlink-4"},
    ],
)
def test_a_node_that_is_sold_or_described_is_taken_as_it_is(cluster: dict[str, Any]) -> None:
    found = resolved(**cluster)
    assert found.cluster.gpus_per_node == cluster["gpus_per_node"]
    assert "cluster.gpus_per_node" not in {each.field for each in found.assumptions}
