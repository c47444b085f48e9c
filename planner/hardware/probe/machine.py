"""What a probe finds: the GPUs that can be used, and how they are connected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from planner.core.frozen import frozen
from planner.domain.topology import Pair, Topology, TopologyFinding

T = TypeVar("T")


@frozen
class MigInstance:
    """One slice of a GPU that has been split."""

    uuid: str
    memory_bytes: int | None


@frozen
class ProbedGpu:
    """One GPU as the driver describes it; None and an empty text mean that it did not say."""

    index: int
    """The driver's number, in the order of PCI bus ids. A GPU that was left out leaves a hole."""
    name: str
    uuid: str
    memory_bytes: int | None
    """Of the whole GPU, what the driver keeps for itself included."""
    compute_capability: str
    pcie_generation: int | None
    """The most that GPU and slot can do together; an idle link runs slower."""
    pcie_lanes: int | None
    nvlink_links: int | None
    """Active links to GPUs and switches; links to a POWER9 processor are not among them."""
    nvlink_version: str
    numa_node: int | None
    mig: tuple[MigInstance, ...] = ()
    power_limit_watts: float | None = None


@frozen
class Machine:
    """The usable GPUs of one machine; GPU i of `topology` is `gpus[i]`."""

    gpus: tuple[ProbedGpu, ...]
    topology: Topology
    driver_version: str
    findings: tuple[TopologyFinding, ...]
    """What the probe ran into, then what the topology itself shows."""


def make_machine(
    gpus: Sequence[ProbedGpu],
    topology: Topology,
    driver_version: str,
    notes: Sequence[TopologyFinding],
) -> Machine:
    """Return a machine whose topology alone holds what a plan for it needs.

    Args:
        gpus: in the order that CUDA gives them.
        topology: how they are connected.
        driver_version: empty where unknown.
        notes: findings of the probe; those of the topology are found here.
    """
    from planner.hardware.topology.diagnose import diagnose

    named = replace(
        topology,
        gpu_names=tuple(gpu.name for gpu in gpus),
        numa=_known(gpu.numa_node for gpu in gpus),
        memory_bytes=_known(gpu.memory_bytes for gpu in gpus),
        pcie_generation=_known(gpu.pcie_generation for gpu in gpus),
        pcie_lanes=_known(gpu.pcie_lanes for gpu in gpus),
        findings=(),
    )
    findings = (*diagnose(named), *_without_copies(named))
    return Machine(
        gpus=tuple(gpus),
        topology=replace(named, findings=findings),
        driver_version=driver_version,
        findings=(*notes, *findings),
    )


def noted(machine: Machine, note: TopologyFinding) -> Machine:
    """Return the machine with one more finding of the probe."""
    return replace(machine, findings=(*_notes(machine), note, *machine.topology.findings))


def keep(machine: Machine, positions: Sequence[int]) -> Machine:
    """Return the machine with only the GPUs at these positions, in this order."""
    full_topology = machine.topology
    new = {old: position for position, old in enumerate(positions)}
    topology = replace(
        full_topology,
        num_gpus=len(positions),
        nvlink=_renumbered(full_topology.nvlink, new),
        pcie=_renumbered(full_topology.pcie, new),
        peer_to_peer=_renumbered(full_topology.peer_to_peer, new),
        nics=tuple(
            replace(nic, pcie={new[old]: name for old, name in nic.pcie.items() if old in new})
            for nic in full_topology.nics
        ),
        mig_instances={
            new[old]: count for old, count in full_topology.mig_instances.items() if old in new
        },
        active_nvlinks={},  # some lead to GPUs that are no longer there
    )
    gpus = [machine.gpus[position] for position in positions]
    return make_machine(gpus, topology, machine.driver_version, _notes(machine))


def _notes(machine: Machine) -> tuple[TopologyFinding, ...]:
    return machine.findings[: len(machine.findings) - len(machine.topology.findings)]


def _known(values: Iterable[int | None]) -> dict[int, int]:
    return {position: value for position, value in enumerate(values) if value is not None}


def _without_copies(topology: Topology) -> list[TopologyFinding]:
    blocked = [pair for pair, works in topology.peer_to_peer.items() if not works]
    if not blocked:
        return []
    from planner.hardware.topology.words import some_pairs

    message = (
        f"{len(blocked)} of {len(topology.peer_to_peer)} pairs of GPUs cannot copy to each other:"
        f" {some_pairs(blocked)}"
    )
    return [TopologyFinding(code="TOP010", message=message)]


def _renumbered(pairs: Mapping[Pair, T], new: Mapping[int, int]) -> dict[Pair, T]:
    moved = (
        ((new[low], new[high]), value)
        for (low, high), value in pairs.items()
        if low in new and high in new
    )
    return {(min(pair), max(pair)): value for pair, value in moved}
