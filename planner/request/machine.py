"""The machine of a request: whose GPUs are meant where it names none, and what its file holds of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.catalog.framework_names import as_recorded
from planner.core.frozen import frozen
from planner.domain.cluster import Cluster, Gpu, Provenance
from planner.domain.framework import Framework
from planner.hardware.named_links import BETWEEN, INSIDE
from planner.request.remarks import Assumption
from planner.request.sections import ClusterRequest

if TYPE_CHECKING:
    from planner.machine.document import Machine

FIELD = "machine"
_NAMES_GPUS = frozenset({"gpu", "instance", "topology"})
_SIZES = ("gpus_per_node", "nodes")


@frozen
class MachineUse:
    """What of an estimate is a machine's own."""

    name: str
    created: str
    own: tuple[str, ...]
    from_catalogue: tuple[str, ...]


@frozen
class OnMachine:
    """A cluster and a framework, with a machine's figures where the request has one."""

    cluster: Cluster
    framework: Framework
    use: MachineUse | None = None
    settled: frozenset[str] = frozenset()
    """Fields of which nothing has to be assumed any more."""
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()


def machine_of(value: Mapping[str, Any] | None) -> "Machine | None":
    """Return the machine that a request holds, if it holds one.

    Raises:
        InvalidInputError: it is none, or of another version.
    """
    if value is None:
        return None
    from planner.machine.reading import parse_machine

    return parse_machine(value)


def own_gpu_of(machine: "Machine | None") -> Gpu | None:
    """Return the machine's card where no record has it; None where one has, or there is no machine.

    Raises:
        InvalidInputError: neither has the file what would stand for a record.
    """
    if machine is None:
        return None
    from planner.machine.own_gpu import own_gpu

    return own_gpu(machine)


def cluster_of_machine(wanted: ClusterRequest, machine: "Machine | None") -> ClusterRequest:
    """Return the cluster that is asked for, with the machine's GPUs where none are named."""
    if machine is None or wanted.model_fields_set & _NAMES_GPUS:
        return wanted
    own: dict[str, Any] = {"gpu": machine.cluster.gpu}
    for name in _SIZES:
        if name not in wanted.model_fields_set:
            own[name] = getattr(machine.cluster, name)
    given = {name: getattr(wanted, name) for name in wanted.model_fields_set}
    return ClusterRequest(**given, **own)


def on_machine(machine: "Machine | None", cluster: Cluster, framework: Framework) -> OnMachine:
    """Return a job's cluster and framework with what was measured, and what has to be said of it.

    Raises:
        InvalidInputError: the machine has other GPUs.
    """
    if machine is None:
        return OnMachine(cluster=cluster, framework=framework)
    from planner.machine.applying import apply_machine, source_of

    applied = apply_machine(machine, cluster, framework)
    use = MachineUse(
        name=machine.name,
        created=machine.created,
        own=applied.own,
        from_catalogue=applied.from_catalogue,
    )
    own = ", ".join(applied.own) or "nothing"
    notes = (f"{source_of(machine)}: {own}", *applied.notes, *_other_framework(machine, framework))
    text = f"{', '.join(applied.from_catalogue)} of the catalogue: the machine file has none"
    missing = (Assumption(text=text, field=FIELD),) if applied.from_catalogue else ()
    return OnMachine(
        cluster=applied.cluster,
        framework=applied.framework,
        use=use,
        settled=_settled(applied.cluster),
        assumptions=missing,
        notes=notes,
    )


def _settled(cluster: Cluster) -> frozenset[str]:
    links = {INSIDE: cluster.intra_node, BETWEEN: cluster.inter_node}
    return frozenset(
        field for field, link in links.items() if link and link.provenance is Provenance.OWN
    )


def _other_framework(machine: "Machine", framework: Framework) -> tuple[str, ...]:
    recipes = [run.request.get("recipe") for run in machine.runs]
    names = {
        recipe.get("framework", "torch") if isinstance(recipe, Mapping) else "torch"
        for recipe in recipes
    }
    names = {as_recorded(name, None)[0] for name in names if isinstance(name, str)}
    if not names or framework.name in names:
        return ()
    known = ", ".join(sorted(names))[:80]
    return (f"the machine was measured with {known}, and may not hold for {framework.name}",)
