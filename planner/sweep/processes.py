"""Chunks of requests in, their lines out as they are ready: in this process, or in several of it."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import get_context
from signal import SIG_IGN, SIGINT, signal
from typing import Any, TypeAlias

from planner.core.errors import PlannerError
from planner.sweep.row import answer_lines

Chunk: TypeAlias = list[dict[str, Any]]
"""Requests that are answered together."""

CHUNK = 20
"""Requests: a second or so, which is what a killed sweep loses of each process."""
_AHEAD = 2
"""Chunks per process that are handed out at once, so that none waits for the next."""
_MOST_DEATHS = 3
"""Of processes without a finished chunk between them."""


def in_this_process(chunks: Iterable[Chunk]) -> Iterator[list[str]]:
    """Yield the lines of each chunk."""
    return map(partial(answer_lines, allow_paths=True), chunks)


def in_processes(chunks: Iterable[Chunk], processes: int) -> Iterator[list[str]]:
    """Yield the lines of each chunk, the first that is ready first.

    What a process held that was ended from outside is given to another.

    Raises:
        PlannerError: processes end again and again, as they do where memory is short.
    """
    left, waiting, deaths = iter(chunks), deque[Chunk](), 0
    while deaths < _MOST_DEATHS:
        pool = ProcessPoolExecutor(
            processes,
            mp_context=get_context("spawn"),  # a fork would copy the locks of whoever asks
            initializer=signal,
            initargs=(SIGINT, SIG_IGN),
        )
        try:
            for lines in _answered(pool, left, waiting, processes * _AHEAD):
                deaths = 0
                yield lines
        except BrokenProcessPool:
            deaths += 1
        else:
            return
        finally:
            pool.shutdown(cancel_futures=True)
    raise PlannerError(
        "the processes that plan are ended again and again",
        hint="is memory short? Try fewer with --processes; what is planned is kept",
        field="--processes",
    )


def _answered(
    pool: ProcessPoolExecutor, left: Iterator[Chunk], waiting: deque[Chunk], most: int
) -> Iterator[list[str]]:
    """Yield lines until all chunks have theirs; what has none when it ends is waiting."""
    at_work: dict[Future[list[str]], Chunk] = {}
    try:
        while True:
            waiting.extend(islice(left, max(0, most - len(at_work) - len(waiting))))
            while waiting and len(at_work) < most:
                future = pool.submit(answer_lines, waiting[0], allow_paths=True)
                at_work[future] = waiting.popleft()
            if not at_work:
                return
            for done in wait(at_work, return_when=FIRST_COMPLETED).done:
                lines = done.result()
                del at_work[done]
                yield lines
    finally:
        waiting.extend(at_work.values())
