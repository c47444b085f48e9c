"""What the page of a late answer shows of it: the best layout so far, its sizes, and the link that asks for it."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from planner.core.errors import PlannerError, TookTooLongError
from planner.core.units import format_bytes, format_gpus, format_seconds
from planner.domain.dimensions import DIMENSIONS
from planner.request.schema import HOW_MANY
from web.form import BESIDE, form_values
from web.packed import packed
from web.permalink import OF_LAYOUT, pins_of

_OTHER_SIZES = {
    "data_parallel_replicate_size": "replicas",
    "data_parallel_shard_size": "shards",
    "micro_batch_size": "micro-batch",
    "gradient_accumulation_steps": "accumulation steps",
}


def so_far(query: Iterable[tuple[str, str]], error: PlannerError) -> dict[str, Any] | None:
    """Return what an error says that there is in place of an answer; None where there is nothing."""
    best = error.best if isinstance(error, TookTooLongError) else None
    if not best:
        return None
    candidate = best.get("chosen", best)
    strategy = candidate["strategy"]
    values = {name: text for name, text in form_values(query).items() if name not in BESIDE}
    said = {name: text for name, text in values.items() if name not in {*OF_LAYOUT, "why"}}
    if "chosen" in best:
        said = {name: text for name, text in said.items() if name not in HOW_MANY}
        said |= _gpus(best["job"]["cluster"])
    href = "/plan?" + urlencode(packed({**said, **pins_of(strategy)}))
    return {"family": candidate["family"], "facts": tuple(_facts(best, candidate)), "href": href}


def _gpus(cluster: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(cluster[name]) for name in ("gpus_per_node", "nodes")}


def _facts(best: Mapping[str, Any], candidate: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    strategy, memory = candidate["strategy"], candidate["memory"]
    if "chosen" in best:
        yield "on", format_gpus(best["job"]["cluster"]["world_size"])
    sizes = {each.field: f"{each.name} parallel" for each in DIMENSIONS} | _OTHER_SIZES
    for field, name in sizes.items():
        if strategy[field] > 1 or field == "micro_batch_size":
            yield name, f"{strategy[field]:,}"
    if strategy["recompute"] != "none":
        yield "recompute", str(strategy["recompute"])
    yield "step", format_seconds(candidate["time"]["step_seconds"])
    reserved, usable = memory["reserved_bytes"], memory["usable_bytes"]
    yield "memory of a GPU", f"{format_bytes(reserved)} of {format_bytes(usable)}"
