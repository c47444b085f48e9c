"""The topology file: JSON that `planner probe` writes and every door reads.

    {"gpus": 2, "gpu_names": [...], "nvlink": {"0-1": 4}, "pcie": {}, "nics": [...], ...}

All but `gpus` may be left out; a pair is "low-high".
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin

from planner.catalog.findings import findings
from planner.core.errors import InvalidInputError, did_you_mean
from planner.core.frozen import frozen
from planner.core.strict_json import parse_json
from planner.core.strict_records import (
    Between,
    Few,
    Line,
    MisfitError,
    read_record,
)
from planner.domain.topology import (
    MOST_GPUS,
    MOST_LINKS,
    Nic,
    Pair,
    PcieClass,
    Topology,
    TopologyFinding,
)
from planner.hardware.topology.diagnose import diagnose
from planner.hardware.topology.refusal import refusal

_PAIR = re.compile(r"(0|[1-9][0-9]{0,2})-([1-9][0-9]{0,2})", re.ASCII)
_GPU = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_SPLIT_BY_MIG = "PRB004"
"""Of the probe's findings, the one that is about a topology too."""
_FASTEST_LINK = 1e12
"""Bytes per second of one link; more is a wrong unit."""
_OBJECTS = {
    "nics": 'names or objects of "name" and "pcie"',
    "findings": 'objects of "code" and "message"',
}
"""Lists whose entries have fields of their own."""

_Name = Annotated[str, Line(80, shortest=1)]


@frozen
class _Nic:
    name: _Name
    pcie: Mapping[str, PcieClass] = field(default_factory=dict)


@frozen
class _Finding:
    code: _Name
    message: Annotated[str, Line(1000, shortest=1)]


@frozen
class _File:
    """What the file may hold; pairs and GPUs are checked when their number is known."""

    gpus: Annotated[int, Between(1, MOST_GPUS)]
    gpu_names: Annotated[tuple[_Name, ...], Few(MOST_GPUS)] = ()
    nvlink: Mapping[str, Annotated[int, Between(1, MOST_LINKS)]] = field(default_factory=dict)
    pcie: Mapping[str, PcieClass] = field(default_factory=dict)
    nics: Annotated[tuple[_Nic, ...], Few(256)] = ()
    peer_to_peer: Mapping[str, bool] = field(default_factory=dict)
    islands: Any = None
    nvlink_bytes_per_second: Mapping[
        str, Annotated[float, Between(math.ulp(0.0), _FASTEST_LINK)]
    ] = field(default_factory=dict)
    numa: Mapping[str, Annotated[int, Between(0, 9999)]] = field(default_factory=dict)
    active_nvlinks: Mapping[str, Annotated[int, Between(0, 99)]] = field(default_factory=dict)
    memory_bytes: Mapping[str, Annotated[int, Between(0, 10**15)]] = field(default_factory=dict)
    pcie_generation: Mapping[str, Annotated[int, Between(0, 8)]] = field(default_factory=dict)
    pcie_lanes: Mapping[str, Annotated[int, Between(0, 32)]] = field(default_factory=dict)
    mig_instances: Mapping[str, Annotated[int, Between(0, 99)]] = field(default_factory=dict)
    fabric_cluster: _Name = ""
    findings: Annotated[tuple[_Finding, ...], Few(100)] = ()


_COUNTS = (
    "numa",
    "active_nvlinks",
    "memory_bytes",
    "pcie_generation",
    "pcie_lanes",
    "mig_instances",
)
"""Whole numbers by GPU."""
_KEYED = (*_COUNTS, "nvlink_bytes_per_second")


def dump(topology: Topology) -> str:
    """Return the file of a topology; reading it gives the same topology."""
    content = topology.to_wire() | {
        "gpu_names": list(topology.gpu_names),
        "nics": [{"name": nic.name, "pcie": _keyed(nic.pcie)} for nic in topology.nics],
        "peer_to_peer": {f"{a}-{b}": can for (a, b), can in sorted(topology.peer_to_peer.items())},
        "nvlink_bytes_per_second": _keyed(topology.nvlink_bytes_per_second),
        **{
            name: _keyed(by_gpu)
            for name in _COUNTS
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
    if isinstance(named := content.get("nics"), list):  # adapters may be names alone
        content["nics"] = [{"name": nic} if isinstance(nic, str) else nic for nic in named]
    try:
        said = read_record(_File, content)
    except MisfitError as error:
        raise _refused(error) from None
    by_gpu: dict[str, Any] = {name: _by_gpu(said, name, getattr(said, name)) for name in _KEYED}
    topology = Topology(
        num_gpus=said.gpus,
        nvlink=_by_pair(said, "nvlink"),
        pcie=_by_pair(said, "pcie"),
        nics=tuple(Nic(name=nic.name, pcie=_by_gpu(said, "nics", nic.pcie)) for nic in said.nics),
        peer_to_peer=_by_pair(said, "peer_to_peer"),
        gpu_names=said.gpu_names,
        fabric_cluster=said.fabric_cluster,
        **by_gpu,
    )
    if len(topology.gpu_names) > said.gpus:
        raise _refusal("gpu_names", f"expected a list of at most {said.gpus}")
    if topology.gpu_names and len(topology.gpu_names) != said.gpus:
        raise _refusal("gpu_names", f"{len(topology.gpu_names)} names for {said.gpus} GPUs")
    if both := sorted(topology.nvlink.keys() & topology.pcie.keys()):
        raise _refusal("pcie", f"{both[0][0]}-{both[0][1]} is in nvlink too")
    if "islands" in content and content["islands"] != [list(gpus) for gpus in topology.islands]:
        raise _refusal("islands", "these are not the ones that nvlink makes; leave the field out")
    for finding in said.findings:
        if finding.code not in {*findings("topology"), _SPLIT_BY_MIG}:
            raise _refusal("findings", f"there is no {_shown(finding.code)}")
    found = (TopologyFinding(code=each.code, message=each.message) for each in said.findings)
    return replace(topology, findings=tuple(found if "findings" in content else diagnose(topology)))


def _json(text: str) -> dict[str, Any]:
    try:
        content = parse_json(text.lstrip("\ufeff \t\r\n"))
    except ValueError as error:
        raise refusal(f"the topology file is not JSON: {str(error)[:120]}", hint=_HINT) from None
    return dict(content)


_HINT = "write the file with `planner probe`, or paste the output of `nvidia-smi topo -m`"


def _refusal(field: str, reason: str) -> InvalidInputError:
    return refusal(f"{field} of the topology file: {reason}", hint=_HINT)


def _refused(misfit: MisfitError) -> InvalidInputError:
    path, problem = misfit.path, misfit.problem
    name = re.split(r"[.\[]", path)[0]
    if problem == "unknown" and not path:
        hint = did_you_mean(misfit.value, [each.name for each in fields(_File)]) or _HINT
        said = f"the topology file has an unknown field {misfit.value[:40]!r}"
        return refusal(said, hint=hint)
    is_other_object = problem == "unknown" or is_dataclass(misfit.kind)
    if is_other_object or (problem, name) == ("missing", "findings"):
        return _refusal(name, f"expected {_OBJECTS[name]}")
    if isinstance(misfit.check, Few):
        return _refusal(name, f"expected a list of at most {misfit.check.most}")
    return _refusal(name, f"expected {_wanted(misfit)}, not {_shown(misfit.value)}")


def _wanted(misfit: MisfitError) -> str:
    match misfit.check:
        case Between(least, most) if misfit.kind is int:
            return f"a whole number from {least} to {most:,}"
        case Between(_, most):
            return f"bytes per second up to {most:.0e}"
        case Line(longest, shortest):
            return f"{shortest} to {longest} printable characters"
    if get_origin(misfit.kind) is Literal:
        return f"one of {', '.join(get_args(misfit.kind))}"
    return "true or false" if misfit.kind is bool else "an object"


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | None) else type(value).__name__


def _by_pair(said: _File, field: str) -> dict[Pair, Any]:
    values = {}
    for key, value in getattr(said, field).items():
        match = _PAIR.fullmatch(key)
        if not match or not int(match[1]) < int(match[2]) < said.gpus:
            raise _refusal(field, f"{key[:20]!r} is no pair low-high of {said.gpus} GPUs")
        values[int(match[1]), int(match[2])] = value
    return values


def _by_gpu(said: _File, field: str, values: Mapping[str, Any]) -> dict[int, Any]:
    for key in values:
        if not _GPU.fullmatch(key) or int(key) >= said.gpus:
            raise _refusal(field, f"{key[:20]!r} is none of {said.gpus} GPUs")
    return {int(key): value for key, value in values.items()}
