"""Estimates of a whole search space, and the best of it: what fits, how fast, in how much memory."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import (
    Table,
    family_keys,
    join,
    num_rows,
    rows,
)
from planner.memory.host import fits_host
from planner.memory.ledger import estimate_memory
from planner.search.candidate import COMFORTABLE_FRACTION, Candidate, estimate, estimate_rows
from planner.search.code_changes import code_change_factor, num_code_changes
from planner.search.pinned_fields import PinnedFields
from planner.search.space import tables
from planner.step_time.ledger import estimate_step_time
from planner.targets import is_writable

TIE = 1.02
"""Layouts within 2 % are alike: of them the simplest is proposed, then one that recomputes least, then
the roomiest."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Every legal layout of a job with its two totals, a column each."""

    job: Job
    table: Table
    reserved_bytes: Column
    step_seconds: Column
    """Infinite where it does not fit."""
    fits: Column
    seconds: float
    """How long the search took."""

    @property
    def size(self) -> int:
        """Return how many layouts were estimated."""
        return num_rows(self.table)

    @cached_property
    def is_comfortable(self) -> Column:
        """Return which layouts fit with room to spare."""
        room: Column = self.reserved_bytes <= COMFORTABLE_FRACTION * self.job.usable_bytes
        return self.fits & room

    @cached_property
    def is_writable(self) -> Column:
        """Return which layouts a target of the job's framework can write as files."""
        return is_writable(self.job, self.table)

    @cached_property
    def weighted_seconds(self) -> Column:
        """Return the step time with what changed code must earn, see `planner.search.code_changes`."""
        factor = code_change_factor(num_code_changes(self.job, self.table))
        weighted: Column = self.step_seconds * factor
        return weighted

    @cached_property
    def num_techniques(self) -> Column:
        """Return how many ways each layout divides the model, chunks of a pipeline among them."""
        used = sum(np.where(self.table.uses(dimension), 1, 0) for dimension in DIMENSIONS)
        count: Column = used + (self.table.virtual_pipeline_size > 1)
        return count

    @cached_property
    def families(self) -> dict[str, Column]:
        """Return the rows of each family, by name."""
        keys = family_keys(self.table)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        # The first start is row 0, where np.split would cut an empty group off.
        groups = np.split(order, starts[1:]) if len(order) else []
        return {self.table.at(int(group[0])).family: group for group in groups}

    @cached_property
    def _known(self) -> dict[int, Candidate]:
        """Return the full estimates that were made so far, by row."""
        return {}

    def candidate(self, row: int) -> Candidate:
        """Return the full estimate of one layout."""
        if row not in self._known:
            self._known[row] = estimate(self.job, self.table.at(row))
        return self._known[row]

    def candidates(self, which: Iterable[int]) -> tuple[Candidate, ...]:
        """Return the full estimates of some layouts, of which a table takes hardly more than one."""
        wanted = [int(row) for row in which]
        new = [row for row in dict.fromkeys(wanted) if row not in self._known]
        if new:
            found = estimate_rows(self.job, rows(self.table, np.array(new)))
            self._known.update(zip(new, found, strict=True))
        return tuple(self._known[row] for row in wanted)

    def best(self, among: Column, by: Column) -> int | None:
        """Return the row with the least of a column that fits, comfortably if any does.

        Args:
            among: indices of rows.
            by: the column; of rows within 2 % of its least, one with the fewest techniques is taken,
                of those one that recomputes least, and of those the one with the most room.
        """
        tiers = (among[self.is_comfortable[among]], among[self.fits[among]])
        eligible = next((tier for tier in tiers if len(tier)), None)
        if eligible is None:
            return None
        alike = eligible[by[eligible] <= TIE * by[eligible].min()]
        recompute = self.table.recompute[alike]
        # lexsort sorts by its last key first.
        order = np.lexsort((self.reserved_bytes[alike], recompute, self.num_techniques[alike]))
        return int(alike[order[0]])

    def smallest(self, among: Column) -> int:
        """Return the row that needs the least memory."""
        return int(among[np.argmin(self.reserved_bytes[among])])


def search(job: Job, pinned: PinnedFields | None = None) -> SearchResult:
    """Return every legal layout of a job, estimated; only what fits is timed."""
    started = time.perf_counter()
    estimates = [(table, *_estimated(job, table)) for table in tables(job, pinned)]
    legal_tables, reserved, seconds, fits = zip(*estimates, strict=True)
    return SearchResult(
        job=job,
        table=join(legal_tables),
        reserved_bytes=np.concatenate(reserved),
        step_seconds=np.concatenate(seconds),
        fits=np.concatenate(fits),
        seconds=time.perf_counter() - started,
    )


def _estimated(job: Job, table: Table) -> tuple[Column, Column, Column]:
    """Return reserved bytes, step seconds and whether it fits, card and host, of each layout."""
    count = num_rows(table)
    seconds = np.full(count, np.inf)
    if not count:
        return np.zeros(0), seconds, np.zeros(0, dtype=bool)
    reserved: Column = np.broadcast_to(estimate_memory(job, table).reserved_bytes, count)
    fits = (reserved <= job.usable_bytes) & fits_host(job, table)
    fitting = np.flatnonzero(fits)
    if len(fitting):
        seconds[fitting] = estimate_step_time(job, rows(table, fitting)).step_seconds
    return reserved, seconds, fits
