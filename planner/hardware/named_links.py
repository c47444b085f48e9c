"""A link as the user writes it -> Link: a name, several of a name, a rate, or measured figures."""

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.catalog.records import LinkRecord
from planner.catalog.spellings import spelled
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import GIGA, MICRO, format_bit_rate, format_rate
from planner.domain.cluster import Gpu, Link, Provenance

INSIDE, BETWEEN = "cluster.intra_node", "cluster.inter_node"
"""The fields of a request that name a link."""
_EXAMPLES = {INSIDE: "pcie-4-x16", BETWEEN: "8x infiniband-ndr"}
_MEDIA = ("nvlink", "pcie", "network")
_BITS = 8
_BRIDGED = 2
"""Cards that an NVLink bridge joins."""
_COUNT = re.compile(r"(?:(?P<count>[0-9]{1,3}) ?[x*] ?)?(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_RATE = re.compile(r"(?P<amount>[0-9]{1,6}(?:\.[0-9]{1,6})?) ?(?P<unit>[A-Za-z/]{2,7})")
_NUMBER_LIKE = re.compile(r"[-+]?\.?[0-9]")
"""How what is meant for a rate begins: no link's name does."""
_SLOT = re.compile(r"pcie-(?P<generation>[3-6])-x(?P<lanes>8|16)")
_BYTE_UNITS = ("GB/s", "GBps")
_BIT_UNITS = ("Gbit/s", "Gb/s", "Gbps", "gbit/s", "gbps")
_LOWEST, _HIGHEST = 1e-3, 1e5
"""GB/s that are taken, as in the request's measured figures."""


@frozen
class _Written:
    """What a text says: how many, of which record or of which rate."""

    count: int
    record: LinkRecord | None = None
    bytes_per_second: float = 0.0
    is_nominal: bool = False
    """The rate is a line's, in bits, of which collectives reach a share."""


def link_inside(given: str | Mapping[str, float], gpu: Gpu | None = None) -> Link:
    """Return the link between the GPUs of a node that the user named or measured.

    Args:
        given: a record of `data/links` (`nvlink-3`, or `4x nvlink-3` for four of its links), a
            measured bus bandwidth (`20GB/s`), or `bus_gb_per_s` with an optional `latency_us`.
        gpu: whose links are meant; a named NVLink generation then counts all of them.

    Raises:
        UnknownNameError: no link has that name.
        InvalidInputError: a rate in bits, or a number of what is not one link.
    """
    if not isinstance(given, str):
        return _measured(given["bus_gb_per_s"] * GIGA, given.get("latency_us"))
    written = _read(given, INSIDE)
    if written.is_nominal:
        raise InvalidInputError(
            f"{given[:40]!r} is a line's rate; between the GPUs of a node a bus bandwidth is asked for",
            hint="such as 20GB/s, as nccl-tests prints it (busbw)",
            field=INSIDE,
        )
    if written.record is None:
        return _measured(written.count * written.bytes_per_second)
    is_one_of_many = written.record.kind == "nvlink" and written.record.scope == "link"
    if written.count > 1 and not is_one_of_many:
        raise _not_several(written.record, INSIDE)
    links = gpu.nvlink_links if gpu and is_one_of_many else 0
    return _link_of_record(written.record, written.count if written.count > 1 else links or 1)


def own_nvlink(given: str, gpu: Gpu, gpus_per_node: int) -> str | None:
    """Return the link that "nvlink" means for a GPU: its bridge by name, or None for what it is sold with.

    Raises:
        InvalidInputError: the GPU has none, or a bridge is to join more than two.
    """
    if spelled(INSIDE, given, ["nvlink"]) != "nvlink":
        return given
    if gpu.nvlink_fabric in {"nvswitch", "mesh"}:
        return None
    if not gpu.nvlink_links:
        raise InvalidInputError(f"{gpu.name} has no NVLink", hint="leave it out", field=INSIDE)
    if gpus_per_node > _BRIDGED:
        raise InvalidInputError(
            f"a bridge of {gpu.name} joins {_BRIDGED} cards, and a node has {gpus_per_node}",
            hint="--topology FILE says which pairs are joined (nvidia-smi topo -m)",
            field=INSIDE,
        )
    return gpu.fabric_link


def link_between(given: str | Mapping[str, float], gpus_per_node: int) -> Link:
    """Return the network between nodes that the user named or measured, as one node has it.

    Args:
        given: a record of `data/links` (one port of `infiniband-ndr`, or `8x infiniband-ndr`), a
            line's rate (`400Gbit/s`), a measured one (`50GB/s`), or `gb_per_s_per_node` with an
            optional `latency_us`.
        gpus_per_node: a record of what each GPU has counts as often.

    Raises:
        UnknownNameError: no link has that name.
        InvalidInputError: several of what a whole node has, or what joins GPUs inside of one.
    """
    if not isinstance(given, str):
        return _measured(given["gb_per_s_per_node"] * GIGA, given.get("latency_us"))
    written = _read(given, BETWEEN)
    if written.record is None:
        rate = written.count * written.bytes_per_second
        return _line(rate) if written.is_nominal else _measured(rate)
    if written.record.kind != "network" and not written.record.domain_gpus:
        raise InvalidInputError(
            f"{written.record.name} joins the GPUs of a node, not nodes",
            hint=f"a network, such as {_EXAMPLES[BETWEEN]}; racks that NVLink joins: --nvlink-domain GPUS",
            field=BETWEEN,
        )
    if written.count > 1 and written.record.scope != "port":
        raise _not_several(written.record, BETWEEN)
    count = gpus_per_node if written.record.scope == "gpu" else written.count
    return _link_of_record(written.record, count)


def single_port(given: str, gpus_per_node: int) -> str:
    """Return what a network's bare name means where a node might have several ports, else ""."""
    written = _read(given, BETWEEN)
    record = written.record
    is_bare = record is not None and not given.strip()[:1].isdigit()
    if record is None or not is_bare or record.scope != "port" or gpus_per_node == 1:
        return ""
    rate = record.bytes_per_second
    return (
        f"one {format_bit_rate(rate)} port per node ({record.name}, {format_rate(rate)});"
        f" {gpus_per_node}x {record.name} is one per GPU"
    )


def pcie_slot(name: str) -> tuple[int, int] | None:
    """Return the generation and the lanes of a slot, where a link's name is one (`pcie-3-x16`)."""
    slot = _SLOT.fullmatch(name.strip().lower())
    return (int(slot["generation"]), int(slot["lanes"])) if slot else None


def rack_record(given: object) -> LinkRecord | None:
    """Return the record of a rack joined by NVLink, where that is what was named."""
    if not isinstance(given, str):
        return None
    record = _read(given, BETWEEN).record
    return record if record and record.domain_gpus else None


def ports(name: str, count: int) -> Link:
    """Return so many ports of a network's record."""
    return _link_of_record(records.link(name, BETWEEN), count)


def _read(text: str, field: str) -> _Written:
    """Return what is written: `8x infiniband-ndr`, `2x 200Gbit/s`, `20GB/s`, `pcie-4-x16`."""
    ((given, rest),) = _COUNT.findall(text.strip())[:1]
    count = int(given or 1)
    if not count:
        raise InvalidInputError(f"{text[:40]!r} is no link", hint="leave the 0x out", field=field)
    rate = _RATE.fullmatch(rest)
    if not rest:
        raise InvalidInputError(
            f"{text[:40]!r} names no link" if given else "no link is named",
            hint=f"such as {_EXAMPLES[field]}; `planner links` lists all of them",
            field=field,
        )
    if rate is None and _NUMBER_LIKE.match(rest):
        raise _no_rate(text, field)
    if rate is None:
        name = spelled(field, rest, records.link_names())
        return _Written(count=count, record=records.link(name, field))
    if rate["unit"] not in (*_BYTE_UNITS, *_BIT_UNITS):
        raise _no_rate(text, field)
    is_nominal = rate["unit"] in _BIT_UNITS
    amount = float(rate["amount"]) / (_BITS if is_nominal else 1)
    if not _LOWEST <= amount * count <= _HIGHEST:
        raise InvalidInputError(
            f"{text[:40]!r} is out of range",
            hint=f"from {_LOWEST:g} to {_HIGHEST:,.0f} GB/s",
            field=field,
        )
    return _Written(count=count, bytes_per_second=amount * GIGA, is_nominal=is_nominal)


def _no_rate(text: str, field: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot read {text[:40]!r} as a rate",
        hint="50GB/s for gigabytes, 400Gbit/s for gigabits a second",
        field=field,
    )


def _not_several(record: LinkRecord, field: str) -> InvalidInputError:
    whose = {"link": "slot", "gpu": "GPU"}.get(record.scope, record.scope)
    return InvalidInputError(
        f"{record.name} is all that a {whose} has, so it is not counted",
        hint=f"{record.name} alone",
        field=field,
    )


def _measured(bytes_per_second: float, latency_us: float | None = None) -> Link:
    return Link(
        name=f"as given, {format_rate(bytes_per_second)}",
        bytes_per_second=bytes_per_second,
        latency_seconds=(
            interconnect().latency_seconds if latency_us is None else latency_us * MICRO
        ),
        provenance=Provenance.MEASURED,
        source="given by the user",
        is_fast=bytes_per_second > records.link("pcie-5-x16").bytes_per_second,
    )


def _line(bytes_per_second: float) -> Link:
    network = interconnect().network
    return Link(
        name=f"as given, {format_bit_rate(bytes_per_second)}",
        bytes_per_second=bytes_per_second * network.achievable_fraction,
        latency_seconds=network.latency_seconds,
        provenance=Provenance.DERIVED,
        source=f"the line's rate, given by the user, x {network.achievable_fraction}",
        medium="network",
    )


def _link_of_record(record: LinkRecord, count: int = 1) -> Link:
    defaults = interconnect()
    measured = record.all_reduce_bus_bytes_per_second
    reached = measured or record.achievable_bytes_per_second
    reached = reached or record.bytes_per_second * defaults.network.achievable_fraction
    section = defaults.network if record.kind == "network" else defaults
    return Link(
        name=record.name if count == 1 else f"{count}x {record.name}",
        bytes_per_second=count * reached,
        latency_seconds=record.latency_seconds or section.latency_seconds,
        provenance=Provenance.MEASURED if measured else Provenance.DERIVED,
        source=record.source,
        is_fast=record.kind == "nvlink",
        medium=record.kind if record.kind in _MEDIA else "given",
        transport=record.transport,
    )


def assumed(link: Link, source: str) -> Link:
    """Return a link that nobody spoke of."""
    return replace(link, provenance=Provenance.ASSUMED, source=f"assumed: {source}")
