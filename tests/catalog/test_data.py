"""Every record that ships: it loads, has a source, and holds nothing absurd."""

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.core.units import GIB, GIGA, TERA
from planner.domain.cluster import Provenance
from planner.hardware.topology import parse_topology
from planner.models.architectures import read_model

DATA = Path(__file__).parents[2] / "data"
OF_THE_PLANNER = ("models/aliases.toml", "configs/rules.toml", "request/")
"""Tables of what the planner itself calls things, which need no source."""
RECORDS = sorted(
    path.relative_to(DATA).as_posix()
    for path in DATA.rglob("*")
    if path.suffix in {".toml", ".json"}
    and not path.relative_to(DATA).as_posix().startswith(OF_THE_PLANNER)
)
CANONICAL_GPUS = {
    "p100-pcie-16gb",
    "p100-sxm2-16gb",
    "p4000",
    "p40",
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-pcie-16gb",
    "v100-pcie-32gb",
    "v100s-pcie-32gb",
    "titan-rtx",
    "rtx-5000",
    "rtx-6000",
    "rtx-2080ti",
    "t4",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "a800-sxm-80gb",
    "a30",
    "a40",
    "a10g",
    "a10",
    "a4000",
    "a5000",
    "a6000",
    "rtx-3090",
    "rtx-3090ti",
    "rtx-3080",
    "rtx-4090",
    "rtx-4090d",
    "l4",
    "l40s",
    "l40",
    "rtx-6000-ada",
    "rtx-4000-ada",
    "h100-sxm-80gb",
    "h100-sxm-96gb",
    "h100-pcie-80gb",
    "h100-nvl",
    "h800-sxm-80gb",
    "h200-sxm",
    "h200-nvl",
    "h20",
    "gh200",
    "b100-sxm",
    "b200-sxm",
    "gb200",
    "b300-sxm",
    "gb300",
    "rtx-5090",
    "rtx-5080",
    "rtx-5060ti",
    "rtx-pro-6000",
    "gb10",
    "mi210",
    "mi250x",
    "mi250",
    "mi300x",
    "mi325x",
    "mi355x",
    "gaudi2",
    "gaudi3",
    "gtx-1080ti",
    "rtx-2080",
    "rtx-3060",
    "rtx-3060ti",
    "rtx-3070",
    "rtx-3070ti",
    "rtx-3080ti",
    "rtx-4060ti",
    "rtx-4070",
    "rtx-4070-super",
    "rtx-4070ti",
    "rtx-4070ti-super",
    "rtx-4080",
    "rtx-4080-super",
    "rtx-5070",
    "rtx-5070ti",
}
GEFORCE = [
    name
    for name in sorted(CANONICAL_GPUS - {"rtx-5000", "rtx-6000"})  # Quadro
    if re.fullmatch(r"[gr]tx-\d{4}(ti|d)?(-super)?", name)
]
CLOUDS = {"AWS", "GCP", "Azure", "Lambda", "OCI", "Nebius", "CoreWeave"}
WIRINGS = {"", "PCIe", "NVLink mesh", "NVLink pairs", "NVSwitch", "NVL72"}
ROOTS = ("home", "root", "tmp", "mnt", "Users")
LOCAL_PATH = re.compile(rf'(?<![\w.])(/({"|".join(ROOTS)})/|[A-Z]:\\)|": "/')
DTYPES = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"}


def _raw(record: str) -> dict[str, Any]:
    text = (DATA / record).read_text(encoding="utf-8")
    loaded: dict[str, Any] = tomllib.loads(text) if record.endswith(".toml") else json.loads(text)
    return loaded


def _sources(value: object) -> list[object]:
    """Return what stands under `source` and `..._source`, however deep."""
    if isinstance(value, dict):
        own = [entry for key, entry in value.items() if key.endswith("source")]
        return own + [found for entry in value.values() for found in _sources(entry)]
    return (
        [found for entry in value for found in _sources(entry)] if isinstance(value, list) else []
    )


@pytest.mark.parametrize("record", RECORDS)
def test_every_record_has_a_source_and_no_path_of_somebodys_machine(record: str) -> None:
    raw = _raw(record)
    is_machine = raw.get("kind") == "planner-machine"  # which is of its own format
    sources = [f"{raw['name']}, {raw['created']}"] if is_machine else _sources(raw)
    assert sources
    assert all(isinstance(source, str) and len(source) > 10 for source in sources)
    assert not LOCAL_PATH.search((DATA / record).read_text(encoding="utf-8"))


@pytest.mark.parametrize("record", [r for r in RECORDS if r.split("/")[0] in {"gpus", "links"}])
def test_a_record_is_named_like_its_file_and_lists_what_nobody_sourced(record: str) -> None:
    raw = _raw(record)
    assert raw["name"] == Path(record).stem
    for key in raw.get("unsourced", []):
        section, _, dtype = key.rpartition(".")
        assert dtype in (raw[section] if section else raw)


def test_only_records_and_their_readme_are_shipped() -> None:
    strangers = {
        path.name
        for path in DATA.rglob("*")
        if path.is_file() and path.suffix not in {".toml", ".json"}
    }
    assert strangers == {"README.md"}


def test_every_canonical_gpu_has_a_record() -> None:
    assert set(records.gpu_names()) >= CANONICAL_GPUS


def test_no_two_gpus_share_a_name() -> None:
    spellings = Counter(
        spelling
        for gpu in map(records.gpu, records.gpu_names())
        for spelling in {name.lower() for name in (gpu.name, *gpu.aliases, *gpu.nvml_names)}
    )
    assert [spelling for spelling, count in spellings.items() if count > 1] == []


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_gpu_is_found_by_every_name_in_any_case(name: str) -> None:
    gpu = records.gpu(name)
    assert gpu.name == name
    for spelling in (name, *gpu.aliases, *gpu.nvml_names):
        for cased in (spelling, spelling.upper(), spelling.lower(), spelling.title()):
            assert records.gpu(cased) is gpu
    assert all(alias == alias.lower() for alias in gpu.aliases)


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_gpu_is_within_what_has_been_built(name: str) -> None:
    gpu = records.gpu(name)
    assert 8 * GIB <= gpu.memory_bytes <= 300 * GIB
    assert 200 * GIGA <= gpu.hbm_bytes_per_second <= 10_000 * GIGA
    assert set(gpu.peak_flops) <= DTYPES
    assert all(5 * TERA <= peak <= 20_000 * TERA for peak in gpu.peak_flops.values())
    assert records.vendor(gpu.vendor)
    assert gpu.pcie_generation in {0, 3, 4, 5, 6}
    assert gpu.pcie_lanes in {0, 8, 16}


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_gpu_is_no_slower_in_fewer_bits(name: str) -> None:
    peaks = records.gpu(name).peak_flops
    known = [peaks[dtype] for dtype in ("fp32", "tf32", "bf16", "fp8") if dtype in peaks]
    assert known == sorted(known)


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_gpu_has_an_fp32_peak_and_bf16_only_with_fp16(name: str) -> None:
    peaks = records.gpu(name).peak_flops
    assert "fp32" in peaks
    if "fp16" in peaks and "bf16" in peaks and name != "gaudi3":
        assert peaks["fp16"] == peaks["bf16"]


@pytest.mark.parametrize("name", records.gpu_names())
def test_what_a_process_sees_of_a_gpus_memory_is_a_little_less_than_is_sold(name: str) -> None:
    raw = _raw(f"gpus/{name}.toml")
    assert ("usable_gib" in raw) == ("usable_source" in raw)
    if "usable_gib" in raw:
        # Parity bits (ECC) of GDDR memory take an eleventh.
        assert 0.9 <= records.gpu(name).usable_bytes / records.gpu(name).memory_bytes < 1


@pytest.mark.parametrize("name", GEFORCE)
def test_a_geforce_accumulates_in_fp32_at_half_rate(name: str) -> None:
    gpu = records.gpu(name)
    peaks = gpu.peak_flops
    assert _raw(f"gpus/{name}.toml")["is_consumer"]
    if gpu.compute_capability == "7.5":
        assert peaks["fp16"] == pytest.approx(4 * peaks["fp32"], rel=0.01)
    elif gpu.compute_capability != "6.1":
        assert peaks["tf32"] == pytest.approx(peaks["fp32"], rel=0.01)
        assert peaks["bf16"] == pytest.approx(2 * peaks["fp32"], rel=0.01)
        assert ("fp8" in peaks) == (gpu.compute_capability != "8.6")


@pytest.mark.parametrize("name", GEFORCE)
def test_a_geforce_since_turing_has_no_peer_access_over_pcie(name: str) -> None:
    assert records.gpu(name).has_p2p == (name == "gtx-1080ti")


def test_the_a10g_is_not_an_a10() -> None:
    assert records.gpu("a10g").peak_flops["bf16"] == 70 * TERA
    assert records.gpu("a10").peak_flops["bf16"] == 125 * TERA


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_gpus_nvlink_is_all_there_or_not_at_all(name: str) -> None:
    gpu = records.gpu(name)
    parts = (gpu.nvlink_generation, gpu.nvlink_links, gpu.nvlink_bytes_per_second_per_link)
    assert all(parts) == any(parts) == bool(gpu.nvlink_fabric)
    assert gpu.nvlink_fabric in {"", "nvswitch", "bridge", "mesh"}
    assert gpu.nvlink_links <= 18
    assert not (gpu.nvlink_fabric and gpu.fabric_bytes_per_second)
    capability = r"\d+\.\d" if gpu.vendor == "nvidia" else ""
    assert re.fullmatch(capability, gpu.compute_capability)


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_gpus_gemm_curve_is_a_share_of_its_peaks(name: str) -> None:
    curve = records.gpu(name).gemm
    assert 0 < curve.overhead_seconds < 1e-4
    assert all(0.3 < share <= 1.15 for share in (curve.peak_fraction, *curve.fractions.values()))
    assert 0.3 < curve.hbm_fraction <= 1.1
    assert 1 <= curve.sharpness < 10
    assert 0 < curve.spread < 0.5
    assert curve.source


def test_every_gemm_curve_belongs_to_a_gpu_of_its_capability() -> None:
    for curve in _raw("calibration/gemm.toml")["curve"]:
        assert records.gpu(curve["gpu"]).compute_capability == curve["compute_capability"]


def test_the_largest_products_are_of_cards_without_a_curve_once_each() -> None:
    calibration = _raw("calibration/gemm.toml")
    timed = [entry["gpu"] for entry in calibration["largest"]]
    assert len({*timed}) == len(timed)
    assert not {*timed} & {curve["gpu"] for curve in calibration["curve"]}
    for entry in calibration["largest"]:
        gpu = records.gpu(entry["gpu"])
        assert entry["tflops"].keys() <= gpu.peak_flops.keys()
        # They were timed at the card's own limit, and are not cut by it again.
        assert not gpu.full_watts


def test_no_gemm_curve_is_further_off_than_a_tenth() -> None:
    """In the median of its shapes; what is worse was fitted on a table that does not say what a step sees."""
    for curve in _raw("calibration/gemm.toml")["curve"]:
        assert 0 < curve["median_error"] <= 0.10, curve["gpu"]


@pytest.mark.parametrize("name", records.instance_names())
def test_an_instance_is_a_machine_that_can_be_planned(name: str) -> None:
    raw, instance = _raw(f"instances/{name.lower()}.toml"), records.instance(name)
    assert raw["name"] == name
    assert instance.cloud in CLOUDS
    assert instance.wiring in WIRINGS
    assert 1 <= instance.gpus_per_node <= 16
    assert records.gpu(instance.gpu).name == instance.gpu
    assert (instance.wiring == "") == (instance.gpus_per_node == 1)
    assert name.startswith(instance.alias)
    if instance.topology:
        assert parse_topology(instance.topology).num_gpus == instance.gpus_per_node
    if instance.wiring == "PCIe":
        assert records.gpu(instance.gpu).nvlink_fabric in {"", "bridge"}
    if instance.wiring == "NVSwitch":
        assert records.gpu(instance.gpu).nvlink_fabric == "nvswitch"


@pytest.mark.parametrize("name", records.instance_names())
def test_a_figure_of_an_instance_is_sane_or_left_out(name: str) -> None:
    raw = _raw(f"instances/{name.lower()}.toml")
    assert set(raw["unsourced"]) <= set(raw)
    assert 2.5 <= raw.get("network_gbit_per_s", 100) <= 6400
    assert 16 <= raw.get("host_memory_gib", 16) <= 4096
    assert 4 <= raw.get("vcpus", 4) <= 256
    assert 0.5 <= raw.get("usd_per_hour", 1) <= 150
    assert raw.get("sagemaker_type", f"ml.{name}") == f"ml.{name}"
    assert ("usd_per_hour" in raw) == ("price_date" in raw) == ("price_source" in raw)


@pytest.mark.parametrize("name", records.link_names())
def test_a_link_is_within_what_has_been_built(name: str) -> None:
    link = records.link(name)
    assert link.name == name
    assert records.link(f" {name.upper()}") == link
    assert link.kind in {"network", "nvlink", "pcie", "socket"}
    assert link.scope in {"link", "gpu", "port", "node"}
    known = [link.bytes_per_second, link.achievable_bytes_per_second]
    assert any(known)
    assert all(0.1 * GIGA <= rate <= 1000 * GIGA for rate in known if rate)
    if link.bytes_per_second:
        assert link.achievable_bytes_per_second <= link.bytes_per_second
        # An all-reduce in the switch moves less than a ring, so it may read above the line rate.
        assert link.all_reduce_bus_bytes_per_second <= 1.2 * link.bytes_per_second
    assert link.latency_seconds < 1e-3


@pytest.mark.parametrize("generation", [1, 2, 3, 4, 5])
def test_every_nvlink_generation_says_what_it_reaches(generation: int) -> None:
    assert records.link(f"nvlink-{generation}").achievable_bytes_per_second


def test_the_shares_of_a_link_are_fractions() -> None:
    assumed = interconnect()
    shares = [
        getattr(section, key.name)
        for section in (assumed.pcie, assumed.network, assumed.fabric)
        for key in fields(section)
        if key.name.endswith("_fraction")
    ]
    assert len(shares) == 5
    assert all(0 < share <= 1 for share in shares)


def test_every_section_of_the_interconnect_has_its_source() -> None:
    assumed = interconnect()
    sections = [getattr(assumed, each.name) for each in fields(assumed) if is_dataclass(each.type)]
    assert len(sections) == 11
    for section in sections:
        keys = {each.name for each in fields(section)}
        sources = {key for key in keys if key == "source" or key.endswith("_source")}
        assert sources
        assert all(getattr(section, key) for key in sources)
    assert all(family.source for family in assumed.collectives.values())
    assert assumed.latency_source


def test_what_the_interconnect_names_are_links() -> None:
    assumed = interconnect()
    named = {
        assumed.network.default,
        assumed.power9.socket_link,
        assumed.fabric.default_link,
        f"nvlink-{assumed.nvlink.default_generation}",
        *assumed.pcie.socket_link.values(),
        *(f"pcie-{generation}-x16" for generation in assumed.pcie.socket_link),
        *(name for by_ranks in assumed.pcie.measured.values() for name in by_ranks.values()),
    }
    assert named <= set(records.link_names())
    assert set(assumed.pcie.measured) <= set(records.gpu_names())
    assert set(assumed.pcie.host_memory_bytes_per_second) == set(assumed.pcie.socket_link)


@pytest.mark.parametrize("name", records.gpu_names())
def test_a_fabric_of_links_names_what_one_of_them_is(name: str) -> None:
    gpu = records.gpu(name)
    has_links = bool(gpu.nvlink_links) or gpu.vendor == "amd"
    assert bool(gpu.fabric_link) == has_links
    if has_links:
        link = records.link(gpu.fabric_link)
        assert (link.kind, link.scope) == ("nvlink", "link")
        assert link.bytes_per_second
    if gpu.nvlink_links:
        assert gpu.fabric_link.startswith(f"nvlink-{gpu.nvlink_generation}")
        assert link.bytes_per_second == gpu.nvlink_bytes_per_second_per_link


def test_a_network_says_what_nccl_talks_over() -> None:
    transports = {
        name: records.link(name).transport
        for name in records.link_names()
        if records.link(name).kind == "network"
    }
    assert transports["roce-100g"] == transports["infiniband-ndr"] == "infiniband"
    assert transports["aws-efa-v2"] == "efa"
    assert {name for name, transport in transports.items() if not transport} == {
        "gcp-a3-high-tcpx",
        "gcp-a3-mega-tcpxo",
        "hpe-slingshot-4x200g",
        "slingshot-200g",
    }


@pytest.mark.parametrize(
    "record", [r for r in RECORDS if r.count("/") == 1 and r.startswith("frameworks/")]
)
def test_a_framework_loads_whole(record: str) -> None:
    framework = records.framework(Path(record).stem)
    assert framework.name == Path(record).stem
    assert set(framework.zero_stages) <= {0, 1, 2, 3}
    assert framework.precisions
    assert all(
        entry.matmul_dtype in DTYPES and 1 <= entry.parameter_bytes <= 4
        for entry in framework.precisions.values()
    )
    assert all(optimizer.source for optimizer in framework.optimizers.values())
    shares = (
        framework.device.allocator_fraction,
        framework.device.usable_fraction,
        framework.matmul.sustained_fraction,
        framework.memory_bound.hbm_fraction,
        framework.uncertainty.compute,
        framework.uncertainty.host,
        framework.uncertainty.memory,
        *framework.uncertainty.communication.values(),
    )
    assert all(0 < share <= 1 for share in shares)
    hidden = (framework.overlap.backward_fraction, framework.overlap.tensor_fraction)
    assert all(0 <= share < 1 for share in hidden)
    assert framework.uncertainty.slower_factor >= 1
    assert framework.uncertainty.compute < framework.uncertainty.memory_bound <= 2
    unknown = framework.uncertainty.unknown_release
    assert 0 < framework.uncertainty.named_release < unknown < 0.5
    assert set(framework.uncertainty.communication) == set(Provenance)
    sections = [each.name for each in fields(framework) if is_dataclass(each.type)]
    assert all(getattr(framework, section).source for section in sections)


@pytest.mark.parametrize("model_id", records.model_ids())
def test_a_model_has_exactly_the_parameters_its_record_states(model_id: str) -> None:
    raw = _raw(f"models/{model_id.replace('/', '--')}.json")
    record = records.model(model_id)
    assert record
    assert record.id == raw["id"] == model_id
    assert raw["confidence"] in {"high", "medium", "low"}
    model = read_model(model_id, record.config)
    assert model.parameters == raw["parameters"]
    assert model.largest_layer_parameters < model.parameters
    assert all(part.parameters >= 0 for part in model.parts)


def test_every_short_model_id_leads_to_a_model_and_shadows_none() -> None:
    aliases = tomllib.loads((DATA / "models/aliases.toml").read_text(encoding="utf-8"))
    assert aliases
    for alias, model_id in aliases.items():
        assert alias == alias.lower()
        assert alias not in {known.lower() for known in records.model_ids()}
        record = records.model(alias)
        assert record
        assert record.id == model_id


def test_counting_parameters_imports_neither_torch_nor_transformers() -> None:
    program = """
import sys
from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.domain.cluster import Provenance
from planner.models.architectures import read_model
assert read_model("gpt2", records.model("gpt2").config).parameters == 124439808
print(sorted({"torch", "transformers", "huggingface_hub", "pynvml"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("model_id", records.model_ids())
def test_a_decoders_record_says_what_its_rotations_and_norms_are_trained_with(
    model_id: str,
) -> None:
    """Files that load its weights would train them wrongly with the defaults of the first LLaMA."""
    record = records.model(model_id)
    assert record
    config = record.config
    if config["model_type"] in {"llama", "qwen2", "mistral", "phi3"}:
        assert "rms_norm_eps" in config
        assert {"rope_theta", "rope_parameters"} & set(config)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("RTX 3090", "rtx-3090"),
        ("rtx_3090", "rtx-3090"),
        ("H100 80GB", "h100-sxm-80gb"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("GTX 1080 Ti", "gtx-1080ti"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
    ],
)
def test_a_gpu_is_known_however_its_words_are_joined(typed: str, name: str) -> None:
    assert records.gpu(typed).name == name


def test_no_two_gpus_are_called_alike_but_for_gaps() -> None:
    found: dict[str, str] = {}
    for name in records.gpu_names():
        gpu = records.gpu(name)
        for spelling in (gpu.name, *gpu.aliases, *gpu.nvml_names):
            plain = re.sub(r"[\s_-]", "", spelling.lower())
            assert found.setdefault(plain, name) == name
