import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.hardware.topology import parse_topology
from planner.hardware.topology.clean import clean
from planner.hardware.topology.matrix import read_text
from planner.hardware.topology.table import find_tables

PUBLISHED = Path(__file__).parents[1] / "topologies"
EXPECTED: dict[str, Any] = json.loads((PUBLISHED / "expected.json").read_text(encoding="utf-8"))
FILES = [path for path in sorted(PUBLISHED.rglob("*.txt")) if path.stem in EXPECTED]

NUMA = {
    "a100_4gpu_leonardo_srun_cpu0_spaces": [0, 0, 0, 0],
    "a100_4gpu_slingshot_polaris_like_spaces": [3, 2, 1, 0],
    "a100_8gpu_18nic_oci_numa4_spaces": [3, 3, 1, 1, 7, 7, 5, 5],
    "a100_sxm_2of4_gpus_no_leading_tab_tabs": [3, 5],
    "gb200_4gpu_8nic_multinuma_spaces": [0, 0, 1, 1],
    "gh200_4gpu_nv6_deltaai_spaces": [0, 1, 2, 3],
    "h100_4gpu_brev_blank_cpu_affinity_tabs": [0, 1, 1, 1],
    "h100_8gpu_12nic_ndr_truncated_head_tabs": [0, 0, 0, 0, 1, 1, 1, 1],
    "power9_ac922_4gpu_nv3_6nic_tabs": [0, 0, 8, 8],
    "rtx4090_8gpu_2nic_gogpuallocator_tabs": [0, 0, 0, 0, 1, 1, 1, 1],
    "rtxa6000_3gpu_2bridged_1alone_tabs": [0, 0, 0],
    "v100_4gpu_p3_8xlarge_tabs": [],
    "dgx1_v100_pytorch_ddp_spaces": [],
}

CODES = {
    "a100_sxm4_80gb_4gpu_nvswitch_rocep_nic_tabs": ["TOP012"],
    "b200_8gpu_16nic_truncated_spaces": ["TOP001", "TOP002"],
    "club3090_pahi_reflowed_spaces": ["TOP010"],
    "dask_cuda_2gpu_10nic_slurm_truncated_spaces": ["TOP001"],
    "dgx1_v100_topo_mp_tabs": ["TOP001", "TOP002", "TOP003"],
    "dgx2_v100_16gpu_nv6_truncated_spaces": ["TOP001", "TOP002"],
    "gb200_4gpu_8nic_multinuma_spaces": ["TOP012"],
    "gb200_sglang_11208_truncated_spaces": ["TOP001", "TOP001", "TOP012"],
    "h100_8gpu_12nic_ndr_truncated_head_tabs": ["TOP001"],
    "h_noswitch_8gpu_sys_deepep128_truncated_spaces": ["TOP001", "TOP002", "TOP005", "TOP011"],
    "k8s_8gpu_mlx4_trailing_spaces_truncated": ["TOP001", "TOP002"],
    "p40_8gpu_soc_paddle_tabs": ["TOP012"],
    "rtx4090_8gpu_2nic_gogpuallocator_tabs": ["TOP011"],
    "rtx5060ti_4gpu_phb_tabs": ["TOP004"],
    "rtxpro6000_4gpu_vm_phb_tabs": ["TOP004"],
}
"""The findings of every file that has any."""


def _read(name: str) -> str:
    return (PUBLISHED / f"{name}.txt").read_text(encoding="utf-8")


def test_every_expectation_has_its_file() -> None:
    assert {path.stem for path in FILES} == EXPECTED.keys()
    assert len(FILES) == 57 + 7


@pytest.mark.parametrize("path", FILES, ids=[path.parent.name + "/" + path.stem for path in FILES])
def test_a_published_matrix_is_read_exactly(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    topology = parse_topology(text)
    matrix = read_text(find_tables(clean(text))[0])
    assert {
        "gpus": topology.num_gpus,
        "nics": len(topology.nics),
        "nic_names": list(matrix.nic_names),
        "rows": len(matrix.rows),
        "missing_rows": list(matrix.missing_rows),
        "nvlink": {f"{low}-{high}": links for (low, high), links in topology.nvlink.items()},
        "short_rows": [[label, cells] for label, cells in matrix.short_rows.items()],
    } == EXPECTED[path.stem]
    assert [finding.code for finding in topology.findings] == CODES.get(path.stem, [])


@pytest.mark.parametrize("name", NUMA)
def test_numa_nodes_are_read_from_a_published_matrix(name: str) -> None:
    assert parse_topology(_read(name)).numa == dict(enumerate(NUMA[name]))


def test_adapters_are_named_by_the_legend_and_placed() -> None:
    topology = parse_topology(_read("a100_8gpu_18nic_oci_numa4_spaces"))
    assert [nic.name for nic in topology.nics_near(0)] == [f"mlx5_{port}" for port in (5, 6, 7, 8)]
    one = parse_topology(_read("a100_sxm4_80gb_4gpu_nvswitch_rocep_nic_tabs"))
    assert [nic.name for nic in one.nics] == ["rocep49s0"]
    unnamed = parse_topology(_read("h100_8gpu_12nic_ndr_truncated_head_tabs"))
    nearest = [nic.name for gpu in range(8) for nic in unnamed.nics_near(gpu)]
    assert nearest == ["NIC0", "NIC3", "NIC4", "NIC5", "NIC6", "NIC9", "NIC10", "NIC11"]


def test_what_was_cut_is_said_with_its_rows() -> None:
    cut, unknown = parse_topology(_read("dgx2_v100_16gpu_nv6_truncated_spaces")).findings
    assert cut.message == (
        "rows GPU5 to GPU15, mlx5_0 to mlx5_9 were cut; what is known of them was rebuilt from the"
        " columns of rows GPU0 to GPU4"
    )
    assert "55 of 120 pairs" in unknown.message
    adapters = parse_topology(_read("h100_8gpu_12nic_ndr_truncated_head_tabs")).findings[0]
    assert adapters.message.startswith("rows NIC6 to NIC11 were cut; how adapters reach GPUs was")
    short = parse_topology(_read("gb200_sglang_11208_truncated_spaces")).findings[1]
    assert short.message.startswith("row GPU3 was cut short")


def test_a_peer_to_peer_table_after_the_matrix_is_read_too() -> None:
    topology = parse_topology(_read("club3090_pahi_reflowed_spaces"))
    assert (topology.pcie, topology.peer_to_peer) == ({(0, 1): "NODE"}, {(0, 1): False})


RESPACED: dict[str, Callable[[str], str]] = {
    "expanded tabs": lambda text: text.expandtabs(),
    "collapsed": lambda text: re.sub(r"[ \t]+", " ", text),
    "doubled tabs": lambda text: text.replace("\t", "\t\t"),
    "spaces to tabs": lambda text: re.sub(r" {2,}", "\t", text),
    "indented": lambda text: re.sub(r"(?m)^", "    ", text),
    "quoted": lambda text: re.sub(r"(?m)^", "> ", text),
    "stripped": lambda text: "\n".join(line.strip() for line in text.splitlines()),
    "old line ends": lambda text: text.replace("\n", "\r\n"),
    "spaced out": lambda text: text.replace("\n", "\n\n"),
    "with prompts": lambda text: f"$ nvidia-smi topo -m\n{text}\n$ exit\n",
}


@pytest.mark.parametrize("respace", RESPACED.values(), ids=list(RESPACED))
def test_connections_do_not_depend_on_spacing(respace: Callable[[str], str]) -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        topology, same = parse_topology(respace(text)), parse_topology(text)
        assert (path.name, topology.nvlink, topology.pcie) == (path.name, same.nvlink, same.pcie)
        assert (path.name, topology.nics) == (path.name, same.nics)
        wrong_nodes = topology.numa.items() - same.numa.items()
        assert (path.name, wrong_nodes) == (path.name, set())
