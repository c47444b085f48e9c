"""`data/` -> typed records in base units; the only module that knows where `data/` lies."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from planner.core.errors import UnknownNameError, UnsupportedError, did_you_mean
from planner.core.units import GIB, GIGA, MIB, MICRO, TERA
from planner.domain.cluster import GemmCurve, Gpu, Instance
from planner.domain.framework import Capabilities, Framework, Optimizer, Precision
from planner.domain.model import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A config.json that ships with the planner."""

    id: str
    config: Mapping[str, Any]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """One record of `data/links`, bytes per second and per direction; 0 where unknown."""

    name: str
    kind: str
    scope: str
    bytes_per_second: float
    achievable_bytes_per_second: float
    all_reduce_bytes_per_second: float
    latency_seconds: float
    source: str


@cache
def data_root() -> Traversable:
    """Find the records: `planner/data` in an installed wheel, `data/` beside it in a checkout."""
    packaged = files("planner") / "data"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "data"


@cache
def _read(folder: str, name: str) -> dict[str, Any]:
    return tomllib.loads((data_root() / folder / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def _names(folder: str, suffix: str) -> tuple[str, ...]:
    entries = (data_root() / folder).iterdir()
    return tuple(sorted(e.name.removesuffix(suffix) for e in entries if e.name.endswith(suffix)))


def gpu_names() -> tuple[str, ...]:
    """Return the canonical names of all GPUs."""
    return _names("gpus", ".toml")


def link_names() -> tuple[str, ...]:
    """Return the names of all links."""
    return _names("links", ".toml")


def framework_names() -> tuple[str, ...]:
    """Return the names of all training frameworks."""
    return _names("frameworks", ".toml")


def model_ids() -> tuple[str, ...]:
    """Return the Hub ids of all models that ship with the planner."""
    return tuple(name.replace("--", "/", 1) for name in _names("models", ".json"))


def gpu(name: str) -> Gpu:
    """Return a GPU by canonical name, alias or the name NVML reports, in any case.

    Raises:
        UnknownNameError: no record has that name.
    """
    wanted = name.strip().lower()
    if wanted in gpu_names():
        return _gpu(wanted)
    spellings = _gpu_spellings()
    canonical = spellings.get(wanted) or spellings.get(f"nvidia {wanted}")
    if canonical is None:
        raise UnknownNameError(
            f"unknown GPU {name[:60]!r}",
            hint=did_you_mean(name, spellings) or "`planner gpus` lists all of them",
            field="cluster.gpu",
        )
    return _gpu(canonical)


@cache
def _gpu_spellings() -> Mapping[str, str]:
    """Return every name of every GPU in lower case, and the canonical name it stands for."""
    spellings: dict[str, str] = {}
    for canonical in gpu_names():
        record = _read("gpus", canonical)
        for spelling in (canonical, *record["aliases"], *record["nvml_names"]):
            spellings[spelling.lower()] = canonical
    return spellings


@cache
def _gpu(canonical: str) -> Gpu:
    record = _read("gpus", canonical)
    peaks = {dtype: tflops * TERA for dtype, tflops in record["peak_tflops"].items()}
    capability = record.get("compute_capability", "")
    return Gpu(
        name=record["name"],
        vendor=record["vendor"],
        nvml_names=tuple(record["nvml_names"]),
        aliases=tuple(record["aliases"]),
        memory_bytes=record["memory_gib"] * GIB,
        usable_bytes=record.get("usable_gib", 0) * GIB,
        peak_flops=peaks,
        hbm_bytes_per_second=record["hbm_gb_per_s"] * GIGA,
        compute_capability=capability,
        pcie_generation=record.get("pcie_generation", 0),
        pcie_lanes=record.get("pcie_lanes", 0),
        nvlink_generation=record.get("nvlink_generation", 0),
        nvlink_links=record.get("nvlink_links", 0),
        nvlink_bytes_per_second_per_link=record.get("nvlink_gb_per_s_per_link", 0) * GIGA,
        nvlink_fabric=record.get("nvlink_fabric", ""),
        fabric_bytes_per_second=record.get("fabric_gb_per_s", 0) * GIGA,
        has_p2p=record["has_p2p"],
        source=record["source"],
        gemm=_gemm_curve(record["name"], capability),
    )


def _gemm_curve(name: str, capability: str) -> GemmCurve:
    """Return the card's own curve, else one of its compute capability, else the default."""
    record = _read("calibration", "gemm")
    own = [curve for curve in record["curve"] if curve["gpu"] == name]
    kin = [curve for curve in record["curve"] if curve["compute_capability"] == capability]
    chosen = (own or kin or [record["default"]])[0]
    source = chosen.get("source") or f"{record['source']}, {chosen['gpu']}"
    return GemmCurve(
        overhead_seconds=chosen["overhead_us"] * MICRO,
        peak_fraction=chosen["peak_fraction"],
        hbm_fraction=chosen["hbm_fraction"],
        sharpness=chosen["sharpness"],
        spread=chosen["median_error"],
        source=source,
    )


def link(name: str, field: str = "cluster.intra_node") -> LinkRecord:
    """Return a link by name.

    Raises:
        UnknownNameError: no record has that name; `field` says which input named it.
    """
    wanted = name.strip().lower()
    if wanted not in link_names():
        hint = did_you_mean(name, link_names()) or f"known: {', '.join(link_names())}"
        raise UnknownNameError(f"unknown link {name[:60]!r}", hint=hint, field=field)
    record = _read("links", wanted)
    return LinkRecord(
        name=record["name"],
        kind=record["kind"],
        scope=record["scope"],
        bytes_per_second=record.get("gb_per_s", 0) * GIGA,
        achievable_bytes_per_second=record.get("achievable_gb_per_s", 0) * GIGA,
        all_reduce_bytes_per_second=record.get("all_reduce_bus_gb_per_s", 0) * GIGA,
        latency_seconds=record.get("latency_us", 0) * MICRO,
        source=record["source"],
    )


@cache
def instance_names() -> tuple[str, ...]:
    """Return the names of all cloud instances as their clouds spell them: by family, then size."""
    records = [_read("instances", name) for name in _names("instances", ".toml")]
    records.sort(key=lambda r: (r["cloud"], r["name"].partition(".")[0], r.get("vcpus", 0)))
    return tuple(record["name"] for record in records)


def instance(name: str) -> Instance:
    """Return a cloud instance by name, in any case.

    Raises:
        UnknownNameError: no record has that name.
    """
    wanted = name.strip().lower()
    if wanted not in _names("instances", ".toml"):
        near = did_you_mean(name, instance_names())
        raise UnknownNameError(
            f"unknown instance {name[:60]!r}",
            hint=near or "`planner instances` lists all of them",
            field="cluster.instance",
        )
    return _instance(wanted)


@cache
def _instance(name: str) -> Instance:
    record = _read("instances", name)
    return Instance(
        name=record["name"],
        cloud=record["cloud"],
        gpu=record["gpu"],
        gpus_per_node=record["gpus_per_node"],
        intra_node=record.get("intra_node", ""),
        topology=record.get("topology", ""),
        network_bytes_per_second=record.get("network_gbit_per_s", 0) * GIGA / 8,
        host_memory_bytes=record.get("host_memory_gib", 0) * GIB,
        usd_per_hour=record.get("usd_per_hour", 0.0),
        price_source=record.get("price_source", ""),
        source=record["source"],
        wiring=record.get("wiring", ""),
        vcpus=record.get("vcpus", 0),
        price_date=record.get("price_date", ""),
        notes=record.get("notes", ""),
        sagemaker_type=record.get("sagemaker_type", ""),
    )


@cache
def cube_mesh() -> Mapping[tuple[int, int], int]:
    """Return the links of each pair of a hybrid cube mesh, the lower index first."""
    pairs = _read("links", "nvlink-mesh-v100-8gpu")["pairs"]
    return {(int(name[0]), int(name[-1])): links for name, links in pairs.items()}


def interconnect_defaults() -> Mapping[str, Any]:
    """Return `data/calibration/interconnect.toml`: shares of a link that collectives reach."""
    return _read("calibration", "interconnect")


def usual_batches() -> tuple[tuple[int, int], ...]:
    """Return `data/calibration/batches.toml`: parameters and tokens per optimizer step, ascending."""
    found = _read("calibration", "batches")["batch"]
    return tuple(sorted((each["parameters"], each["tokens"]) for each in found))


def model(name: str) -> ModelRecord | None:
    """Return a shipped model by Hub id or short alias, in any case; None when there is none."""
    full = _read("models", "aliases").get(name.lower(), name).lower()
    return next((_model(known) for known in model_ids() if known.lower() == full), None)


@cache
def _model(model_id: str) -> ModelRecord:
    file = data_root() / "models" / f"{model_id.replace('/', '--')}.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    return ModelRecord(id=record["id"], config=record["config"], source=record["source"])


@cache
def framework(name: str) -> Framework:
    """Return a training framework by name.

    Raises:
        UnsupportedError: there is no record of that framework yet.
    """
    names = framework_names()
    if name not in names:
        raise UnsupportedError(
            f"framework {name[:60]!r} is not estimated yet",
            hint=f"known: {', '.join(names)}",
            field="recipe.framework",
        )
    return _framework(_framework_record(name))


_KEY_BY_KEY = ("sharding", "activations", "precision", "optimizer", "device", "uncertainty")


def _framework_record(name: str) -> dict[str, Any]:
    """Return a framework's record on top of the one it names as `same_as`, section by section.

    Sections that many records share are taken key by key.
    """
    record = _read("frameworks", name)
    if "same_as" not in record:
        return record
    inherited = _framework_record(record["same_as"])
    nested = {key: inherited[key] | record.get(key, {}) for key in _KEY_BY_KEY}
    return inherited | record | nested


def _framework(record: Mapping[str, Any]) -> Framework:
    device, memory_bound = record["device"], record["memory_bound"]
    uncertainty = _without_source(record["uncertainty"])
    slower_factor = uncertainty.pop("slower_factor")
    return Framework(
        name=record["name"],
        zero_stages=tuple(record["zero_stages"]),
        capabilities=Capabilities(**_tuples(record["capabilities"])),
        **_without_source(record["sharding"]),
        **_without_source(record["activations"]),
        precisions={name: _precision(entry) for name, entry in record["precision"].items()},
        optimizers={name: Optimizer(**entry) for name, entry in record["optimizer"].items()},
        context_bytes=device["context_mib"] * MIB,
        nccl_bytes=device["nccl_mib"] * MIB,
        allocator_fraction=device["allocator_fraction"],
        usable_fraction=device["usable_fraction"],
        bucket_bytes=record["overlap"]["bucket_mib"] * MIB,
        backward_overlap_fraction=record["overlap"]["backward_fraction"],
        overlaps_from=record["overlap"]["overlaps_from"],
        host_seconds_per_operation=record["host"]["operation_us"] * MICRO,
        host_seconds_per_micro_batch=record["host"]["micro_batch_us"] * MICRO,
        sustained_fraction=record["sustained"]["fraction"],
        elementwise_hbm_fraction=memory_bound["hbm_fraction"],
        forward_passes=memory_bound["forward_passes"],
        backward_passes=memory_bound["backward_passes"],
        loss_passes=memory_bound["loss_bytes"],
        attention_kernel=record["attention"]["kernel"],
        tensor_overlap_fraction=record["overlap"]["tensor_fraction"],
        host_parameters_per_second=record["offload"]["parameters_per_s"],
        offload_overlaps=record["offload"]["overlaps"],
        compiles=record["compile"]["is_estimated"],
        compiled_passes_fraction=record["compile"]["passes_fraction"],
        compiled_operations_fraction=record["compile"]["operations_fraction"],
        start_seconds=record["start"]["process_s"],
        nccl_start_seconds=record["start"]["nccl_s"],
        nccl_start_seconds_per_gpu=record["start"]["nccl_s_per_gpu"],
        load_bytes_per_second=record["start"]["load_gb_per_s"] * GIGA,
        context_exchange=record["context"]["exchange"],
        scatters_transfers=record["pipeline"]["scatters_transfers"],
        spreads=uncertainty,
        slower_factor=slower_factor,
        sources={
            section: entry["source"]
            for section, entry in record.items()
            if isinstance(entry, dict) and "source" in entry
        },
    )


def _without_source(section: Mapping[str, Any]) -> dict[str, Any]:
    return _tuples({key: value for key, value in section.items() if key != "source"})


def _tuples(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in section.items()
    }


def _precision(entry: Mapping[str, Any]) -> Precision:
    numerics = {
        key: Numerics[entry[key].upper()] for key in ("replicated_numerics", "sharded_numerics")
    }
    return Precision(**{**entry, **numerics})


def adapter_targets(model_type: str) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """Return PEFT's default targets of a model type, and its module names in the planner's words.

    Both are empty where PEFT has no default, or the names are the planner's own.
    """
    record = _read("adapters", "peft")
    modules = record["modules"].get(model_type, {})
    return (
        tuple(record["targets"].get(model_type, ())),
        {name: tuple(linears) for name, linears in modules.items()},
    )
