"""A sweep, and where its lines go -> every line that is not there yet, a chunk at a time."""

from collections.abc import Iterator
from itertools import islice

from planner.sweep import processes, ray_cluster
from planner.sweep.grid import Sweep
from planner.sweep.processes import Chunk
from planner.sweep.row import key_of
from planner.sweep.store import Store


def run(
    sweep: Sweep, store: Store, *, num_processes: int, ray_address: str | None
) -> Iterator[int]:
    """Plan what the store does not have, and keep it; yields how many requests are done so far.

    The lines are the same wherever they are planned, and so is the file that they become.

    Raises:
        PlannerError: no line can be planned; see `on_ray` and `in_processes`.
    """
    size = processes.CHUNK if ray_address is None else ray_cluster.CHUNK
    chunks = _chunks(sweep, store, size)
    if ray_address is not None:
        answered = ray_cluster.on_ray(chunks, ray_address)
    elif num_processes > 1:
        answered = processes.in_processes(chunks, num_processes)
    else:
        answered = processes.in_this_process(chunks)
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
