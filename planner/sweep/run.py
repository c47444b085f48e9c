"""A sweep, and where its lines go -> every line that is not there yet, a chunk at a time: here, in several processes, or on Ray."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import get_context
from signal import SIG_IGN, SIGINT, signal

from planner.core.errors import PlannerError
from planner.sweep import ray_cluster
from planner.sweep.grid import Sweep
from planner.sweep.row import Chunk, answer_lines, key_of
from planner.sweep.store import Store

_CHUNK = 20
"""Requests: a second or so, which is what a killed sweep loses of each process."""
_AHEAD = 2
"""Chunks per process that are handed out at once, so that none waits for the next."""
_MOST_DEATHS = 3
"""Of processes without a finished chunk between them."""


def run(
    sweep: Sweep, store: Store, *, num_processes: int, ray_address: str | None
) -> Iterator[int]:
    """Plan what the store does not have, and keep it; yields how many requests are done so far.

    The lines are the same wherever they are planned, and so is the file that they become.

    Raises:
        PlannerError: no line can be planned; see `on_ray` and `in_processes`.
    """
    size = _CHUNK if ray_address is None else ray_cluster.CHUNK
    chunks = _chunks(sweep, store, size)
    if ray_address is not None:
        answered = ray_cluster.on_ray(chunks, ray_address)
    elif num_processes > 1:
        answered = in_processes(chunks, num_processes)
    else:
        answered = in_this_process(chunks)
    yield from store.append(answered)


def num_missing(sweep: Sweep, store: Store) -> int:
    """Return how many requests have no line yet; those that are alike have one."""
    return len({key for key in map(key_of, sweep) if key not in store})


def _chunks(sweep: Sweep, store: Store, size: int) -> Iterator[Chunk]:
    taken: set[str] = set()

    def missing() -> Iterator[dict[str, object]]:
        for request in sweep:
            key = key_of(request)
            if key not in store and key not in taken:
                taken.add(key)
                yield request

    left = missing()
    while chunk := list(islice(left, size)):
        yield chunk


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
