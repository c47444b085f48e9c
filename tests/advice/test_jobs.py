"""What experts would choose for every job of `jobs.toml`, and that no layout was overlooked."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.advice.plan import Plan, make_plan
from planner.advice.rules import BRANCHES, COMPILED, PLAIN, RULES
from planner.catalog import records
from planner.core.errors import PlannerError
from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Offload, Table, num_rows, rows
from planner.memory.host import estimate_host_memory, fits_host
from planner.memory.ledger import estimate_memory
from planner.memory.room import COMFORTABLE_FRACTION
from planner.request.schema import parse_request, resolve
from planner.request.strategy import pinned_fields
from planner.search.limits import LIMITS
from planner.search.pinned_fields import PinnedFields
from planner.search.space import strategies
from planner.step_time.ledger import estimate_step_time
from planner.targets import is_writable

TABLE: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "jobs.toml").read_text(encoding="utf-8")
)
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in TABLE["job"]}
PLANNED = [name for name, case in CASES.items() if "refused" not in case]
TOGETHER = 20_000
"""Layouts that are estimated at once."""
DESKTOP_BYTES, DESKTOP_GPUS, SERVER_BYTES = 128 * 2**30, 4, 512 * 2**30
TIE, SIMPLER = 1.02, 1.08
"""Decision 0026: the fewest dimensions are taken within 8 %; of layouts within 2 % of the fastest the simplest, then the
one that recomputes least, then the roomiest."""
CODE_CHANGE, AGAINST_THE_TREE, OFFLOADED, WIDE_SHARDS, WIDE_RANKS = 0.10, 0.05, 0.20, 0.04, 32
"""Decision 0026: how much faster what people pay beside the time must make a step."""
PREFERENCES = {rule.code: preference for rule, preference in BRANCHES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Every layout of a job, estimated without the search."""

    job: Job
    table: Table
    reserved_bytes: Column
    step_seconds: Column
    fits: Column

    @property
    def weighted_seconds(self) -> Column:
        weighted = self.step_seconds.copy()
        for each in DIMENSIONS:
            if each.name in self.job.framework.capabilities.changes_model:
                weighted[np.asarray(self.table.uses(each), dtype=bool)] *= 1 + CODE_CHANGE
        context = np.asarray(self.table.context_parallel_size)
        is_wide = self.table.data_parallel_shard_size * context > self.job.cluster.gpus_per_node
        ranks = self.table.data_parallel_size * context
        is_wide &= (self.table.zero_stage >= 2) & (ranks > WIDE_RANKS)
        doublings = np.log2(ranks[is_wide] / WIDE_RANKS)
        weighted[is_wide] *= 1 + WIDE_SHARDS * doublings
        return weighted

    @property
    def dimensions(self) -> Column:
        count: Column = np.sum([np.asarray(self.table.uses(each)) for each in DIMENSIONS], axis=0)
        return count

    @property
    def techniques(self) -> Column:
        count: Column = self.dimensions + (self.table.virtual_pipeline_size > 1)
        return count

    @property
    def is_comfortable(self) -> Column:
        room: Column = self.reserved_bytes <= COMFORTABLE_FRACTION * self.job.usable_bytes
        return self.fits & room

    @property
    def divides_over_slow_links(self) -> Column:
        """Return the rows that divide matrices, or sequences within a node, over less than NVLink."""
        cluster = self.job.cluster
        tensor, context = self.table.tensor_parallel_size, self.table.context_parallel_size
        slow = np.zeros(len(self.fits), dtype=bool)
        for tp, cp in {*zip(tensor.tolist(), context.tolist(), strict=True)}:
            within = min(cp, max(1, cluster.joined_gpus // tp))
            links = [cluster.link(tp)] * (tp > 1) + [cluster.link(within, tp)] * (within > 1)
            slow[(tensor == tp) & (context == cp)] = any(not each.is_fast for each in links)
        return slow

    def simplest(self, among: Column, cost: Column) -> int:
        """Return the row that decision 0026 takes: with room if any has some, and of the cheapest the simplest."""
        roomy, fitting = among[self.is_comfortable[among]], among[self.fits[among]]
        eligible = roomy if len(roomy) else fitting
        near = eligible[cost[eligible] <= SIMPLER * np.min(cost[eligible])]
        simple = near[self.dimensions[near] == np.min(self.dimensions[near])]
        alike = simple[cost[simple] <= TIE * np.min(cost[simple])]
        techniques, again = self.techniques, self.table.recompute
        return int(
            min(alike, key=lambda row: (techniques[row], again[row], self.reserved_bytes[row]))
        )


@cache
def asked(name: str) -> tuple[Job, PinnedFields]:
    request = dict(CASES[name]["request"])
    request["model"] = TABLE["models"].get(request["model"], request["model"])
    parsed = parse_request(request)
    return resolve(parsed, allow_paths=False).job, pinned_fields(parsed.strategy)


@cache
def planned(name: str) -> Plan:
    job, wish = asked(name)
    return make_plan(job, wish)


@cache
def exhausted(name: str) -> Pass:
    job, wish = asked(name)
    if name in PLANNED:
        job = planned(name).job
    table = strategies(job, wish)
    count = num_rows(table)
    reserved, seconds = np.zeros((2, count))
    fits = np.zeros(count, dtype=bool)
    for start in range(0, count, TOGETHER):
        which = np.arange(start, min(count, start + TOGETHER))
        part = rows(table, which)
        reserved[which] = estimate_memory(job, part).reserved_bytes
        seconds[which] = estimate_step_time(job, part).step_seconds
        fits[which] = (reserved[which] <= job.usable_bytes) & fits_host(job, part)
    return Pass(
        job=job,
        table=table,
        reserved_bytes=reserved,
        step_seconds=seconds,
        fits=fits,
    )


def held_by_hosts(every: Pass) -> Column:
    """Return the rows of which a node holds what is offloaded; a usual one, where its memory is unknown."""
    machines = [records.instance(name) for name in records.instance_names()]
    several = [machine for machine in machines if machine.gpus_per_node > 1]
    cluster = every.job.cluster
    card_of = {machine.name: records.gpu(machine.gpu).memory_bytes for machine in several}
    alike = [machine for machine in several if card_of[machine.name] <= cluster.gpu.memory_bytes]
    each = max(machine.host_memory_bytes / machine.gpus_per_node for machine in alike)
    largest = each * cluster.gpus_per_node
    if cluster.gpu.is_consumer:
        largest = DESKTOP_BYTES if cluster.gpus_per_node <= DESKTOP_GPUS else SERVER_BYTES
    needed = np.asarray(estimate_host_memory(every.job, every.table).training_bytes)
    held: Column = needed <= (every.job.cluster.host_memory_bytes or largest)
    return held


def ordinary(every: Pass, wish: PinnedFields) -> tuple[Column, Column]:
    """Return the rows that may be proposed, on the GPUs and with offload; local SGD where it is wished for.

    Of those, what has launch files, where any has; and what divides no layer over a slow link, where any does not.
    """
    fits = every.fits & ((every.table.synchronize_every == 1) | ("synchronize_every" in wish))
    is_kept = (every.table.offload == Offload.NONE) | ("offload" in wish)
    is_held = held_by_hosts(every)
    is_asked = bool(wish.keys() & {"tensor_parallel_size", "context_parallel_size"})
    for written in (fits & is_writable(every.job, every.table), fits):
        on_gpu, away = written & is_kept, written & ~is_kept & is_held
        beside = on_gpu & ~every.divides_over_slow_links
        if np.any(beside) and not is_asked:
            on_gpu = beside
        if np.any(on_gpu | away):
            break
    return np.flatnonzero(on_gpu), np.flatnonzero(away)


def cheapest(every: Pass, proposed: Column, branch: str) -> int:
    """Return the row that costs least: what the tree's branch does not admit must lead by its price."""
    preference, table = PREFERENCES[branch], rows(every.table, proposed)
    is_admitted = preference.admits(table)
    cost = every.weighted_seconds
    cost[proposed[~is_admitted]] *= 1 + AGAINST_THE_TREE
    if not np.any(is_admitted):
        return every.simplest(proposed, cost)
    is_rival = preference.may_be_overruled_by(table)
    if preference == PLAIN:
        tree = every.simplest(proposed[is_admitted], cost)
        less = table.recompute < every.table.recompute[tree]
        flags = every.job.framework.capabilities.zero_by_flag
        by_flag = (table.zero_stage > 0) & (table.zero_stage <= flags)
        is_rival &= less | (by_flag & (every.dimensions[proposed] == 0))
    return every.simplest(proposed[is_rival | is_admitted], cost)


def best(every: Pass, wish: PinnedFields, branch: str) -> int:
    """Return the row that decision 0026 takes; one that offloads where it is faster by its price, or alone fits."""
    on_gpu, away = ordinary(every, wish)
    if not len(on_gpu):
        return cheapest(every, away, branch)
    kept = cheapest(every, on_gpu, branch)
    if PREFERENCES[branch] == PLAIN:
        return kept
    seconds = every.weighted_seconds
    faster = away[(1 + OFFLOADED) * seconds[away] < seconds[kept]]
    crosses = every.divides_over_slow_links
    if not crosses[kept]:
        faster = faster[~crosses[faster]]
    if not every.is_comfortable[kept]:
        faster = faster[every.is_comfortable[faster]]
    return cheapest(every, faster, branch) if len(faster) else kept


@pytest.mark.parametrize("name", PLANNED)
def test_the_plan_is_what_experts_expect(name: str) -> None:
    case, plan = CASES[name], planned(name)
    assert plan.chosen.strategy.family in case["families"], case["because"]
    shown = {
        "findings": {finding.code for finding in plan.findings},
        "rejected": {finding.code for row in plan.rejected for finding in row.findings},
        "alternatives": {other.candidate.strategy.family for other in plan.alternatives},
        "offers": {name for offer in plan.offers for name in offer.changes},
    }
    for kind, found in shown.items():
        assert set(case.get(kind, ())) <= found, case["because"]
    assert not shown["findings"] & set(case.get("absent", ())), case["because"]
    if "targets" in case:
        assert list(plan.launch.targets) == case["targets"], plan.launch.reason


@pytest.mark.parametrize("name", [name for name in CASES if name not in PLANNED])
def test_what_cannot_be_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(PlannerError) as caught:
        planned(name)
    assert CASES[name]["refused"] in caught.value.message, CASES[name]["because"]
    every, refused = exhausted(name), CASES[name]["refused"]
    proposed = np.concatenate(ordinary(every, asked(name)[1]))
    if "does not split" in refused:
        proposed = proposed[PLAIN.admits(rows(every.table, proposed))]
    assert not len(proposed)
    assert (num_rows(every.table) == 0) == (refused in {limit.code for limit in LIMITS})


@pytest.mark.parametrize("name", PLANNED)
def test_the_choice_is_the_simplest_of_the_fastest_that_the_rules_admit(name: str) -> None:
    every, plan = exhausted(name), planned(name)
    wish, branch = asked(name)[1], plan.findings[0].code
    row = best(every, wish, branch)
    assert plan.chosen.strategy.family == every.table.at(row).family
    assert plan.chosen.step_time.step_seconds == pytest.approx(every.step_seconds[row])
    assert plan.chosen.is_comfortable == every.is_comfortable[row]


@pytest.mark.parametrize("name", PLANNED)
def test_every_legal_layout_is_searched(name: str) -> None:
    plan, every = planned(name), exhausted(name)
    print(f"{name}: {num_rows(every.table):,} layouts, {plan.chosen.strategy.family}")
    assert plan.search.strategies == num_rows(every.table) > 0
    assert plan.search.feasible == np.sum(every.fits) > 0


def test_every_branch_rule_and_limit_is_met_by_some_job() -> None:
    met = {code for case in CASES.values() for code in case.get("findings", ())}
    branches = {rule.code for rule, _ in BRANCHES}
    assert branches <= met
    met |= {code for case in CASES.values() for code in case.get("rejected", ())}
    met |= {case["refused"] for case in CASES.values() if "refused" in case}
    beside_other_stacks = {COMPILED.code}
    """A job of the table has one stack; `test_stacks.py` meets it."""
    assert {rule.code for rule in RULES} - met == beside_other_stacks
    assert {limit.code for limit in LIMITS} <= met


def test_jobs_reach_from_small_to_large_and_to_every_framework() -> None:
    jobs = [asked(name)[0] for name in PLANNED]
    assert len(CASES) == len(TABLE["job"])
    assert min(job.model.parameters for job in jobs) < 2e8
    assert max(job.model.parameters for job in jobs) > 1e12
    sizes = {job.cluster.world_size for job in jobs}
    assert {1, 2, 4, 8, 16, 16_384} <= sizes
    assert {job.framework.name for job in jobs} == set(records.framework_names())
    media = {job.cluster.intra_node.medium for job in jobs}
    assert {"nvswitch", "nvlink", "host", "pcie"} <= media


@pytest.mark.parametrize("name", CASES)
def test_a_job_says_why_in_a_sentence(name: str) -> None:
    case = CASES[name]
    assert case["because"].endswith(".")
    assert ("refused" in case) != ("families" in case), f"{name}: say `families`, or `refused`"
    codes = {rule.code for rule in RULES} | {limit.code for limit in LIMITS}
    for kind in ("findings", "absent", "rejected"):
        assert set(case.get(kind, ())) <= codes
