"""Random requests, and the same with twice the GPUs, link speed or card memory: no answer may get slower by it.

What may make one slower is known by mechanism: a price of `data/calibration/choice.toml` that was paid before and no longer
is, a layout with fewer dimensions, a replica that fits now, a layer that need not cross a slow link any more, the usual framework,
which is left for one that is surely faster alone, a batch that has too few sequences for so many GPUs.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.advice.choice import contenders
from planner.advice.plan import Plan, make_plan
from planner.advice.rules import BRANCHES, PLAIN
from planner.advice.slow_links import crosses_slow_link
from planner.catalog.choice import prices
from planner.core.errors import InvalidInputError, PlannerError
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.request.schema import parse_request, resolve
from planner.request.stacks import other_stacks
from planner.search.effort import effort_factor

MODELS = (
    "gpt2",
    "gpt2-xl",
    "Qwen/Qwen2.5-1.5B",
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-32B",
    "meta-llama/Llama-2-70b-hf",
    "google-bert/bert-large-uncased",
    "Qwen/Qwen3-30B-A3B",
    "mistralai/Mixtral-8x7B-v0.1",
    "google/gemma-2-2b",
    "google/vit-base-patch16-224",
)
ENCODERS = ("google-bert/bert-large-uncased", "google/vit-base-patch16-224")
GPUS = (
    "rtx-3090",
    "rtx-4090",
    "a10g",
    "l40s",
    "v100-sxm2-32gb",
    "a100-sxm-40gb",
    "a100-80gb",
    "h100",
    "h200-sxm",
    "b200",
)
TIE, SIMPLER = 1.02, 1.08
"""Alike; one dimension less."""
REPLICA_FITS = 1.45
"""DDP, which is taken of a replica that fits. Its scripts keep in fp32 by autocast what those of shards have in bf16, so
the estimate of shards is that of fewer bytes, and up to this much faster."""
_PLAIN_CODES = {rule.code for rule, preference in BRANCHES if preference == PLAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubled:
    """A request, and what is doubled of it."""

    request: dict[str, Any]
    kind: str

    @property
    def stacks(self) -> list[Job]:
        return _stacks(self.request)

    @property
    def doubled_stacks(self) -> list[Job]:
        if self.kind == "memory":
            return [_with_twice_the_memory(job) for job in self.stacks]
        cluster = json.loads(json.dumps(self.request["cluster"]))
        if self.kind in {"gpus_per_node", "nodes"}:
            cluster[self.kind] *= 2
        else:
            for link in ("inter_node", "intra_node"):
                for speed in cluster.get(link, {}):
                    cluster[link][speed] *= 2
        return _stacks({**self.request, "cluster": cluster})


def requests(count: int, seed: int) -> Iterator[Doubled]:
    """Yield random requests, with links of every speed from 1 Gbit/s on."""
    chance = random.Random(seed)
    for _ in range(count):
        model, gpus, nodes = (
            chance.choice(MODELS),
            chance.choice([1, 2, 4, 8]),
            chance.choice([1, 1, 1, 2, 4, 8]),
        )
        cluster: dict[str, Any] = {
            "gpu": chance.choice(GPUS),
            "gpus_per_node": gpus,
            "nodes": nodes,
            "inter_node": {"gb_per_s_per_node": chance.choice([0.125, 1.25, 12.5, 50, 100])},
        }
        bus = chance.choice([None, 5, 12, 25])
        if bus is not None:
            cluster["intra_node"] = {"bus_gb_per_s": bus}
        recipe: dict[str, Any] = {"global_batch_size": chance.choice([32, 64, 128, 256, 512])}
        method = chance.choice(["full"] * 5 + ["lora", "qlora"])
        if model not in ENCODERS:
            recipe["method"] = method
        kind = chance.choice(["gpus_per_node", "nodes", "link", "memory"])
        if gpus == 8 and kind == "gpus_per_node":
            kind = "nodes"
        if kind == "gpus_per_node":
            # What is assumed of a larger box may be slower for each of its cards: here it is said.
            cluster.setdefault("intra_node", {"bus_gb_per_s": 25})
        yield Doubled(request={"model": model, "cluster": cluster, "recipe": recipe}, kind=kind)


def slower(case: Doubled) -> str | None:
    """Return how an answer gets slower by what is doubled, by more than a known mechanism can; None if it does not."""
    try:
        before = _planned(case.stacks)
    except PlannerError:
        return None
    try:
        after = _planned(case.doubled_stacks)
    except InvalidInputError as error:
        is_batch = error.field == "recipe.global_batch_size" and case.kind != "memory"
        return None if is_batch else _told(case, before, error.message)
    except PlannerError as error:
        return _told(case, before, error.message)
    ratio = float(after.chosen.step_time.step_seconds / before.chosen.step_time.step_seconds)
    allowed = _allowed(before, after)
    if ratio > allowed and (
        _stays_with_the_usual(case.doubled_stacks[0], before, after)
        or (_crosses_slow_link(before) and not _crosses_slow_link(after))
    ):
        return None
    if ratio > allowed and before.chosen.strategy.zero_stage and _replica_fits(case.doubled_stacks):
        allowed = REPLICA_FITS
    return None if ratio <= allowed else _told(case, before, _words(after))


def _replica_fits(stacks: list[Job]) -> bool:
    return any(each.branch.code in _PLAIN_CODES for each in contenders(stacks, {}))


def _crosses_slow_link(plan: Plan) -> bool:
    """Return whether a layer is divided over a slow link, which is only where nothing else fits."""
    return bool(crosses_slow_link(plan.job, plan.chosen.strategy))


def _stays_with_the_usual(usual: Job, before: Plan, after: Plan) -> bool:
    """Return whether the usual framework, now with room, is left only for one that is surely faster, and none is."""
    names = [plan.job.framework.name for plan in (before, after)]
    is_usual = names[1] == usual.framework.name != names[0]
    shortest, longest = after.chosen.step_time.low_seconds, before.chosen.step_time.high_seconds
    return is_usual and after.chosen.is_comfortable and bool(shortest <= longest)


def _allowed(before: Plan, after: Plan) -> float:
    allowed = TIE * max(1.0, _price(before) / _price(after))
    return allowed * (SIMPLER if _dimensions(after) < _dimensions(before) else 1.0)


def _price(plan: Plan) -> float:
    """Return what a plan costs beside its time, as a factor of it."""
    job, s, own = plan.job, plan.chosen.strategy, prices()
    price = float(effort_factor(job, s)) * (1 + own.tools.get(job.framework.name, 0.0))
    price *= 1 + own.offload if s.offloads_optimizer else 1.0
    return price * (1.0 if plan.chosen.is_comfortable else 1 + own.tight_lead)


def _dimensions(plan: Plan) -> int:
    return sum(bool(plan.chosen.strategy.uses(each)) for each in DIMENSIONS)


def _planned(stacks: list[Job]) -> Plan:
    return make_plan(stacks[0], None, "time", stacks[1:])


def _stacks(request: dict[str, Any]) -> list[Job]:
    parsed = parse_request(request)
    own = resolve(parsed, allow_paths=False)
    return [own.job, *(each.job for each in other_stacks(parsed, own, allow_paths=False))]


def _with_twice_the_memory(job: Job) -> Job:
    gpu = job.cluster.gpu
    larger = replace(gpu, memory_bytes=2 * gpu.memory_bytes, usable_bytes=2 * gpu.usable_bytes)
    return replace(job, cluster=replace(job.cluster, gpu=larger))


def _told(case: Doubled, before: Plan, after: str) -> str:
    return f"twice the {case.kind} of {json.dumps(case.request)}: {_words(before)}, then {after}"


def _words(plan: Plan) -> str:
    recipe, s = plan.job.recipe, plan.chosen.strategy
    compiled = " compiled" if recipe.compile else ""
    return (
        f"{float(plan.chosen.step_time.step_seconds):.4g} s by {s.family} in {plan.job.framework.name}{compiled}, {recipe.loss}"
        f" loss, on {plan.job.cluster.world_size} GPUs"
    )
