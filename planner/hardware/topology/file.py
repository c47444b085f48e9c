"""The topology file: JSON that `planner probe` writes and every door reads.

    {"gpus": 2, "gpu_names": [...], "nvlink": {"0-1": 4}, "pcie": {}, "nics": [...], ...}

All but `gpus` may be left out; a pair is "low-high".
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from planner.core.errors import did_you_mean
from planner.core.strict_json import parse_json
from planner.domain.topology import (
    MOST_GPUS,
    MOST_LINKS,
    PCIE_CLASSES,
    Nic,
    Pair,
    Topology,
    TopologyFinding,
)
from planner.hardware.topology.diagnose import diagnose
from planner.hardware.topology.findings import FINDINGS
from planner.hardware.topology.refusal import refusal

_Value = TypeVar("_Value")

_PAIR = re.compile(r"(0|[1-9][0-9]{0,2})-([1-9][0-9]{0,2})", re.ASCII)
_GPU = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_CODES = {*FINDINGS, "PRB004"}
"""Findings about a topology, and that GPUs of it are split by MIG, which the probe finds too."""
_MOST_NICS = 256
_MOST_FINDINGS = 100
_LONGEST_NAME = 80
_LONGEST_MESSAGE = 1000
_BY_GPU = {
    "numa": 9999,
    "active_nvlinks": 99,
    "memory_bytes": 10**15,
    "pcie_generation": 8,
    "pcie_lanes": 32,
    "mig_instances": 99,
}
"""Whole numbers by GPU, and the largest that is believed."""
_FASTEST_LINK = 1e12
"""Bytes per second of one link; more is a wrong unit."""
_FIELDS = {
    "gpus",
    "gpu_names",
    "nics",
    "nvlink",
    "pcie",
    "peer_to_peer",
    "islands",
    "nvlink_bytes_per_second",
    "fabric_cluster",
    "findings",
    *_BY_GPU,
}


def dump(topology: Topology) -> str:
    """Return the file of a topology; reading it gives the same topology."""
    content = topology.to_wire() | {
        "gpu_names": list(topology.gpu_names),
        "nics": [{"name": nic.name, "pcie": _keyed(nic.pcie)} for nic in topology.nics],
        "peer_to_peer": {f"{a}-{b}": can for (a, b), can in sorted(topology.peer_to_peer.items())},
        "nvlink_bytes_per_second": _keyed(topology.nvlink_bytes_per_second),
        **{
            name: _keyed(by_gpu)
            for name in _BY_GPU
            if (by_gpu := getattr(topology, name)) or name != "mig_instances"
        },
        **({"fabric_cluster": topology.fabric_cluster} if topology.fabric_cluster else {}),
    }
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _keyed(by_gpu: Mapping[int, Any]) -> dict[str, Any]:
    return {str(gpu): by_gpu[gpu] for gpu in sorted(by_gpu)}


def is_file(text: str) -> bool:
    """Return whether a paste is meant as a topology file."""
    return text.lstrip("\ufeff \t\r\n").startswith("{")


def read_file(text: str) -> Topology:
    """Return the topology of a file; findings that it does not bring are found anew.

    Raises:
        InvalidInputError: it is no JSON, has an unknown field, or a value is out of range; says
            which.
    """
    content = _json(text)
    if unknown := sorted(content.keys() - _FIELDS):
        hint = did_you_mean(unknown[0], _FIELDS) or _HINT
        raise refusal(f"the topology file has an unknown field {unknown[0][:40]!r}", hint=hint)
    num_gpus = _whole("gpus", content.get("gpus"), 1, MOST_GPUS)
    topology = Topology(
        num_gpus=num_gpus,
        nvlink=_by_pair(content, "nvlink", num_gpus, _links),
        pcie=_by_pair(content, "pcie", num_gpus, _class),
        nics=_nics(content, num_gpus),
        peer_to_peer=_by_pair(content, "peer_to_peer", num_gpus, _truth),
        gpu_names=_names(content, num_gpus),
        nvlink_bytes_per_second=_by_gpu(content, "nvlink_bytes_per_second", num_gpus, _positive),
        numa=_by_gpu(content, "numa", num_gpus, _number),
        active_nvlinks=_by_gpu(content, "active_nvlinks", num_gpus, _number),
        memory_bytes=_by_gpu(content, "memory_bytes", num_gpus, _number),
        pcie_generation=_by_gpu(content, "pcie_generation", num_gpus, _number),
        pcie_lanes=_by_gpu(content, "pcie_lanes", num_gpus, _number),
        mig_instances=_by_gpu(content, "mig_instances", num_gpus, _number),
        fabric_cluster=_text("fabric_cluster", content["fabric_cluster"])
        if "fabric_cluster" in content
        else "",
    )
    if both := sorted(topology.nvlink.keys() & topology.pcie.keys()):
        _refuse("pcie", f"{both[0][0]}-{both[0][1]} is in nvlink too")
    if "islands" in content and content["islands"] != [list(gpus) for gpus in topology.islands]:
        _refuse("islands", "these are not the ones that nvlink makes; leave the field out")
    findings = _findings(content) if "findings" in content else tuple(diagnose(topology))
    return replace(topology, findings=findings)


def _json(text: str) -> dict[str, Any]:
    try:
        content = parse_json(text.lstrip("\ufeff \t\r\n"))
    except ValueError as error:
        raise refusal(f"the topology file is not JSON: {str(error)[:120]}", hint=_HINT) from None
    return dict(content)


_HINT = "write the file with `planner probe`, or paste the output of `nvidia-smi topo -m`"


def _refuse(field: str, reason: str) -> NoReturn:
    raise refusal(f"{field} of the topology file: {reason}", hint=_HINT)


def _whole(field: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(field, f"expected a whole number from {least} to {most:,}, not {_shown(value)}")
    return value


def _number(field: str, value: Any) -> int:
    return _whole(field, value, 0, _BY_GPU[field])


def _links(field: str, value: Any) -> int:
    return _whole(field, value, 1, MOST_LINKS)


def _positive(field: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _FASTEST_LINK:
        _refuse(field, f"expected bytes per second up to {_FASTEST_LINK:.0e}, not {_shown(value)}")
    return float(value)


def _class(field: str, value: Any) -> str:
    if not isinstance(value, str) or value not in PCIE_CLASSES:
        _refuse(field, f"expected one of {', '.join(PCIE_CLASSES)}, not {_shown(value)}")
    return value


def _truth(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(field, f"expected true or false, not {_shown(value)}")
    return value


def _text(field: str, value: Any, longest: int = _LONGEST_NAME) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        _refuse(field, f"expected 1 to {longest} printable characters, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | None) else type(value).__name__


def _entries(content: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = content.get(field, {})
    if not isinstance(value, dict):
        _refuse(field, f"expected an object, not {_shown(value)}")
    return value


def _list(content: Mapping[str, Any], field: str, most: int) -> list[Any]:
    value = content.get(field, [])
    if not isinstance(value, list) or len(value) > most:
        _refuse(field, f"expected a list of at most {most}")
    return value


def _by_pair(
    content: Mapping[str, Any], field: str, num_gpus: int, read: Callable[[str, Any], _Value]
) -> dict[Pair, _Value]:
    values = {}
    for key, value in _entries(content, field).items():
        match = _PAIR.fullmatch(key)
        if not match or not int(match[1]) < int(match[2]) < num_gpus:
            _refuse(field, f"{key[:20]!r} is no pair low-high of {num_gpus} GPUs")
        values[int(match[1]), int(match[2])] = read(field, value)
    return values


def _by_gpu(
    content: Mapping[str, Any], field: str, num_gpus: int, read: Callable[[str, Any], _Value]
) -> dict[int, _Value]:
    return _keyed_by_gpu(field, _entries(content, field), num_gpus, read)


def _keyed_by_gpu(
    field: str, entries: Mapping[str, Any], num_gpus: int, read: Callable[[str, Any], _Value]
) -> dict[int, _Value]:
    values = {}
    for key, value in entries.items():
        if not _GPU.fullmatch(key) or int(key) >= num_gpus:
            _refuse(field, f"{key[:20]!r} is none of {num_gpus} GPUs")
        values[int(key)] = read(field, value)
    return values


def _names(content: Mapping[str, Any], num_gpus: int) -> tuple[str, ...]:
    names = tuple(_text("gpu_names", name) for name in _list(content, "gpu_names", num_gpus))
    if names and len(names) != num_gpus:
        _refuse("gpu_names", f"{len(names)} names for {num_gpus} GPUs")
    return names


def _nics(content: Mapping[str, Any], num_gpus: int) -> tuple[Nic, ...]:
    return tuple(_nic(entry, num_gpus) for entry in _list(content, "nics", _MOST_NICS))


def _nic(entry: Any, num_gpus: int) -> Nic:
    """Return an adapter from its object, or from its name alone."""
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict) or entry.keys() - {"name", "pcie"}:
        _refuse("nics", 'expected names or objects of "name" and "pcie"')
    pcie = _keyed_by_gpu("nics", _entries(entry, "pcie"), num_gpus, _class)
    return Nic(name=_text("nics", entry.get("name")), pcie=pcie)


def _findings(content: Mapping[str, Any]) -> tuple[TopologyFinding, ...]:
    return tuple(_finding(entry) for entry in _list(content, "findings", _MOST_FINDINGS))


def _finding(entry: Any) -> TopologyFinding:
    if not isinstance(entry, dict) or entry.keys() != {"code", "message"}:
        _refuse("findings", 'expected objects of "code" and "message"')
    code = _text("findings", entry["code"])
    if code not in _CODES:
        _refuse("findings", f"there is no {_shown(code)}")
    return TopologyFinding(code=code, message=_text("findings", entry["message"], _LONGEST_MESSAGE))
