"""What a machine's GPUs are, as a fake NVML tells it."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pynvml
import pytest
from fake_nvml import (
    ANSWERS,
    FUNCTION_NOT_FOUND,
    IS_LOST,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    FakeGpu,
    FakeNvml,
    Look,
    bare,
    codes,
    looker,
    mixed,
    notes,
    pairs,
    switched,
)

import planner.hardware.probe
from planner.catalog.findings import findings
from planner.core.units import GIB
from planner.hardware.probe import describe, probe, to_wire, why_none
from planner.report.values import columns_text


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    return looker(monkeypatch, tmp_path)


def test_switches_join_all_pairs_with_all_links(look: Look) -> None:
    machine = look(FakeNvml(switched(8, 18)))
    assert machine.topology.nvlink == dict.fromkeys(pairs(8), 18)
    assert not machine.topology.pcie
    assert machine.topology.numa == dict.fromkeys(range(4), 0) | dict.fromkeys(range(4, 8), 1)
    assert machine.topology.gpu_names == ("NVIDIA A100-SXM4-80GB",) * 8
    assert machine.driver_version == "550.54.15"
    assert machine.findings == ()
    first = machine.gpus[0]
    assert (first.index, first.uuid, first.memory_bytes) == (0, "GPU-00000000-aaaa", 80 * GIB)
    assert (first.compute_capability, first.nvlink_links, first.nvlink_version) == (
        "8.0",
        18,
        "3.0",
    )
    assert (first.pcie_generation, first.pcie_lanes, first.power_limit_watts) == (4, 16, 400)


DETAILS = sorted(
    call
    for call in ANSWERS
    if call.startswith("nvmlDeviceGet") and not call.endswith(("Count", "ByIndex", "GetName"))
)


@pytest.mark.parametrize("call", DETAILS)
def test_no_single_call_spoils_the_rest(look: Look, call: str) -> None:
    machine = look(FakeNvml([FakeGpu(mig=[]), FakeGpu()], fails={call: NOT_SUPPORTED}))
    assert machine.topology.gpu_names == ("NVIDIA A100-SXM4-80GB",) * 2
    assert machine.driver_version


def test_without_permission_the_rest_is_still_said(look: Look) -> None:
    machine = look(FakeNvml([FakeGpu()], fails={"nvmlDeviceGetPciInfo": NO_PERMISSION}))
    assert machine.gpus[0].memory_bytes == 80 * GIB
    assert codes(machine) == ["PRB003"]
    assert "nvmlDeviceGetPciInfo" in notes(machine)[0].message


@pytest.mark.parametrize("call", ["handle", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "*"])
def test_a_lost_gpu_is_left_out_loudly(look: Look, call: str) -> None:
    gpus = switched(4, 12)
    gpus[1].fails = {call: IS_LOST}
    machine = look(FakeNvml(gpus))
    assert [gpu.index for gpu in machine.gpus] == [0, 2, 3]
    assert machine.topology.num_gpus == 3
    assert machine.topology.nvlink == dict.fromkeys(pairs(3), 12)
    assert codes(machine) == ["PRB001"]
    assert "GPU 1 does not answer (GPU is lost)" in notes(machine)[0].message


def test_a_gpu_that_waits_for_a_reset_is_left_out(look: Look) -> None:
    machine = look(FakeNvml([FakeGpu(), FakeGpu(fails={"nvmlDeviceGetUUID": RESET_REQUIRED})]))
    assert [gpu.index for gpu in machine.gpus] == [0]
    assert codes(machine) == ["PRB001"]


@pytest.mark.parametrize("call", ["handle", "nvmlDeviceGetName"])
def test_a_forbidden_gpu_is_left_out(look: Look, call: str) -> None:
    machine = look(FakeNvml([FakeGpu(), FakeGpu(fails={call: NO_PERMISSION})]))
    assert [gpu.index for gpu in machine.gpus] == [0]
    assert "GPU 1 cannot be read (Insufficient Permissions)" in notes(machine)[0].message


def test_a_gpu_without_a_name_is_left_out(look: Look) -> None:
    machine = look(FakeNvml([FakeGpu(name=""), FakeGpu()]))
    assert "GPU 0 cannot be read (no name)" in notes(machine)[0].message


def test_instances_are_listed_and_joined_by_nothing(look: Look) -> None:
    gpus = switched(3, 12)
    gpus[0].mig = [FakeGpu(uuid="MIG-1", memory_bytes=20 * GIB), FakeGpu(memory_bytes=40 * GIB)]
    gpus[1].mig = [FakeGpu(fails={"nvmlDeviceGetAttributes_v2": NOT_SUPPORTED})]
    machine = look(FakeNvml(gpus))
    memory = [[part.memory_bytes for part in gpu.mig] for gpu in machine.gpus]
    assert memory == [[20 * GIB, 40 * GIB], [80 * GIB], []]
    assert machine.topology.nvlink == {}
    assert codes(machine)[:2] == ["PRB004", "PRB004"]
    assert "GPU0 is split by MIG into 2 instances: " in machine.findings[0].message
    assert "GPU1 is split by MIG into 1 instance: " in machine.findings[1].message
    assert "20.0 GiB + 40.0 GiB" in describe(machine, columns_text)


@pytest.mark.parametrize(
    ("fabric", "code"),
    [
        ((1, 0, 0), "PRB005"),
        ((2, 0, 0), "PRB005"),
        ((3, 999, 0), "PRB006"),
        ((3, 0, 1), "PRB007"),
    ],
)
def test_a_fabric_that_is_not_up_is_said(
    look: Look, fabric: tuple[int, int, int], code: str
) -> None:
    gpus = [FakeGpu(fabric=fabric), FakeGpu(fabric=(3, 0, 2)), FakeGpu(fabric=fabric)]
    machine = look(FakeNvml(gpus))
    assert codes(machine) == [code]
    assert "GPU 0, 2" in notes(machine)[0].message


def test_drivers_before_535_say_the_fabric_in_a_shorter_record(look: Look) -> None:
    nvml = FakeNvml(
        [FakeGpu(fabric=(2, 0, 0))], fails={"nvmlDeviceGetGpuFabricInfoV": FUNCTION_NOT_FOUND}
    )
    assert codes(look(nvml)) == ["PRB005"]


@pytest.mark.parametrize(
    ("gpus", "cluster"),
    [
        ([FakeGpu(fabric=(3, 0, 2), cluster=(0xA1, 7))] * 2, f"a1{'00' * 15}.7"),
        ([FakeGpu(fabric=(3, 0, 2))] * 2, "none"),
        ([FakeGpu(fabric=(0, 0, 0))] * 2, ""),
        (
            [FakeGpu(fabric=(3, 0, 2), cluster=(1, 7)), FakeGpu(fabric=(3, 0, 2), cluster=(2, 7))],
            "",
        ),
    ],
)
def test_how_far_the_fabric_reaches_is_read(look: Look, gpus: list[FakeGpu], cluster: str) -> None:
    assert look(FakeNvml(gpus)).topology.fabric_cluster == cluster


HAS_CPU = "devices/system/node/has_cpu"
LISTED = "bus/pci/devices/0000:10:00.0/numa_node"


@pytest.mark.parametrize(
    ("nodes", "files", "expected"),
    [
        (0b10, {}, 1),
        (1 << 63, {}, 63),
        (1 << 70, {}, 70),
        (0b1111_1001, {HAS_CPU: "0-1\n"}, 0),  # Grace: the GPUs' memories are nodes 3-7
        (0b101, {HAS_CPU: "0,2\n", LISTED: "2\n"}, 2),
        (0b11, {HAS_CPU: "0-1\n", LISTED: "-1\n"}, None),
        (0, {HAS_CPU: "junk", LISTED: "0\n"}, 0),
        (0, {LISTED: "junk"}, None),
        (0, {}, None),
    ],
)
def test_the_numa_node_is_the_near_one_with_processors(
    look: Look, tmp_path: Path, nodes: int, files: Mapping[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    machine = look(FakeNvml([FakeGpu(nodes=nodes)]))
    assert machine.gpus[0].numa_node == expected
    assert machine.topology.numa == ({} if expected is None else {0: expected})


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (
            FakeNvml([], fails={"nvmlInit": LIBRARY_NOT_FOUND}),
            "libnvidia-ml.so.1 was not found and",
        ),
        (
            FakeNvml([], fails={"nvmlInit": 9}),
            "the NVIDIA driver is not loaded and nvidia-smi is not on PATH",
        ),
        (
            FakeNvml([], fails={"nvmlInit": NO_PERMISSION}),
            "this user may not talk to the NVIDIA driver",
        ),
        (FakeNvml([], fails={"nvmlInit": 18}), "waits for a reboot"),
        (FakeNvml([], fails={"nvmlInit": 999}), "NVML cannot be opened (Unknown Error)"),
        (FakeNvml([]), "the NVIDIA driver lists no GPU (it counts 0)"),
        (
            FakeNvml([], fails={"nvmlDeviceGetCount": 999}),
            "the NVIDIA driver lists no GPU (Unknown Error)",
        ),
        (FakeNvml([FakeGpu(fails={"*": IS_LOST})]), "GPU 0 does not answer (GPU is lost)"),
    ],
    ids=["library", "driver", "permission", "mismatch", "unknown", "none", "count", "lost"],
)
def test_no_gpu_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvml: FakeNvml, reason: str
) -> None:
    bare(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert probe() is None
    assert why_none().startswith("no NVIDIA GPU here: ")
    assert reason in why_none()


def test_without_the_library_its_bindings_are_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare(monkeypatch, tmp_path)
    monkeypatch.setattr("planner.hardware.probe.driver.has_library", lambda: False)
    monkeypatch.delitem(sys.modules, "pynvml")
    assert probe() is None
    assert "libnvidia-ml.so.1 was not found and" in why_none()
    assert "pynvml" not in sys.modules


def test_where_there_is_a_gpu_nothing_needs_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeGpu()], fails={"nvmlShutdown": 999}))
    assert why_none() == ""
    machine = probe()
    assert machine is not None
    assert machine.topology.gpu_names == ("NVIDIA A100-SXM4-80GB",)


def test_a_machine_is_a_table_with_its_connections(look: Look) -> None:
    gpus = [*switched(2, 12), FakeGpu(name="Tesla T4", nodes=0, fabric=(1, 0, 0))]
    machine = look(FakeNvml(gpus))
    assert (
        describe(machine, columns_text)
        == """\
3 GPUs, driver 550.54.15

  index  name                   memory    compute  PCIe   NVLink    NUMA  MIG
  0      NVIDIA A100-SXM4-80GB  80.0 GiB  8.0      4 x16  3.0 x 12  0
  1      NVIDIA A100-SXM4-80GB  80.0 GiB  8.0      4 x16  3.0 x 12  0
  2      Tesla T4               80.0 GiB  8.0      4 x16            ?

NVLink x 12: 1 pair; PCIe SYS: 2 pairs; peer-to-peer copies work in 3 of 3 pairs

  PRB005  the fabric manager has not finished with GPU 2: CUDA will fail until it has (systemctl
    status nvidia-fabricmanager)"""
    )


def test_a_gpu_that_says_nothing_shows_question_marks(look: Look) -> None:
    silent = [call for call in DETAILS if call != "nvmlDeviceGetPciInfo"]
    fails = dict.fromkeys([*silent, "nvmlSystemGetDriverVersion"], NOT_SUPPORTED)
    machine = look(FakeNvml([FakeGpu()], fails=fails))
    lines = describe(machine, columns_text).splitlines()
    assert lines[0] == "1 GPU, driver of unknown version"
    assert lines[-1].split() == ["0", "NVIDIA", "A100-SXM4-80GB", "?", "?", "?", "?"]


def test_the_wire_is_plain_json(look: Look) -> None:
    answer = json.loads(json.dumps(to_wire(look(mixed()))))
    assert answer["driver_version"] == "550.54.15"
    assert answer["gpus"][1]["mig"][0] == {"uuid": "MIG-00", "memory_bytes": 10 * GIB}
    assert answer["topology"]["nvlink"] == {"0-3": 12}
    assert answer["topology"]["pcie"]["2-3"] == "PIX"
    assert answer["topology"]["peer_to_peer"]["0-1"] is True
    assert answer["topology"]["numa"] == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert [finding["code"] for finding in answer["findings"]] == ["PRB004"]


def test_the_real_bindings_answer_on_any_machine() -> None:
    machine = probe()
    assert (machine is None) == bool(why_none())


def _sources(*folders: str) -> str:
    """Return the probe's modules, and those of other folders beside it."""
    rooms = Path(planner.hardware.probe.__file__).parent.parent
    paths = [path for folder in ("probe", *folders) for path in (rooms / folder).glob("*.py")]
    return "\n".join(p.read_text(encoding="utf-8") for p in paths if p.name != "findings.py")


def test_every_call_is_in_the_real_bindings() -> None:
    calls = set(re.findall(r"\bnvml(?:Device|System)\w+|\bc_nvml\w+", _sources()))
    assert len(calls) > 20
    assert not [call for call in calls if not hasattr(pynvml, call)]


def test_every_finding_is_explained() -> None:
    assert set(re.findall(r"PRB[0-9]{3}", _sources("topology"))) == set(findings("probe"))
    parts = r".+\.\n\nWhy: .+\n\nInstead: .+\n\nSource: .+"
    assert all(re.fullmatch(parts, text, re.DOTALL) for text in findings("probe").values())


@pytest.mark.gpu
def test_the_probe_agrees_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    monkeypatch.setattr("planner.hardware.probe.nvml.SYS", Path("/sys"))
    machine = probe()
    assert machine is not None
    by_uuid = {gpu.uuid.removeprefix("GPU-"): gpu for gpu in machine.gpus}
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        gpu = by_uuid[str(seen.uuid)]
        assert gpu.name == seen.name
        assert gpu.compute_capability == f"{seen.major}.{seen.minor}"
        # NVML counts what the driver keeps for itself, which CUDA does not offer.
        assert gpu.memory_bytes is not None
        assert 0.97 * gpu.memory_bytes < seen.total_memory <= gpu.memory_bytes
