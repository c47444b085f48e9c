import random
from itertools import combinations
from pathlib import Path

import pytest

from planner.hardware.topology import Nic, Topology, TopologyFinding, draw, parse_topology

PUBLISHED = Path(__file__).parents[1] / "topologies"
FILES = [path for path in sorted(PUBLISHED.rglob("*.txt")) if "error" not in path.stem]


def _drawn(name: str) -> str:
    return draw(parse_topology((PUBLISHED / f"{name}.txt").read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", FILES, ids=[path.parent.name + "/" + path.stem for path in FILES])
def test_every_published_topology_fits_the_page(path: Path) -> None:
    topology = parse_topology(path.read_text(encoding="utf-8"))
    text = draw(topology)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(line == line.rstrip() for line in text.splitlines())
    assert all(finding.code in text for finding in topology.findings)


def test_a_mesh_shows_its_links_and_what_joins_its_halves() -> None:
    assert (
        _drawn("dgx1_v100_pytorch_ddp_spaces")
        == """\
8 GPUs, 2 NVLink islands

  +--------------------------+  +--------------------------+
  | GPU     0    1    2    3 |  | GPU     4    5    6    7 |
  |   0     .  NV1  NV1  NV2 |  |   4     .  NV1  NV1  NV2 |
  |   1   NV1    .  NV2  NV1 |  |   5   NV1    .  NV2  NV1 |
  |   2   NV1  NV2    .  NV2 |  |   6   NV1  NV2    .  NV2 |
  |   3   NV2  NV1  NV2    . |  |   7   NV2  NV1  NV2    . |
  +--------------------------+  +--------------------------+

Between them
  GPU0-3 - GPU4-7  NV1 2-6 3-7; NV2 0-4 1-5; SYS 12 pairs

By GPU
  GPU  nearest adapters
  0-1  mlx5_0 (PIX)
  2-3  mlx5_1 (PIX)
  4-5  mlx5_2 (PIX)
  6-7  mlx5_3 (PIX)
"""
    )


def test_a_switch_is_one_box() -> None:
    assert (
        _drawn("a100_8gpu_18nic_oci_numa4_spaces")
        == """\
8 GPUs, 1 NVLink island

  +-------------------------+
  | GPU0-7: NV12 every pair |
  +-------------------------+

By GPU
  GPU  NUMA node  nearest adapters
  0-1  3          mlx5_5 to mlx5_8 (PXB)
  2-3  1          mlx5_1 to mlx5_4 (PXB)
  4-5  7          mlx5_14 to mlx5_17 (PXB)
  6-7  5          mlx5_9 to mlx5_12 (PXB)
"""
    )


def test_a_bridged_pair_stands_beside_the_gpu_that_is_alone() -> None:
    assert (
        _drawn("rtxa6000_3gpu_2bridged_1alone_tabs")
        == """\
3 GPUs, 1 NVLink island and 1 alone

  +-------------+  +------+
  | GPU0-1: NV4 |  | GPU2 |
  +-------------+  +------+

Between them
  GPU0-1 - GPU2  NODE every pair

By GPU
  GPU  NUMA node
  0-2  0
"""
    )


def test_without_nvlink_the_classes_are_shown_and_the_findings_follow() -> None:
    assert (
        _drawn("rtx4090_8gpu_2nic_gogpuallocator_tabs")
        == """\
8 GPUs, no NVLink

  +------------------------+
  | GPU0-7: SYS every pair |
  +------------------------+

By GPU
  GPU    NUMA node  nearest adapters
  0-3    0          NIC0, NIC1 (SYS)
  4-5,7  1          NIC0, NIC1 (SYS)
  6      1          NIC0, NIC1 (PHB)

Findings (planner explain CODE says more)
  TOP011  all 28 pairs read SYS, within NUMA nodes too; the split is taken from the NUMA column:
          GPU0-3 on node 0, GPU4-7 on node 1
"""
    )


def test_what_is_unknown_is_a_question_mark() -> None:
    text = _drawn("other/nvlink_s_3xa6000_one_inactive")
    assert "3 x NVIDIA RTX A6000, joined by NVLink as far as was read" in text
    assert "|   2     ?    ?    . |" in text
    assert "  0-1  4 x 14.06 GB/s\n  2    0\n" in text
    table = "index, name, pcie.link.gen.max\n0, T4, 3\n1, T4, 3\n"
    assert "2 x T4, no NVLink was read\n" in draw(parse_topology(table))


def test_one_gpu_is_one_box() -> None:
    assert (
        draw(Topology(num_gpus=1, nvlink={}, pcie={}))
        == """\
1 GPU

  +------+
  | GPU0 |
  +------+
"""
    )


def test_peer_to_peer_copies_are_counted() -> None:
    pcie = {(0, 1): "PIX", (0, 2): "SYS", (1, 2): "SYS"}
    for works, says in (
        ({}, ""),
        (dict.fromkeys(pcie, True), "Peer-to-peer copies: all of 3 pairs"),
        (dict.fromkeys(pcie, False), "Peer-to-peer copies: none of 3 pairs"),
        ({(0, 1): True, (0, 2): False}, "Peer-to-peer copies: 1 of 2 pairs (GPU0-GPU1)"),
    ):
        text = draw(Topology(num_gpus=3, nvlink={}, pcie=pcie, peer_to_peer=works))
        assert says in text
        assert ("Peer-to-peer" in text) == bool(works)


def test_slots_and_many_kinds_of_gpus_are_shown() -> None:
    names = ("A", "B", "C")
    topology = Topology(
        num_gpus=3, nvlink={}, pcie={}, gpu_names=names, pcie_generation={0: 4}, pcie_lanes={0: 8}
    )
    assert draw(topology).startswith("3 GPUs, no NVLink was read\n")
    assert "  0    gen 4 x8\n  1-2  -" in draw(topology)


def test_islands_that_a_single_pair_joins_are_said_so() -> None:
    pair = Topology(num_gpus=3, nvlink={(1, 2): 2}, pcie={(0, 1): "PIX", (0, 2): "SYS"})
    assert "  GPU0 - GPU1-2  PIX 1 pair; SYS 1 pair\n" in draw(pair)
    apart = Topology(
        num_gpus=4,
        nvlink={(0, 1): 1},
        pcie={p: "SYS" for p in combinations(range(4), 2) if p[1] > 1},
    )
    assert "  GPU2 - GPU3    SYS\n" in draw(apart)


def _wild(dice: random.Random) -> Topology:
    num_gpus = dice.choice([1, 2, 5, 8, 16, 17, 33, 72])
    links, share = dice.choice([1, 36]), dice.random()
    pairs = list(combinations(range(num_gpus), 2))
    nvlink = {pair: dice.randint(1, links) for pair in pairs if dice.random() < share}
    rest = [pair for pair in pairs if pair not in nvlink and dice.random() < 0.9]
    gpus = range(num_gpus)
    return Topology(
        num_gpus=num_gpus,
        nvlink=nvlink,
        pcie={pair: dice.choice(["PIX", "NODE", "SYS"]) for pair in rest},
        nics=tuple(
            Nic(name="n" * dice.randint(1, 80), pcie=dict.fromkeys(gpus, "PIX"))
            for _ in range(dice.randint(0, 5))
        ),
        numa={gpu: dice.randint(0, 9999) for gpu in gpus},
        gpu_names=tuple("G" * dice.randint(1, 80) for _ in gpus),
        findings=(TopologyFinding(code="TOP002", message="m" * 300),),
    )


def test_the_wildest_topology_fits_the_page() -> None:
    dice = random.Random(7)
    for _ in range(60):
        text = draw(_wild(dice))
        assert max(len(line) for line in text.splitlines()) <= 100
