"""Estimates of a whole search space, and the best of it: what fits, how fast, in how much memory."""

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from planner.catalog.choice import prices
from planner.core import deadline
from planner.core.errors import TookTooLongError
from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import (
    FIELDS,
    Layout,
    Table,
    family_keys,
    join,
    num_rows,
    rows,
)
from planner.memory.host import fits_host
from planner.memory.ledger import estimate_memory
from planner.memory.room import COMFORTABLE_FRACTION
from planner.search.candidate import (
    Candidate,
    Ledgers,
    estimate,
    estimate_rows,
)
from planner.search.effort import effort_factor
from planner.search.local_sgd import TIMED, LocalSgd, local_sgd
from planner.search.pinned_fields import PinnedFields
from planner.search.space import tables
from planner.step_time.ledger import estimate_step_time
from planner.targets import is_writable

TIE = 1.02
"""Layouts within 2 % are alike: of them the simplest is proposed, then one that recomputes least, then
the roomiest."""
_Part: TypeAlias = tuple[Table, Column, Column, Column]
"""A table with what it reserves, its seconds and whether it fits."""

_TIMED_TOGETHER = 8192
"""Layouts of a table that caches like."""
_KEPT = 8192
"""Layouts whose ledgers are kept, some 3 kB each: a plan shows many of them."""


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
    ledgers: tuple[Ledgers, ...] = ()
    """Of all tables, where the layouts are few."""

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
        """Return the step time with what techniques must earn, see `planner.search.effort`."""
        weighted: Column = self.step_seconds * effort_factor(self.job, self.table)
        return weighted

    @cached_property
    def num_techniques(self) -> Column:
        """Return how many ways each layout divides the model, chunks of a pipeline among them."""
        count: Column = self.num_dimensions + (self.table.virtual_pipeline_size > 1)
        return count

    @cached_property
    def num_dimensions(self) -> Column:
        """Return how many parallel dimensions each layout has beside data parallelism."""
        used = sum(np.where(self.table.uses(dimension), 1, 0) for dimension in DIMENSIONS)
        return np.asarray(used)

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
        return {}

    def candidate(self, row: int) -> Candidate:
        """Return the full estimate of one layout."""
        if row not in self._known:
            self._known[row] = self._looked_up(row) or estimate(self.job, self.table.at(row))
        return self._known[row]

    def _looked_up(self, row: int) -> Candidate | None:
        if not self.ledgers or not self.fits[row]:
            return None
        of_table = bisect_right(self.ledgers, row, key=lambda ledgers: ledgers.first) - 1
        return self.ledgers[of_table].candidate(self.job, self.table.at(row), row)

    def candidates(self, which: Iterable[int]) -> tuple[Candidate, ...]:
        """Return the full estimates of some layouts, of which a table takes hardly more than one."""
        wanted = [int(row) for row in which]
        new = []
        for row in dict.fromkeys(wanted):
            known = self._known.get(row) or self._looked_up(row)
            if known is None:
                new.append(row)
            else:
                self._known[row] = known
        if new:
            found = estimate_rows(self.job, rows(self.table, np.array(new)))
            self._known.update(zip(new, found, strict=True))
        return tuple(self._known[row] for row in wanted)

    def best(self, among: Column, by: Column) -> int | None:
        """Return the row with the least of a column that fits, comfortably if any does.

        Args:
            among: indices of rows.
            by: the column; the fewest dimensions are taken whose best row is within 8 % of the best. Of
                rows with as few within 2 % of the best, one with the fewest techniques is taken, of
                those one that recomputes least, and of those the one with the most room; chunks
                of layers that give a stage no more than 2 % of it are left out.
        """
        eligible = self._roomy(among)
        if not len(eligible):
            return None
        close = 1 + prices().one_more_dimension
        near = eligible[by[eligible] <= close * by[eligible].min()]
        dimensions = self.num_dimensions[near]
        simple = near[dimensions == dimensions.min()]
        alike = simple[by[simple] <= TIE * by[simple].min()]
        recompute = self.table.recompute[alike]
        # lexsort sorts by its last key first.
        order = np.lexsort((self.reserved_bytes[alike], recompute, self.num_techniques[alike]))
        return self._averaged_often(self._in_fewer_chunks(int(alike[order[0]]), alike), among)

    def _in_fewer_chunks(self, row: int, alike: Column) -> int:
        """Return the same layout with the fewest chunks a stage, of rows alike in time and in memory."""
        if self.table.virtual_pipeline_size[row] == 1:
            return row
        same = alike[self.reserved_bytes[alike] <= TIE * self.reserved_bytes[row]]
        for name in FIELDS:
            if name != "virtual_pipeline_size":
                column = getattr(self.table, name)
                same = same[column[same] == column[row]]
        return int(same[np.argmin(self.table.virtual_pipeline_size[same])])

    def _averaged_often(self, row: int, among: Column) -> int:
        """Return a layout with the smallest interval between averages that is enough; itself without any."""
        if self.table.synchronize_every[row] == 1:
            return row
        intervals = self._intervals(self.table.at(row))
        enough = max(2, self._local_sgd(row, intervals).interval)
        others = (other for interval, other in sorted(intervals.items()) if interval >= enough)
        return next((other for other in others if other in among), row)

    def _intervals(self, layout: Layout) -> dict[int, int]:
        same = np.ones(self.size, dtype=bool)
        for name in FIELDS:
            if name != "synchronize_every":
                same &= getattr(self.table, name) == getattr(layout, name)
        found = np.flatnonzero(same)
        return dict(zip(self.table.synchronize_every[found].tolist(), found.tolist(), strict=True))

    def _local_sgd(self, row: int, intervals: Mapping[int, int]) -> LocalSgd:
        """Return what local SGD takes: of steps that the search has timed, where it has them all."""
        timed = [intervals[each] for each in TIMED if each in intervals]
        if len(timed) < len(TIMED) or not np.all(self.fits[timed]):
            return local_sgd(self.job, self.table.at(row))
        return LocalSgd.of_steps(*self.step_seconds[timed].tolist())

    def reserved_bytes_of(self, layout: Layout) -> float | None:
        """Return what a layout reserves; None where it is not among the legal ones."""
        row = self._intervals(layout).get(layout.synchronize_every)
        return None if row is None else float(self.reserved_bytes[row])

    def _roomy(self, among: Column) -> Column:
        """Return the rows that fit with room; those that fit where none has."""
        roomy = among[self.is_comfortable[among]]
        return roomy if len(roomy) else among[self.fits[among]]

    def retimed(self, job: Job) -> "SearchResult":
        """Return the same layouts on another network, which leaves their memory as it is."""
        seconds = np.full(self.size, np.inf)
        fitting = np.flatnonzero(self.fits)
        for part in np.array_split(fitting, -(-len(fitting) // _TIMED_TOGETHER)):
            seconds[part] = estimate_step_time(job, rows(self.table, part)).step_seconds
        return replace(self, job=job, step_seconds=seconds, ledgers=())

    def smallest(self, among: Column) -> int:
        """Return the row that needs the least memory."""
        return int(among[np.argmin(self.reserved_bytes[among])])


def search(
    job: Job, pinned: PinnedFields | None = None, *, written_alone: bool = False
) -> SearchResult:
    """Return every legal layout of a job, estimated; only what fits is timed.

    Args:
        job: what is trained, on what.
        pinned: values of `Layout` fields that every layout must have.
        written_alone: leave out what no target of the job's framework writes.

    Raises:
        LateSearchError: somebody waits, and the time is over.
    """
    started = time.perf_counter()
    parts: list[_Part] = []
    kept: list[Ledgers] = []
    size = 0
    for legal in tables(job, pinned):
        if deadline.is_over():
            raise LateSearchError(_joined(job, parts, kept, started) if parts else None)
        table = rows(legal, is_writable(job, legal)) if written_alone else legal
        totals, ledgers = _estimated(job, table, size)
        parts.append((table, *totals))
        kept += ledgers
        size += num_rows(table)
        if size > _KEPT:
            kept.clear()
    return _joined(job, parts, kept, started)


class LateSearchError(TookTooLongError):
    """The time was over before every layout was looked at."""

    def __init__(self, looked_at: SearchResult | None) -> None:
        super().__init__(deadline.no_answer(), deadline.with_less())
        self.looked_at = looked_at
        """The layouts that were; None where there are none."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the layouts in this process."""
        return TookTooLongError, (self.message, self.hint)


def _joined(job: Job, parts: list[_Part], kept: list[Ledgers], started: float) -> SearchResult:
    legal_tables, reserved, seconds, fits = zip(*parts, strict=True)
    return SearchResult(
        job=job,
        table=join(legal_tables),
        reserved_bytes=np.concatenate(reserved),
        step_seconds=np.concatenate(seconds),
        fits=np.concatenate(fits),
        seconds=time.perf_counter() - started,
        ledgers=tuple(kept),
    )


def _estimated(
    job: Job, table: Table, first: int
) -> tuple[tuple[Column, Column, Column], list[Ledgers]]:
    """Return reserved bytes, step seconds and whether it fits, card and host; and the ledgers of a few.

    Args:
        job: of the layouts.
        table: the layouts.
        first: row of the search that the table begins at.
    """
    count = num_rows(table)
    seconds = np.full(count, np.inf)
    if not count:
        return (np.zeros(0), seconds, np.zeros(0, dtype=bool)), []
    memory = estimate_memory(job, table)
    reserved: Column = np.broadcast_to(memory.reserved_bytes, count)
    fits = (reserved <= job.usable_bytes) & fits_host(job, table)
    fitting = np.flatnonzero(fits)
    if not len(fitting):
        return (reserved, seconds, fits), []
    if first + count > _KEPT:
        del memory  # much of what a large table needs
        seconds[fitting] = estimate_step_time(job, rows(table, fitting)).step_seconds
        return (reserved, seconds, fits), []
    step_time = estimate_step_time(job, rows(table, fitting))
    seconds[fitting] = step_time.step_seconds
    return (reserved, seconds, fits), [
        Ledgers(first=first, memory=memory, fitting=fitting, step_time=step_time)
    ]
