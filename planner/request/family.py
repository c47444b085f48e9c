"""A family of layouts by name, as plans print it: tp+pp+zero-1 in, what such a layout must have out."""

import re

from planner.core.errors import InvalidInputError, did_you_mean
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import STAGES, ZERO_2, ZERO_3, Offload
from planner.search.pinned_fields import AtLeast, PinnedFields

_SYNONYMS = {
    "fsdp": "zero-3",
    "fsdp2": "zero-3",
    "full-shard": "zero-3",
    "sharded": "zero-3",
    "partitioned": "zero-3",
    "hybrid-shard": "hsdp",
    "dp": "ddp",
}
"""What people call a part of a family that plans print otherwise."""
_DIMENSIONS = {each.short_name: each.field for each in DIMENSIONS}
_PARTS = (*_DIMENSIONS, *STAGES, "hsdp", "local-sgd", "offload")
_ZERO = re.compile(r"zero[-_ ]?([0-3])")
_LONGEST = 60


def family_fields(name: str) -> PinnedFields:
    """Return what every layout of a family has: what is not named is not there.

    ddp is every other size 1; tp+pp has no data parallelism, tp+pp+zero-1 has some, ep any; fsdp is zero-3; hsdp
    is shards of parameters with replicas; nothing is offloaded where the name does not say so.

    Raises:
        InvalidInputError: a part of the name is unknown, or two of them contradict each other.
    """
    parts = [_part(part, name) for part in name.split("+")]
    data = [part for part in parts if part in STAGES or part in {"hsdp", "local-sgd"}]
    if len(data) > 1:
        raise InvalidInputError(
            f"{' and '.join(data)} are two kinds of data parallelism",
            hint="name one of them, such as tp+zero-1",
            field="strategy.family",
        )
    fields: dict[str, int] = {
        field: AtLeast(2) if short_name in parts else 1 for short_name, field in _DIMENSIONS.items()
    }
    # Experts are dealt over ranks that hold other data or parts: where no such are named, data parallelism of any kind.
    is_data_open = not data and "ep" in parts and not {"tp", "cp"} & set(parts)
    fields |= {"data_parallel_size": AtLeast(2)} if is_data_open else _data(data[0] if data else "")
    if data == ["hsdp"] and "cp" not in parts:  # shards go over the ranks of a sequence too
        fields["data_parallel_shard_size"] = AtLeast(2)
    # Context parallelism shares states as data parallelism does, and a host takes those of a single rank.
    is_shared = data == ["ddp"] or not {"cp", "offload"} & set(parts)
    if data and data[0] in STAGES and len(parts) > 1 and is_shared:
        fields["data_parallel_size"] = AtLeast(2)
    offloaded = AtLeast(Offload.OPTIMIZER) if "offload" in parts else Offload.NONE
    return fields | {"offload": offloaded}


def named_fields(name: str) -> PinnedFields:
    """Return what the parts of a family's name say themselves, not what follows from the parts that it lacks.

    Raises:
        InvalidInputError: see `family_fields`.
    """
    parts = {_part(part, name) for part in name.split("+")}
    named = {field for short_name, field in _DIMENSIONS.items() if short_name in parts}
    if parts & {*STAGES, "hsdp", "local-sgd"}:
        named.add("zero_stage")
    named |= {"data_parallel_replicate_size"} if "hsdp" in parts else set()
    named |= {"synchronize_every"} if "local-sgd" in parts else set()
    named |= {"offload"} if "offload" in parts else set()
    return {field: value for field, value in family_fields(name).items() if field in named}


def _data(kind: str) -> PinnedFields:
    """Return the fields of a kind of data parallelism; of none, where it is not named."""
    if not kind:
        return {"zero_stage": 0, "data_parallel_size": 1}
    if kind == "hsdp":
        return {"zero_stage": AtLeast(ZERO_2), "data_parallel_replicate_size": AtLeast(2)}
    if kind == "local-sgd":
        return {"zero_stage": 0, "synchronize_every": AtLeast(2)}
    stage = STAGES[kind]
    return {"zero_stage": stage} | ({"data_parallel_replicate_size": 1} if stage >= ZERO_2 else {})


def _part(text: str, name: str) -> str:
    wanted = text.strip().lower()
    numbered = _ZERO.fullmatch(wanted)
    if numbered:
        wanted = f"zero-{numbered[1]}" if numbered[1] != "0" else "ddp"
    wanted = _SYNONYMS.get(wanted.replace("_", "-"), wanted.replace("_", "-"))
    if wanted not in _PARTS:
        known = (*_PARTS, *_SYNONYMS)
        raise InvalidInputError(
            f"unknown strategy {name[:_LONGEST]!r}",
            hint=did_you_mean(wanted, known)
            or f"known: {', '.join(STAGES)}, fsdp or hsdp, or several such as tp+pp+zero-1",
            field="strategy.family",
        )
    return wanted


def definite(pinned: PinnedFields, nodes: int) -> PinnedFields:
    """Return pinned fields without a choice left, for an estimate; HSDP shards within a node.

    Raises:
        InvalidInputError: a size is left open.
    """
    found = dict(pinned)
    if isinstance(found.get("zero_stage"), AtLeast):
        found["zero_stage"] = ZERO_3
    replicas = found.get("data_parallel_replicate_size")
    has_shards = not isinstance(found.get("data_parallel_shard_size", AtLeast(1)), AtLeast)
    if isinstance(replicas, AtLeast) and not has_shards:
        found["data_parallel_replicate_size"] = max(2, nodes)
    for dimension in DIMENSIONS:
        if isinstance(found.get(dimension.field), AtLeast):
            raise InvalidInputError(
                f"the {dimension.name} parallel size is left open",
                hint=f"an estimate is of one layout: add --{dimension.short_name} N, or ask for a"
                " suggestion",
                field=f"strategy.{dimension.field}",
            )
    if isinstance(found.get("offload"), AtLeast):
        found["offload"] = Offload.OPTIMIZER_AND_PARAMETERS
    return found
