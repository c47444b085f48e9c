"""Where NVML cannot be loaded: an `nvidia-smi` of the test's own on PATH."""

import sys
from pathlib import Path

import pytest
from fake_nvml import LIBRARY_NOT_FOUND, FakeNvml, bare, codes, notes, published

from planner.core.units import MIB
from planner.hardware.probe import Machine, describe, probe, to_wire, why_none
from planner.report.values import columns_text

HEADER = (
    "index, name, uuid, memory.total [MiB], driver_version, compute_cap, pcie.link.gen.max,"
    " pcie.link.width.max"
)
A30 = "NVIDIA A30, GPU-{0}, 24576 MiB, 510.47.03, 8.0, 4, 16"
TOPOLOGIES = Path(__file__).parents[1] / "topologies"


def _a30(count: int) -> str:
    return "\n".join([HEADER, *(f"{index}, {A30.format(index)}" for index in range(count))])


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    bare(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([], fails={"nvmlInit": LIBRARY_NOT_FOUND}))
    return tmp_path


def _install(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def _answering(folder: Path, gpus: str, topology: str, *, old: bool = False) -> None:
    (folder / "gpus.csv").write_text(gpus, encoding="utf-8")
    (folder / "topo.txt").write_text(topology, encoding="utf-8")
    refusal = "*compute_cap*) echo 'Field \"compute_cap\" is not a valid field'; exit 2 ;;"
    _install(
        folder,
        f"""case "$*" in
        {refusal if old else ""}
        --query-gpu=*" --format=csv") /bin/cat '{folder}/gpus.csv' ;;
        "topo -m") /bin/cat '{folder}/topo.txt' ;;
        *) exit 9 ;;
        esac""",
    )


def _published_text(name: str) -> str:
    return (TOPOLOGIES / f"{name}.txt").read_text(encoding="utf-8")


def _found() -> Machine:
    machine = probe()
    assert machine is not None
    return machine


def test_nvidia_smi_is_read_where_nvml_is_missing(folder: Path) -> None:
    _answering(folder, _a30(4), _published_text("a30-two-bridged-pairs"))
    machine = _found()
    assert machine.topology.nvlink == published("a30-two-bridged-pairs").nvlink
    assert machine.topology.pcie == published("a30-two-bridged-pairs").pcie
    assert machine.topology.gpu_names == ("NVIDIA A30",) * 4
    assert machine.topology.memory_bytes == dict.fromkeys(range(4), 24576 * MIB)
    assert machine.driver_version == "510.47.03"
    last = machine.gpus[3]
    assert (last.index, last.uuid, last.compute_capability) == (3, "GPU-3", "8.0")
    assert (last.pcie_generation, last.pcie_lanes, last.nvlink_links) == (4, 16, None)
    assert codes(machine)[0] == "PRB010"
    assert notes(machine)[0].message.startswith("libnvidia-ml.so.1 was not found, so")
    assert to_wire(machine)["gpus"][3]["nvlink_links"] is None
    assert "4 x16  ?" in describe(machine, columns_text)


def test_cuda_visible_devices_hold_here_too(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    _answering(folder, _a30(4), _published_text("a30-two-bridged-pairs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2,GPU-3")
    assert [gpu.uuid for gpu in _found().gpus] == ["GPU-2", "GPU-3"]


def test_adapters_follow_the_chosen_gpus(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    _answering(folder, _a30(8), _published_text("a100-nvswitch-8-gpus-8-nics"))
    whole = _found().topology
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,0")
    topology = _found().topology
    assert [nic.name for nic in topology.nics] == [nic.name for nic in whole.nics]
    assert [nic.pcie for nic in topology.nics] == [
        {0: nic.pcie[7], 1: nic.pcie[0]} for nic in whole.nics
    ]


def test_an_old_driver_is_asked_for_less(folder: Path) -> None:
    gpus = "index, name, uuid, memory.total [MiB], driver_version\n0, Tesla P100, GPU-0, [N/A], 390"
    _answering(folder, gpus, "", old=True)
    machine = _found()
    gpu = machine.gpus[0]
    assert (gpu.name, gpu.memory_bytes, gpu.compute_capability) == ("Tesla P100", None, "")
    assert notes(machine)[0].message.endswith("are left open")
    assert codes(machine) == ["PRB010"]


def test_values_that_are_not_there_stay_open(folder: Path) -> None:
    row = "[N/A], NVIDIA \x1bGB10, GPU-0, [N/A], 580, [N/A], [N/A], [Unknown Error]"
    _answering(folder, f"{HEADER}\n{row}\ncut, off", "")
    (gpu,) = _found().gpus
    assert (gpu.index, gpu.name) == (0, "NVIDIA GB10")
    assert (gpu.memory_bytes, gpu.compute_capability) == (None, "")
    assert (gpu.pcie_generation, gpu.pcie_lanes) == (None, None)


@pytest.mark.parametrize("topology", ["", "No devices were found", "two GPUs"])
def test_without_a_matrix_the_connections_are_unknown(folder: Path, topology: str) -> None:
    text = _published_text("rtx4090-8-gpus-pcie") if topology == "two GPUs" else topology
    _answering(folder, _a30(2), text)
    machine = _found()
    assert machine.topology.num_gpus == 2
    assert (machine.topology.nvlink, machine.topology.pcie) == ({}, {})
    assert codes(machine) == ["PRB010", "TOP002"]


@pytest.mark.parametrize(
    "script",
    [
        "exit 9",
        "echo 'NVIDIA-SMI has failed'; exit 9",
        "echo 'No devices were found'",
        f"echo '{HEADER}'; echo '0, {A30}'; exit 1",
        f"echo '{HEADER}'; echo '0, , GPU-0, 1 MiB, 510, 8.0, 4, 16'",
        f"echo '{HEADER}'",
        f"echo '{HEADER}'; echo '0, NVIDIA A30'",
        "while :; do echo 'index, name, uuid, memory.total [MiB], driver_version'; done",
        "printf '\\377\\000\\001'",
        "printf '\"'",
    ],
)
def test_an_nvidia_smi_that_does_not_help_is_a_reason(folder: Path, script: str) -> None:
    _install(folder, script)
    assert probe() is None
    assert why_none() == (
        "no NVIDIA GPU here: libnvidia-ml.so.1 was not found and nvidia-smi lists no GPU"
    )


def test_an_nvidia_smi_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("planner.hardware.probe.smi.TIMEOUT_SECONDS", 0.1)
    _install(folder, f"echo $$ >> '{folder}/pids'; /bin/sleep 600; echo late")
    assert probe() is None
    groups = (folder / "pids").read_text(encoding="ascii").split()
    assert len(groups) == 2
    assert not any(Path(f"/proc/{group}").exists() for group in groups)


def test_an_nvidia_smi_that_is_no_program_is_a_reason(folder: Path) -> None:
    (folder / "nvidia-smi").write_text("no program", encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    assert probe() is None
    assert "nvidia-smi lists no GPU" in why_none()
