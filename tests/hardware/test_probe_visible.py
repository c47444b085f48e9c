"""CUDA_VISIBLE_DEVICES on a machine of four unlike GPUs."""

import sys
from pathlib import Path

import pytest
from fake_nvml import FakeGpu, FakeNvml, Look, bare, looker, mixed, notes, pairs

from planner.hardware.probe import probe, why_none


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    return looker(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("value", "indices", "says"),
    [
        ("3,2,0", [3, 2, 0], "leaves GPU 3, 2, 0 of 4, in this order"),
        (" 0 , 3", [0, 3], "CUDA puts the fastest GPU first"),
        ("GPU-00000003,gpu-00000002-AAAA", [3, 2], "GPU 3, 2"),
        ("MIG-10", [1], "GPU 1 (MIG MIG-10)"),
        ("0,9,1", [0], "CUDA stops reading at '9'"),
        ("1,-1", [1], "CUDA stops reading at '-1'"),
    ],
)
def test_cuda_visible_devices_choose_and_order(
    monkeypatch: pytest.MonkeyPatch, look: Look, value: str, indices: list[int], says: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    machine = look(mixed())
    assert [gpu.index for gpu in machine.gpus] == indices
    assert machine.topology.num_gpus == len(indices)
    assert notes(machine)[-1].code == "PRB011"
    assert says in notes(machine)[-1].message


def test_connections_follow_the_chosen_gpus(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2,0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    machine = look(mixed())
    assert machine.topology.nvlink == {(0, 2): 12}
    assert machine.topology.pcie == {(0, 1): "PIX", (1, 2): "SYS"}
    assert machine.topology.peer_to_peer == dict.fromkeys(pairs(3), True)
    assert machine.topology.gpu_names[1] == "Tesla T4"
    assert notes(machine)[-1].message.endswith("in this order")


def test_the_order_of_cuda_matters_only_to_numbers_of_unlike_gpus(
    monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    alike = look(FakeNvml([FakeGpu(), FakeGpu()]))
    assert notes(alike)[-1].message == "CUDA_VISIBLE_DEVICES leaves GPU 1 of 2, in this order"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00000003")
    assert notes(look(mixed()))[-1].message.endswith("in this order")


def test_only_the_named_instances_stay(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-00")
    (gpu,) = look(mixed()).gpus
    assert [part.uuid for part in gpu.mig] == ["MIG-00"]


@pytest.mark.parametrize(
    "value", ["all", "9", "GPU-", "MIG-", "0,0", "MIG-00,MIG-00", "\x1b[0m", "x" * 9999]
)
def test_unreadable_choices_leave_all_gpus(
    monkeypatch: pytest.MonkeyPatch, look: Look, value: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    machine = look(mixed())
    assert len(machine.gpus) == 4
    assert notes(machine)[-1].code == "PRB012"
    assert notes(machine)[-1].message.isprintable()
    assert len(notes(machine)[-1].message) < 250


@pytest.mark.parametrize("value", ["", " ", "-1", "-1,0"])
def test_hidden_gpus_are_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    bare(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    monkeypatch.setitem(sys.modules, "pynvml", mixed())
    assert probe() is None
    assert "hides every GPU" in why_none()


def test_all_gpus_in_order_need_no_word(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert look(FakeNvml([FakeGpu(), FakeGpu()])).findings == ()
