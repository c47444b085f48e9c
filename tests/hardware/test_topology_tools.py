from itertools import combinations
from pathlib import Path

import pytest

from planner.core.errors import InvalidInputError
from planner.core.units import MIB
from planner.hardware.topology import Topology, dump, parse_topology

OTHER = Path(__file__).parents[1] / "topologies" / "other"
MATRIX = "$ nvidia-smi topo -m\n GPU0 GPU1\nGPU0 X {0}\nGPU1 {0} X\n"
PEERS = "$ nvidia-smi topo -p2p {1}\n GPU0 GPU1\n GPU0 X {0}\n GPU1 {0} X\n"


def _other(name: str) -> Topology:
    return parse_topology((OTHER / name).read_text(encoding="utf-8"))


def _codes(topology: Topology) -> list[str]:
    return [finding.code for finding in topology.findings]


def _refused(text: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        parse_topology(text)
    assert caught.value.field == "cluster.topology"
    return caught.value.message


def _hives(num_gpus: int, size: int) -> dict[tuple[int, int], int]:
    return {(a, b): 1 for a, b in combinations(range(num_gpus), 2) if a // size == b // size}


def test_peer_to_peer_statuses_are_read() -> None:
    pairs = list(combinations(range(8), 2))
    assert _other("p2p_r_8xh100_ok.txt").peer_to_peer == dict.fromkeys(pairs, True)
    assert _codes(_other("p2p_rw_4x5060ti_ok_patched.txt")) == ["TOP002"]
    geforce = _other("p2p_rw_2x5090_gns.txt")
    assert geforce.peer_to_peer == {(0, 1): False}
    assert geforce.findings[1].message == (
        "peer-to-peer copies do not work for 1 of 1 pairs (GPU0-GPU1): GNS, GPU not supported"
    )


def test_a_pair_copies_if_reads_and_writes_both_work() -> None:
    text = MATRIX.format("SYS") + PEERS.format("OK", "r") + PEERS.format("CNS", "w")
    assert parse_topology(text).peer_to_peer == {(0, 1): False}
    assert parse_topology(MATRIX.format("SYS") + PEERS.format("U", "r")).peer_to_peer == {}
    one_way = " GPU0 GPU1\n GPU0 X NS\n GPU1 OK X\n"
    assert parse_topology(one_way).peer_to_peer == {(0, 1): False}


def test_nvlinks_own_table_and_atomics_say_nothing_of_pcie() -> None:
    assert parse_topology(PEERS.format("NS", "n")).peer_to_peer == {}
    assert parse_topology(PEERS.format("OK", "n")).peer_to_peer == {(0, 1): True}
    assert parse_topology(PEERS.format("NS", "a")).peer_to_peer == {}


def test_an_unknown_peer_to_peer_status_is_refused() -> None:
    wrong = " GPU0 GPU1 GPU2\n GPU0 X OK WHY\n GPU1 OK X OK\n"
    assert "line 2: cannot read 'WHY' in a peer-to-peer table" in _refused(wrong)


def test_links_per_gpu_and_their_rate_are_read() -> None:
    pair = _other("nvlink_s_2x3090.txt")
    assert pair.active_nvlinks == {0: 4, 1: 4}
    assert pair.nvlink_bytes_per_second == {0: 14.062e9, 1: 14.062e9}
    assert pair.gpu_names == ("NVIDIA GeForce RTX 3090",) * 2
    assert (pair.nvlink, _codes(pair)) == ({(0, 1): 4}, ["TOP007"])
    sparse = _other("nvlink_s_2xv100_rwth_sparse_links.txt")
    assert (sparse.active_nvlinks, sparse.nvlink) == ({0: 2, 1: 2}, {(0, 1): 2})


def test_a_gpu_whose_links_are_inactive_is_alone() -> None:
    three = _other("nvlink_s_3xa6000_one_inactive.txt")
    assert three.active_nvlinks == {0: 4, 1: 4, 2: 0}
    assert (three.islands, three.missing_pairs) == (((0, 1), (2,)), ((0, 2), (1, 2)))


def test_links_that_could_lead_anywhere_are_not_guessed() -> None:
    four = "".join(f"GPU {gpu}: A100 (UUID: x)\n Link 0: 25 GB/s\n" for gpu in range(4))
    assert parse_topology(four).nvlink == {}
    uneven = "GPU 0: A (UUID: x)\n Link 0: 25 GB/s\nGPU 1: A (UUID: x)\n Link 0: <inactive>\n"
    assert parse_topology(uneven).nvlink == {}


def test_a_list_of_gpus_gives_their_names() -> None:
    text = "GPU 0: Tesla T4 (UUID: GPU-1)\nGPU 1: NVIDIA A10 (UUID: GPU-2)\n"
    assert parse_topology(text).gpu_names == ("Tesla T4", "NVIDIA A10")
    only_second = "GPU 1: NVIDIA A10 (UUID: GPU-2)\n"
    assert parse_topology(MATRIX.format("SYS") + only_second).gpu_names == ()
    assert "line 1: GPU 72" in _refused("GPU 72: Tesla T4 (UUID: GPU-1)\n")


INSTANCES = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0b1f5a33)
  MIG 1g.10gb     Device  0: (UUID: MIG-a1)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-a2)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-77aa)
  MIG 3g.40gb     Device  0: (UUID: MIG-b1)
GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-77ab)
"""


def test_gpus_that_are_split_by_mig_are_said() -> None:
    topology = parse_topology(INSTANCES)
    assert topology.mig_instances == {0: 2, 1: 1}
    assert _codes(topology) == ["PRB004", "PRB004", "TOP002"]
    first = topology.findings[0].message
    assert first.startswith("GPU0 is split by MIG into 2 instances: a process gets one of them")
    assert first.endswith("plans are for the whole GPU, with MIG off")
    assert parse_topology(dump(topology)) == topology


def test_a_query_of_the_mode_says_that_a_gpu_is_split() -> None:
    query = "index, name, mig.mode.current\n0, NVIDIA A30, Enabled\n1, NVIDIA A30, Disabled\n"
    (finding, _) = parse_topology(query).findings
    assert finding.code == "PRB004"
    assert "GPU0 is split by MIG: " in finding.message
    both = "GPU 0: NVIDIA A30 (UUID: GPU-1)\n  MIG 1g.6gb Device  0: (UUID: MIG-1)\n" + query
    assert "into 1 instance: " in parse_topology(both).findings[0].message


def test_links_that_are_up_are_compared_with_the_matrix() -> None:
    status = "GPU 0: A (UUID: x)\n Link 0: 25 GB/s\n Link 1: 25 GB/s\nGPU 1: A (UUID: x)\n"
    hidden = parse_topology(MATRIX.format("SYS") + status)
    assert hidden.findings[0].message == "GPU0: 2 NVLinks are up, and the matrix shows none"
    down = parse_topology(MATRIX.format("NV4") + status)
    assert down.findings[0].message == "GPU0: the matrix shows NV4, and 2 links are up"
    assert _codes(parse_topology(MATRIX.format("NV2") + status)) == []


def test_the_table_of_a_gpu_query_is_read() -> None:
    a100 = _other("query_gpu_4xa100.csv")
    assert a100.gpu_names == ("NVIDIA A100-SXM4-80GB",) * 4
    assert a100.memory_bytes == dict.fromkeys(range(4), 81920 * MIB)
    slots = _other("query_gpu_pcie_4x5060ti.csv")
    assert slots.pcie_generation == dict.fromkeys(range(4), 3)
    assert slots.pcie_lanes == dict.fromkeys(range(4), 8)
    assert _other("query_gpu_2xl4_mig_na.csv").gpu_names == ("NVIDIA L4",) * 2


def test_a_gpu_query_without_index_or_units_is_counted() -> None:
    text = "name, memory.total [MiB], pcie.link.gen.max\nT4, 15360, [N/A]\nT4, 15360, 0\nend\n"
    topology = parse_topology(text)
    assert topology.memory_bytes == {0: 15360 * MIB, 1: 15360 * MIB}
    assert (topology.num_gpus, topology.pcie_generation) == (2, {})
    assert "line 2: GPU 99" in _refused("index, name\n99, T4\n")
    assert parse_topology("index, name\n[N/A], T4\n0, \u7565\n").gpu_names == ()


def test_several_outputs_are_one_topology() -> None:
    peers = PEERS.format("OK", "r")
    listed = (OTHER / "nvlink_s_2x3090.txt").read_text(encoding="utf-8")
    table = "index, name, memory.total [MiB]\n0, RTX 3090, 24576 MiB\n1, RTX 3090, 24576 MiB\n"
    outputs = [MATRIX.format("NV4"), peers, listed, table]
    topology = parse_topology("\n".join(outputs))
    assert topology == parse_topology("\n".join([table, peers, listed, MATRIX.format("NV4")]))
    assert (topology.nvlink, topology.peer_to_peer) == ({(0, 1): 4}, {(0, 1): True})
    assert topology.memory_bytes == {0: 24576 * MIB, 1: 24576 * MIB}
    assert _codes(topology) == []


def test_outputs_of_different_nodes_are_refused() -> None:
    eight = (OTHER / "p2p_r_8xh100_ok.txt").read_text(encoding="utf-8")
    assert _refused(MATRIX.format("NV4") + eight) == "one output shows 8 GPUs and another 2"
    four = (OTHER / "query_gpu_4xa100.csv").read_text(encoding="utf-8")
    assert _refused(MATRIX.format("NV4") + four) == "one output shows 2 GPUs and another 4"


def test_of_two_matrices_the_one_with_nvlink_is_read() -> None:
    with_pcie_only = MATRIX.replace("-m", "-mp").format("SYS")
    topology = parse_topology(with_pcie_only + MATRIX.format("NV4"))
    assert topology.nvlink == {(0, 1): 4}
    assert topology.findings[0].message == (
        "the paste holds 2 matrices that differ; the first with NVLink was read (2 GPUs)"
    )
    assert _codes(parse_topology(MATRIX.format("PIX") + MATRIX.format("SYS"))) == ["TOP006"]
    assert _codes(parse_topology(MATRIX.format("SYS") * 2)) == []
    assert _codes(parse_topology(with_pcie_only)) == ["TOP003"]


def test_sxm_gpus_without_nvlink_are_reported_by_name() -> None:
    cells = [["X" if a == b else "SYS" for b in range(8)] for a in range(8)]
    rows = [f"GPU{gpu} {' '.join(row)}" for gpu, row in enumerate(cells)]
    names = [f"GPU {gpu}: NVIDIA A100-SXM4-80GB (UUID: x)" for gpu in range(8)]
    text = "\n".join([" ".join(f"GPU{gpu}" for gpu in range(8)), *rows, *names])
    assert _codes(parse_topology(text)) == ["TOP005"]
    assert _codes(parse_topology(text.replace("-SXM4", " PCIe"))) == []


def test_xgmi_pairs_are_one_link_each() -> None:
    hives = _other("rocm_showtopo_8gpu_two_xgmi_hives.txt")
    assert (hives.nvlink, set(hives.pcie.values())) == (_hives(8, 4), {"SYS"})
    assert (hives.islands, _codes(hives)) == (((0, 1, 2, 3), (4, 5, 6, 7)), ["TOP009"])
    by_weight = _other("rocm_showtopo_8gpu_two_xgmi_hives_weight_only.txt")
    assert (by_weight.nvlink, by_weight.pcie) == (hives.nvlink, hives.pcie)
    assert _other("rocm_showtopo_4gpu_xgmi_archer2_mi210.txt").nvlink == _hives(4, 4)
    assert _other("rocm_showtopo_1gpu_sglang.txt").num_gpus == 1


def test_rocm_numa_nodes_are_read() -> None:
    assert _other("rocm_showtopo_4gpu_mi300a_numa.txt").numa == {0: 0, 1: 1, 2: 2, 3: 3}
    nodes = _other("rocm_showtoponuma_8gpu.txt")
    assert nodes.numa_nodes == {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}
    assert _codes(nodes) == ["TOP002"]
    assert "GPU 99" in _refused("GPU[99] : (Topology) Numa Node: 0")


def _rocm(**tables: str) -> str:
    titles = {
        "weight": "Weight",
        "hops": "Hops",
        "kind": "Link Type",
        "access": "Link accessibility",
    }
    return "".join(
        f"==== {titles[name]} between two GPUs ====\n  GPU0 GPU1\nGPU0 0 {cell}\nGPU1 {cell} 0\n"
        for name, cell in tables.items()
    )


def test_amd_pcie_pairs_have_a_class_by_hops_or_weight() -> None:
    assert set(_other("rocm_showtopo_4gpu_pcie.txt").pcie.values()) == {"SYS"}
    assert parse_topology(_rocm(hops="2", kind="PCIE")).pcie == {(0, 1): "PHB"}
    assert parse_topology(_rocm(weight="40")).pcie == {(0, 1): "PHB"}
    assert parse_topology(_rocm(weight="72")).pcie == {(0, 1): "SYS"}
    assert parse_topology(_rocm(kind="N/A")).missing_pairs == ((0, 1),)


def test_xgmi_over_other_gpus_is_said() -> None:
    far = parse_topology(_rocm(weight="30", kind="XGMI"))
    assert far.nvlink == {(0, 1): 1}
    assert far.findings[0].message.endswith("; GPU0-GPU1 pass through other GPUs")


def test_amd_access_is_peer_to_peer() -> None:
    assert parse_topology(_rocm(kind="PCIE", access="False")).peer_to_peer == {(0, 1): False}


def test_rocm_outputs_that_cannot_be_read_are_refused() -> None:
    failed = (OTHER / "rocm_showtopo_mi300_tpx_error.txt").read_text(encoding="utf-8")
    assert _refused(failed).startswith("line 3: rocm-smi could not read the topology: get_link")
    torn = _rocm(kind="XGMI").replace("GPU1 XGMI", "GPU1 PCIE")
    assert "GPU1-GPU0 reads 'PCIE', and 'XGMI' the other way" in _refused(torn)
    smaller = _rocm(kind="XGMI") + "Hops between two GPUs\n GPU0\nGPU0 0\n"
    assert "different numbers of GPUs" in _refused(smaller)
    assert "rocm-smi and of nvidia-smi" in _refused(_rocm(kind="XGMI") + MATRIX.format("SYS"))


REORDERED = {
    "tabs": "\tGPU2\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU2\tX\tSYS\tPHB\tPIX\t2-3\n"
    "GPU0\tSYS\tX\tNV4\tSYS\t0-1\nGPU1\tPHB\tNV4\tX\tSYS\t0-1\nNIC0\tPIX\tSYS\tSYS\tX\n",
    "words": "GPU1 GPU2 GPU0 NIC0\nGPU0 NV4 SYS X SYS\nGPU1 X PHB NV4 SYS\nGPU2 PHB X SYS PIX\n"
    "NIC0 SYS PIX SYS X\n",
    "in order": "GPU0 GPU1 GPU2 NIC0\nGPU0 X NV4 SYS SYS\nGPU1 NV4 X PHB SYS\nGPU2 SYS PHB X PIX\n"
    "NIC0 SYS SYS PIX X\n",
}


@pytest.mark.parametrize("text", REORDERED.values(), ids=REORDERED)
def test_columns_are_read_by_their_names(text: str) -> None:
    topology = parse_topology(text)
    assert topology.nvlink == {(0, 1): 4}
    assert topology.pcie == {(0, 2): "SYS", (1, 2): "PHB"}
    (nic,) = topology.nics
    assert nic.pcie == {0: "SYS", 1: "SYS", 2: "PIX"}
    assert _codes(topology) == []


def test_a_reordered_matrix_that_was_cut_is_rebuilt() -> None:
    topology = parse_topology("GPU2 GPU0 GPU1\nGPU2 X SYS PHB\nGPU0 SYS X NV4\n")
    assert topology.nvlink == {(0, 1): 4}
    assert topology.pcie == {(0, 2): "SYS", (1, 2): "PHB"}
    assert _codes(topology) == ["TOP001"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
            "line 1: nvidia-smi did not reach the driver: NVIDIA-SMI has failed",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "did not reach the driver"),
        ("$ nvidia-smi topo -m\nNo devices were found", "line 2: nvidia-smi found no GPU"),
        ("bash: nvidia-smi: command not found", "the tool is not there: bash: "),
    ],
)
def test_what_a_tool_says_of_its_failure_is_named(text: str, says: str) -> None:
    assert says in _refused(text)
