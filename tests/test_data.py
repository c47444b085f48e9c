"""Every record that ships: it loads, has a source, and holds nothing absurd."""

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from planner import catalog
from planner.architectures import read_model
from planner.units import GIB, GIGA, TERA

DATA = Path(__file__).parents[1] / "data"
RECORDS = sorted(
    path.relative_to(DATA).as_posix()
    for path in DATA.rglob("*")
    if path.suffix in {".toml", ".json"} and path.name != "aliases.toml"
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
}
LOCAL_PATH = re.compile(r"(?<![\w.])(/home/|/root/|/tmp/|/mnt/|/Users/|[A-Z]:\\)")
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
    sources = _sources(_raw(record))
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
    assert set(catalog.gpu_names()) >= CANONICAL_GPUS


def test_no_two_gpus_share_a_name() -> None:
    spellings = Counter(
        spelling
        for gpu in map(catalog.gpu, catalog.gpu_names())
        for spelling in {name.lower() for name in (gpu.name, *gpu.aliases, *gpu.nvml_names)}
    )
    assert [spelling for spelling, count in spellings.items() if count > 1] == []


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_a_gpu_is_found_by_every_name_in_any_case(name: str) -> None:
    gpu = catalog.gpu(name)
    assert gpu.name == name
    for spelling in (name, *gpu.aliases, *gpu.nvml_names):
        for cased in (spelling, spelling.upper(), spelling.lower(), spelling.title()):
            assert catalog.gpu(cased) is gpu
    assert all(alias == alias.lower() for alias in gpu.aliases)


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_a_gpu_is_within_what_has_been_built(name: str) -> None:
    gpu = catalog.gpu(name)
    assert 8 * GIB <= gpu.memory_bytes <= 300 * GIB
    assert 200 * GIGA <= gpu.hbm_bytes_per_second <= 10_000 * GIGA
    assert set(gpu.peak_flops) <= DTYPES
    assert all(5 * TERA <= peak <= 20_000 * TERA for peak in gpu.peak_flops.values())
    assert gpu.vendor in {"nvidia", "amd", "intel"}
    assert gpu.pcie_generation in {0, 3, 4, 5, 6}
    assert gpu.pcie_lanes in {0, 8, 16}


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_a_gpu_is_no_slower_in_fewer_bits(name: str) -> None:
    peaks = catalog.gpu(name).peak_flops
    known = [peaks[dtype] for dtype in ("fp32", "tf32", "bf16", "fp8") if dtype in peaks]
    assert known == sorted(known)


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_a_gpus_nvlink_is_all_there_or_not_at_all(name: str) -> None:
    gpu = catalog.gpu(name)
    parts = (gpu.nvlink_generation, gpu.nvlink_links, gpu.nvlink_bytes_per_second_per_link)
    assert all(parts) == any(parts) == bool(gpu.nvlink_fabric)
    assert gpu.nvlink_fabric in {"", "nvswitch", "bridge", "mesh"}
    assert gpu.nvlink_links <= 18
    assert not (gpu.nvlink_fabric and gpu.fabric_bytes_per_second)
    capability = r"\d+\.\d" if gpu.vendor == "nvidia" else ""
    assert re.fullmatch(capability, gpu.compute_capability)


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_a_gpus_gemm_curve_is_a_share_of_its_peaks(name: str) -> None:
    curve = catalog.gpu(name).gemm
    assert 0 < curve.overhead_seconds < 1e-4
    assert 0.3 < curve.peak_fraction <= 1.1
    assert 0.3 < curve.hbm_fraction <= 1.1
    assert 1 <= curve.sharpness < 10
    assert 0 < curve.spread < 0.5
    assert curve.source


def test_every_gemm_curve_belongs_to_a_gpu_of_its_capability() -> None:
    for curve in _raw("calibration/gemm.toml")["curve"]:
        assert catalog.gpu(curve["gpu"]).compute_capability == curve["compute_capability"]


@pytest.mark.parametrize("name", catalog.link_names())
def test_a_link_is_within_what_has_been_built(name: str) -> None:
    link = catalog.link(name)
    assert link.name == name
    assert catalog.link(f" {name.upper()}") == link
    assert link.kind in {"network", "nvlink", "pcie", "socket"}
    assert link.scope in {"link", "gpu", "port", "node"}
    known = [link.bytes_per_second, link.achievable_bytes_per_second]
    assert any(known)
    assert all(0.1 * GIGA <= rate <= 1000 * GIGA for rate in known if rate)
    if link.bytes_per_second:
        assert link.achievable_bytes_per_second <= link.bytes_per_second
        # An all-reduce in the switch moves less than a ring, so it may read above the line rate.
        assert link.all_reduce_bytes_per_second <= 1.2 * link.bytes_per_second
    assert link.latency_seconds < 1e-4


@pytest.mark.parametrize("generation", [1, 2, 3, 4, 5])
def test_every_nvlink_generation_says_what_it_reaches(generation: int) -> None:
    assert catalog.link(f"nvlink-{generation}").achievable_bytes_per_second


def test_the_shares_of_a_link_are_fractions() -> None:
    defaults = catalog.interconnect_defaults()
    shares = [
        value
        for section in (defaults, defaults["pcie"], defaults["network"])
        for key, value in section.items()
        if key.endswith("_fraction")
    ]
    assert len(shares) == 4
    assert all(0 < share <= 1 for share in shares)
    assert defaults["network"]["default"] in catalog.link_names()


@pytest.mark.parametrize("record", [r for r in RECORDS if r.startswith("frameworks/")])
def test_a_framework_loads_whole(record: str) -> None:
    framework = catalog.framework(Path(record).stem)
    assert framework.name == Path(record).stem
    assert set(framework.zero_stages) <= {0, 1, 2, 3}
    assert framework.precisions
    assert all(
        entry.matmul_dtype in DTYPES and 1 <= entry.parameter_bytes <= 4
        for entry in framework.precisions.values()
    )
    assert all(optimizer.source for optimizer in framework.optimizers.values())
    shares = (
        framework.allocator_fraction,
        framework.usable_fraction,
        framework.backward_overlap_fraction,
        framework.sustained_fraction,
        framework.elementwise_hbm_fraction,
        framework.flash_fraction,
        *framework.spreads.values(),
    )
    assert all(0 < share <= 1 for share in shares)
    assert {"device", "overlap", "host", "sustained", "memory_bound", "attention"} <= set(
        framework.sources
    )


@pytest.mark.parametrize("model_id", catalog.model_ids())
def test_a_model_has_exactly_the_parameters_its_record_states(model_id: str) -> None:
    raw = _raw(f"models/{model_id.replace('/', '--')}.json")
    record = catalog.model(model_id)
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
        assert alias not in {known.lower() for known in catalog.model_ids()}
        record = catalog.model(alias)
        assert record
        assert record.id == model_id


def test_counting_parameters_imports_neither_torch_nor_transformers() -> None:
    program = """
import sys
from planner import catalog
from planner.architectures import read_model
assert read_model("gpt2", catalog.model("gpt2").config).parameters == 124439808
print(sorted({"torch", "transformers", "huggingface_hub", "pynvml"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
