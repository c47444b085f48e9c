"""`data/` -> typed records in base units; the only module that knows where `data/` lies."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from planner.catalog.gemm_curves import gemm_curve
from planner.catalog.tables import InvalidRecordError, build
from planner.core.errors import UnknownNameError, UnsupportedError, did_you_mean
from planner.core.frozen import frozen
from planner.domain.cluster import Gpu, Instance
from planner.domain.framework import Framework


@frozen
class ModelRecord:
    """A config.json that ships with the planner."""

    id: str
    config: Mapping[str, Any]
    source: str


@frozen
class LinkRecord:
    """One record of `data/links`, bytes per second and per direction; 0 where unknown."""

    name: str
    kind: str
    scope: str
    transport: Literal["", "infiniband", "efa", "ethernet"] = ""
    """What NCCL talks over, of a network; RoCE is as InfiniBand. "" where nobody said."""
    bytes_per_second: float = 0
    achievable_bytes_per_second: float = 0
    all_reduce_bus_bytes_per_second: float = 0
    latency_seconds: float = 0.0
    domain_gpus: int = 0
    """GPUs that it joins across nodes; 0: those of a node."""
    pairs: Mapping[str, int] = field(default_factory=dict)
    """Links of each pair of GPUs of a mesh, `0-1` and so on."""
    source: str


@frozen
class Vendor:
    """Whose GPUs they are, and what that asks of launch files."""

    name: str
    pytorch_build: str
    """What PyTorch's builds for them are called."""
    has_launch_files: bool
    """Whether what installs and starts the generated scripts is for that build."""
    torch_index: str = ""
    """Where pip finds that build; "" where it is the default one."""
    monitor: str = ""
    """The command that shows what GPUs hold."""
    pod_resource: str = ""
    """What Kubernetes calls such a GPU."""
    docker_options: tuple[str, ...] = ()
    """What gives a container the GPUs."""
    unwritten: Mapping[str, str] = field(default_factory=dict)
    """Targets whose files are for another vendor's software, and why; {gpu} is the card."""
    source: str
    notes: str = ""


_SHOWN_NAMES = 8
_FOR_PEOPLE = {
    "gpus": {"usable_source", "unsourced", "notes"},
    "links": {"notes"},
    "instances": {"unsourced"},
}
"""Keys of a record that nothing is computed from, by folder."""


@cache
def data_root() -> Traversable:
    """Find the records: `planner/data` in an installed wheel, `data/` beside it in a checkout."""
    packaged = files("planner") / "data"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "data"


@cache
def read(folder: str, name: str) -> dict[str, Any]:
    """Return one file of `data/` as TOML has it."""
    return tomllib.loads((data_root() / folder / f"{name}.toml").read_text(encoding="utf-8"))


def facts(folder: str, name: str) -> dict[str, Any]:
    """Return a record without what is for people alone."""
    record = read(folder, name)
    return {key: record[key] for key in record if key not in _FOR_PEOPLE[folder]}


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


def model_types() -> tuple[str, ...]:
    """Return every model_type of `data/families`, whose config.json can be read."""
    return _names("families", ".toml")


@cache
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
    alike, typed = _gpus_without_gaps(), _without_gaps(wanted)
    canonical = alike.get(typed) or alike.get(f"nvidia{typed}")
    if canonical is None:
        raise UnknownNameError(
            f"unknown GPU {name[:60]!r}",
            hint=did_you_mean(name, _gpu_spellings()) or "`planner gpus` lists all of them",
            field="cluster.gpu",
        )
    return _gpu(canonical)


def _without_gaps(name: str) -> str:
    """Return a name as it is compared: rtx 3090, rtx_3090 and rtx-3090 are one, and so are 80G and 80GB."""
    return re.sub(r"(?<=[0-9])g(?:i?b)?$", "gb", re.sub(r"[\s_-]+", "", name))


@cache
def _gpus_without_gaps() -> Mapping[str, str]:
    return {_without_gaps(each): canonical for each, canonical in _gpu_spellings().items()}


@cache
def _gpu_spellings() -> Mapping[str, str]:
    spellings: dict[str, str] = {}
    for canonical in gpu_names():
        record = read("gpus", canonical)
        for spelling in (canonical, *record["aliases"], *record["nvml_names"]):
            spellings[spelling.lower()] = canonical
    return spellings


@cache
def _gpu(canonical: str) -> Gpu:
    record = facts("gpus", canonical)
    curve = gemm_curve(read("calibration", "gemm"), record)
    return build(Gpu, {**record, "gemm": curve}, f"gpus/{canonical}")


_USUAL_LINKS = {
    "cluster.intra_node": "such as nvlink or pcie-4-x16;",
    "cluster.inter_node": "such as infiniband-ndr, ethernet-25g or roce-200g;",
}
"""What is named where no name is near."""


def link(name: str, field: str = "name") -> LinkRecord:
    """Return a link by name.

    Raises:
        UnknownNameError: no record has that name; `field` says which input named it.
    """
    wanted = name.strip().lower()
    if wanted not in link_names():
        near = did_you_mean(name, link_names()) or _USUAL_LINKS.get(field, "")
        raise UnknownNameError(
            f"unknown link {name[:60]!r}",
            hint=f"{near} `planner links` lists all of them".lstrip(),
            field=field,
        )
    return _link(wanted)


@cache
def _link(name: str) -> LinkRecord:
    return build(LinkRecord, facts("links", name), f"links/{name}")


@cache
def instance_names() -> tuple[str, ...]:
    """Return the names of all cloud instances as their clouds spell them: by family, then size."""
    records = [read("instances", name) for name in _names("instances", ".toml")]
    records.sort(key=lambda r: (r["cloud"], r["name"].partition(".")[0], r.get("vcpus", 0)))
    return tuple(record["name"] for record in records)


def instance(name: str) -> Instance:
    """Return a cloud instance by name, in any case, or by a part before a dot or dash that only it has.

    p5 is p5.48xlarge, though p5e and p5en begin so too, and its record says that people call it so.
    ml.p5.48xlarge is what SageMaker calls it.

    Raises:
        UnknownNameError: no record has that name, or several begin so.
    """
    wanted = name.strip().lower().removeprefix("ml.")
    names = _names("instances", ".toml")
    if wanted in names:
        return _instance(wanted)
    family = re.compile(re.escape(wanted) + r"[._-]")
    begun = [each for each in names if wanted and family.match(each)]
    meant = [each for each in begun if len(begun) == 1 or _instance(each).alias == wanted]
    if meant:
        return _instance(meant[0])
    near = "" if begun else did_you_mean(name, instance_names())
    begun = begun or [each for each in names if wanted and each.startswith(wanted)]
    there_are = f"there are {', '.join(begun[:_SHOWN_NAMES])}" if begun else ""
    raise UnknownNameError(
        f"unknown instance {name[:60]!r}",
        hint=near or there_are or "`planner instances` lists all of them",
        field="cluster.instance",
    )


@cache
def _instance(name: str) -> Instance:
    return build(Instance, facts("instances", name), f"instances/{name}")


@cache
def cube_mesh() -> Mapping[tuple[int, int], int]:
    """Return the links of each pair of a hybrid cube mesh, the lower index first."""
    pairs = link("nvlink-mesh-v100-8gpu").pairs
    return {(int(name[0]), int(name[-1])): links for name, links in pairs.items()}


def power_exponent() -> float:
    """Return how the clocks of matmuls follow a power limit: `data/calibration/power.toml`."""
    return float(read("calibration", "power")["exponent"])


@cache
def misaligned_slowdown(compute_capability: str, dtype: str) -> float:
    """Return how much longer a matmul takes whose rows are not aligned: `data/calibration/gemm.toml`."""
    latest = latest_known(read("calibration", "gemm")["misaligned"], compute_capability) or {}
    return float(latest.get(dtype, 1.0))


def latest_known(
    entries: Iterable[Mapping[str, Any]], compute_capability: str
) -> Mapping[str, Any] | None:
    """Return the entry of a GPU's compute capability, or of the nearest older one; None where all are newer."""

    def version(each: Mapping[str, Any]) -> tuple[int, ...]:
        return capability_version(each["compute_capability"])

    wanted = capability_version(compute_capability)
    return max((each for each in entries if version(each) <= wanted), key=version, default=None)


def capability_version(compute_capability: str) -> tuple[int, ...]:
    """Return a capability as numbers; cards of other makers have none and come before all."""
    return tuple(int(number) for number in compute_capability.split(".") if number)


def usual_batches() -> tuple[tuple[int, int], ...]:
    """Return `data/calibration/batches.toml`: parameters and tokens per optimizer step, ascending."""
    found = read("calibration", "batches")["batch"]
    return tuple(sorted((each["parameters"], each["tokens"]) for each in found))


def model(name: str) -> ModelRecord | None:
    """Return a shipped model by Hub id or short alias, in any case; None when there is none."""
    full = read("models", "aliases").get(name.lower(), name).lower()
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
        known = f"{did_you_mean(name, names)} known: {', '.join(names)}".lstrip()
        raise UnsupportedError(
            f"framework {name[:60]!r} is not estimated yet", hint=known, field="recipe.framework"
        )
    return build(Framework, framework_record(name), f"frameworks/{name}")


def framework_record(name: str) -> dict[str, Any]:
    """Return a framework's record on top of the one it names as `same_as`, key by key in a section."""
    said = read("frameworks", name)
    record = {key: said[key] for key in said if key not in {"aliases", "projects"}}
    inherited = framework_record(record.pop("same_as")) if "same_as" in record else {}
    return merged(inherited, record)


def merged(inherited: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record on top of another, key by key in a section."""
    sections = {
        key: inherited.get(key, {}) | section
        for key, section in record.items()
        if isinstance(section, dict)
    }
    return {**inherited, **record, **sections}


@cache
def vendor(name: str) -> Vendor:
    """Return what is known of a GPU's vendor."""
    if name not in _names("vendors", ".toml"):
        known = ", ".join(_names("vendors", ".toml"))
        raise InvalidRecordError(f"unknown vendor {name!r}; data/vendors has {known}")
    return build(Vendor, read("vendors", name), f"vendors/{name}")


def adapter_targets(model_type: str) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """Return PEFT's default targets of a model type, and its module names in the planner's words.

    Both are empty where PEFT has no default, or the names are the planner's own.
    """
    record = read("adapters", "peft")
    modules = record["modules"].get(model_type, {})
    return (
        tuple(record["targets"].get(model_type, ())),
        {name: tuple(linears) for name, linears in modules.items()},
    )


def is_expert_to_peft(model_type: str, module: str) -> bool:
    """Return whether PEFT, told this name of a dense linear, trains the model type's experts too."""
    experts = read("adapters", "peft")["experts"]
    return model_type in experts["model_types"] and module in experts["names"]
