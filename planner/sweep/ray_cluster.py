"""Chunks of requests in, their lines out as they are ready: on the machines of a Ray cluster."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from logging import ERROR
from typing import Any

from planner import __version__
from planner.core.errors import InvalidInputError, PlannerError
from planner.sweep.row import Chunk, answer_lines

CHUNK = 100
"""Requests, some seconds: handing a chunk over costs milliseconds."""
_AHEAD = 2
"""Chunks per actor that are handed out at once."""
_MOST_DEATHS = 3
"""Of what runs a chunk, before it is given up."""


def on_ray(chunks: Iterable[Chunk], address: str) -> Iterator[list[str]]:
    """Yield the lines of each chunk, the first that is ready first.

    An actor per CPU of the cluster keeps the catalogues that it has read. One that ends, with its
    process or its machine, is started again elsewhere and gets its chunks again.

    Args:
        chunks: requests.
        address: host:port, ray://host:port, or auto for the cluster that this machine is part of.

    Raises:
        InvalidInputError: Ray is not installed, or no cluster answers there.
        PlannerError: what runs a chunk ends again and again.
    """
    ray = _ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"no Ray cluster at {address[:80]!r}: {' '.join(str(error).split())[:200]}",
            hint="the host:port that `ray start --head` printed, or auto on a machine of the cluster",
            field="--ray",
        ) from None
    try:
        yield from _answered(ray, chunks)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, PlannerError) else error) from None
    except ray.exceptions.RayError as error:
        raise PlannerError(
            f"the Ray cluster lost a chunk: {type(error).__name__}",
            hint="what is planned is kept: look at the cluster, and run it again",
            field="--ray",
        ) from None
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise InvalidInputError(
            "--ray needs Ray", hint="pip install 'trainplan[ray]'", field="--ray"
        ) from None


def _answered(ray: Any, chunks: Iterable[Chunk]) -> Iterator[list[str]]:
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_MOST_DEATHS)(Planner)
    actors = [
        actor.remote(__version__) for _ in range(max(1, int(ray.cluster_resources().get("CPU", 1))))
    ]
    left = iter(chunks)
    at_work = {
        planner.lines.remote(chunk): planner
        for _ in range(_AHEAD)
        for planner, chunk in zip(actors, islice(left, len(actors)), strict=False)
    }
    while at_work:
        (done,), _ = ray.wait(list(at_work), num_returns=1)
        planner = at_work.pop(done)
        for chunk in islice(left, 1):
            at_work[planner.lines.remote(chunk)] = planner
        yield ray.get(done)


class Planner:
    """What plans on a CPU of the cluster, where `planner` is installed as it is here."""

    def __init__(self, asked_by: str) -> None:
        """Note which version of the planner asks."""
        self._asked_by = asked_by

    def lines(self, chunk: Chunk) -> list[str]:
        """Return the lines of a chunk; a file's path means nothing on another machine.

        Raises:
            InvalidInputError: this machine has another version than the one that asks.
        """
        if __version__ != self._asked_by:
            raise InvalidInputError(
                f"a machine of the cluster has planner {__version__}, not {self._asked_by}",
                hint="install the same version on every machine of the cluster",
                field="--ray",
            )
        return answer_lines(chunk, allow_paths=False)
