"""What experts would choose for every job of `jobs.toml`, and that no layout was overlooked."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.advice.plan import Plan, make_plan
from planner.advice.rules import BRANCHES, PLAIN, RULES
from planner.catalog import records
from planner.core.errors import PlannerError
from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS, Dimension
from planner.domain.job import Job
from planner.domain.strategy import Offload, Table, num_rows, rows
from planner.memory.host import estimate_host_memory, fits_host
from planner.memory.ledger import estimate_memory
from planner.request.schema import parse_request, resolve
from planner.request.strategy import pinned_fields
from planner.search.candidate import COMFORTABLE_FRACTION
from planner.search.limits import LIMITS
from planner.search.pinned_fields import PinnedFields
from planner.search.space import strategies
from planner.step_time.ledger import estimate_step_time

TABLE: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "jobs.toml").read_text(encoding="utf-8")
)
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in TABLE["job"]}
PLANNED = [name for name, case in CASES.items() if "refused" not in case]
TOGETHER = 20_000
"""Layouts that are estimated at once."""
TIE = 1.02
"""Decision 0012: of layouts within 2 % of the fastest the simplest is taken, then the one that
recomputes least, then the roomiest."""
EARNED = 1.10
"""Decision 0012: how much faster each technique that changes the model must make a step."""
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
        return self.step_seconds * EARNED**self.changes

    @property
    def changes(self) -> Column:
        changing = self.job.framework.capabilities.changes_model
        return self._used(tuple(each for each in DIMENSIONS if each.name in changing))

    @property
    def techniques(self) -> Column:
        count: Column = self._used(DIMENSIONS) + (self.table.virtual_pipeline_size > 1)
        return count

    @property
    def is_comfortable(self) -> Column:
        room: Column = self.reserved_bytes <= COMFORTABLE_FRACTION * self.job.usable_bytes
        return self.fits & room

    def comfortable(self, among: Column) -> Column:
        """Return the rows with room to spare; where there are none, all that fit."""
        roomy = among[self.is_comfortable[among]]
        return roomy if len(roomy) else among[self.fits[among]]

    def simplest(self, among: Column) -> int:
        """Return the row that decision 0012 takes."""
        eligible = self.comfortable(among)
        weighted = self.weighted_seconds
        alike = eligible[weighted[eligible] <= TIE * np.min(weighted[eligible])]
        techniques, again = (
            self.techniques,
            self.table.recompute,
        )
        return int(
            min(alike, key=lambda row: (techniques[row], again[row], self.reserved_bytes[row]))
        )

    def _used(self, techniques: tuple[Dimension, ...]) -> Column:
        used = [np.asarray(self.table.uses(each)) for each in techniques]
        return np.sum(used, axis=0) if used else np.zeros(num_rows(self.table), dtype=int)


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
    table = strategies(job, wish)
    count = num_rows(table)
    reserved, seconds = np.zeros(count), np.zeros(count)
    fits = np.zeros(count, dtype=bool)
    for start in range(0, count, TOGETHER):
        which = np.arange(start, min(count, start + TOGETHER))
        part = rows(table, which)
        reserved[which] = estimate_memory(job, part).reserved_bytes
        seconds[which] = estimate_step_time(job, part).step_seconds
        fits[which] = (reserved[which] <= job.usable_bytes) & fits_host(job, part)
    return Pass(job=job, table=table, reserved_bytes=reserved, step_seconds=seconds, fits=fits)


def ordinary(every: Pass, wish: PinnedFields) -> Column:
    """Return the rows that may be proposed: local SGD where wished for, offload as a last resort."""
    fits = every.fits & ((every.table.synchronize_every == 1) | ("synchronize_every" in wish))
    on_gpu = fits & (every.table.offload == Offload.NONE)
    if "offload" in wish or np.any(on_gpu):
        return np.flatnonzero(fits if "offload" in wish else on_gpu)
    machines = [records.instance(name) for name in records.instance_names()]
    several = [machine for machine in machines if machine.gpus_per_node > 1]
    each = max(machine.host_memory_bytes / machine.gpus_per_node for machine in several)
    largest = each * every.job.cluster.gpus_per_node
    needed = estimate_host_memory(every.job, every.table).training_bytes
    return np.flatnonzero(fits & (needed <= (every.job.cluster.host_memory_bytes or largest)))


def admitted(every: Pass, wish: PinnedFields, branch: str) -> Column:
    """Return the rows that the branch of the tree admits; all, where the search is followed.

    Decision 0004: it is where its gain, less what changes earn, exceeds the estimate's error, or where
    it alone leaves room.
    """
    proposed = ordinary(every, wish)
    preferred = proposed[PREFERENCES[branch].admits(rows(every.table, proposed))]
    if not len(preferred):
        return proposed
    tree, search = every.simplest(preferred), every.simplest(proposed)
    more = max(0, every.changes[search] - every.changes[tree])
    gain = every.step_seconds[tree] / every.step_seconds[search] / EARNED**more - 1
    framework = every.job.framework
    error = framework.uncertainty.slower_factor * framework.uncertainty.compute
    is_roomier = every.is_comfortable[search] and not every.is_comfortable[tree]
    return proposed if is_roomier or gain > error else preferred


@pytest.mark.parametrize("name", PLANNED)
def test_the_plan_is_what_experts_expect(name: str) -> None:
    case, plan = CASES[name], planned(name)
    assert plan.chosen.strategy.family in case["families"], case["because"]
    shown = {
        "findings": {finding.code for finding in plan.findings},
        "rejected": {finding.code for row in plan.rejected for finding in row.findings},
        "alternatives": {other.candidate.strategy.family for other in plan.alternatives},
    }
    for kind, found in shown.items():
        assert set(case.get(kind, ())) <= found, case["because"]
    assert not shown["findings"] & set(case.get("absent", ())), case["because"]


@pytest.mark.parametrize("name", [name for name in CASES if name not in PLANNED])
def test_what_cannot_be_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(PlannerError) as caught:
        planned(name)
    assert CASES[name]["refused"] in caught.value.message, CASES[name]["because"]
    every, refused = exhausted(name), CASES[name]["refused"]
    proposed = ordinary(every, asked(name)[1])
    if "does not split" in refused:
        proposed = proposed[PLAIN.admits(rows(every.table, proposed))]
    assert not len(proposed)
    assert (num_rows(every.table) == 0) == (refused in {limit.code for limit in LIMITS})


@pytest.mark.parametrize("name", PLANNED)
def test_the_choice_is_as_fast_as_any_comfortable_one_that_the_rules_admit(name: str) -> None:
    every, plan = exhausted(name), planned(name)
    changing = plan.job.framework.capabilities.changes_model
    changes = sum(
        bool(plan.chosen.strategy.uses(each)) for each in DIMENSIONS if each.name in changing
    )
    weighted = plan.chosen.step_time.step_seconds * EARNED**changes
    rivals = every.comfortable(admitted(every, asked(name)[1], plan.findings[0].code))
    assert weighted <= TIE * np.min(every.weighted_seconds[rivals])
    assert plan.chosen.is_comfortable == np.any(every.is_comfortable[rivals])


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
    assert {rule.code for rule in RULES} <= met
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
    assert ("refused" in case) != ("families" in case)
    codes = {rule.code for rule in RULES} | {limit.code for limit in LIMITS}
    for kind in ("findings", "absent", "rejected"):
        assert set(case.get(kind, ())) <= codes
