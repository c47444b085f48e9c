"""CUDA_VISIBLE_DEVICES, which CUDA obeys and NVML does not."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.domain.topology import TopologyFinding
from planner.hardware.probe.machine import Machine, MigInstance, ProbedGpu, keep, noted

VARIABLE = "CUDA_VISIBLE_DEVICES"
_LONGEST = 8192
_NUMBER = re.compile(r"[0-9]{1,4}$")

VisibleGpu = tuple[int, MigInstance | None]
"""A GPU's position and, where one was named, its instance."""


def restrict(machine: Machine, environment: Mapping[str, str]) -> Machine | str:
    """Return the machine as CUDA will see it, or why CUDA will see nothing.

    Entries are numbers, beginnings of GPU UUIDs or of MIG UUIDs; CUDA stops at the first that
    names nothing.

    Source: CUDA Programming Guide, appendix on environment variables.
    """
    value = environment.get(VARIABLE)
    if value is None:
        return machine
    entries = [entry.strip() for entry in value[:_LONGEST].split(",")]
    if entries[0] in {"", "-1"}:
        return f"{VARIABLE}={value[:20]!r} hides every GPU from CUDA"
    choices = _choices(machine.gpus, entries)
    if not choices or len(set(choices)) < len(choices):
        return noted(machine, _unreadable(value))
    if choices == [(position, None) for position in range(len(machine.gpus))]:
        return machine
    return noted(_chosen(machine, choices), _note(machine, choices, entries, environment))


def _choices(gpus: Sequence[ProbedGpu], entries: Sequence[str]) -> list[VisibleGpu]:
    choices: list[VisibleGpu] = []
    for entry in entries:
        visible = _find(gpus, entry)
        if visible is None:
            break
        choices.append(visible)
    return choices


def _find(gpus: Sequence[ProbedGpu], entry: str) -> VisibleGpu | None:
    if _NUMBER.match(entry):
        return (int(entry), None) if int(entry) < len(gpus) else None
    by_uuid: list[tuple[str, VisibleGpu]] = [(gpu.uuid, (i, None)) for i, gpu in enumerate(gpus)]
    by_uuid += [(part.uuid, (i, part)) for i, gpu in enumerate(gpus) for part in gpu.mig]
    if not entry.upper().startswith(("GPU-", "MIG-")):
        return None
    matches = [choice for uuid, choice in by_uuid if uuid.upper().startswith(entry.upper())]
    return matches[0] if len(matches) == 1 else None


def _chosen(machine: Machine, choices: Sequence[VisibleGpu]) -> Machine:
    parts: dict[int, list[MigInstance]] = {}
    for position, part in choices:
        parts.setdefault(position, []).extend([part] if part else [])
    gpus = tuple(
        replace(gpu, mig=tuple(parts[position])) if parts.get(position) else gpu
        for position, gpu in enumerate(machine.gpus)
    )
    return keep(replace(machine, gpus=gpus), list(parts))


def _note(
    machine: Machine,
    choices: Sequence[VisibleGpu],
    entries: Sequence[str],
    environment: Mapping[str, str],
) -> TopologyFinding:
    shown = ", ".join(
        f"{machine.gpus[position].index}" + (f" (MIG {part.uuid})" if part else "")
        for position, part in choices
    )
    text = f"{VARIABLE} leaves GPU {shown} of {len(machine.gpus)}, in this order"
    if len(choices) < len(entries):
        text += f"; CUDA stops reading at {entries[len(choices)][:40]!r}"
    is_mixed = len({gpu.name for gpu in machine.gpus}) > 1
    by_number = any(_NUMBER.match(entry) for entry in entries[: len(choices)])
    if is_mixed and by_number and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        text += (
            "; numbers are read in the order of PCI bus ids, but CUDA puts the fastest GPU first"
            " unless CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return TopologyFinding(code="PRB011", message=text)


def _unreadable(value: str) -> TopologyFinding:
    return TopologyFinding(
        code="PRB012",
        message=f"{VARIABLE}={value[:60]!r} names no GPU here, or one of them twice: all GPUs are"
        " shown, though CUDA itself will see none",
    )
