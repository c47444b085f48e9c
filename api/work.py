"""Planning beside the server: in processes of its own, within a deadline, as long as the client waits."""

import os
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from anyio import (
    BrokenWorkerProcess,
    CancelScope,
    CapacityLimiter,
    create_task_group,
    move_on_after,
    to_process,
    to_thread,
)
from cachetools import TTLCache
from starlette.requests import ClientDisconnect, Request

from api.settings import Settings
from planner.core.errors import PlannerError

ResultT = TypeVar("ResultT")

_PRIORITY = 5
"""Of a process that plans: 0 is the server's, and more is less."""
_TRIES = 3
"""Of a request whose process is ended from outside, for its memory perhaps."""


class TooBusyError(PlannerError):
    """As many requests wait as may."""

    headers: ClassVar = {"Retry-After": "2"}


class TookTooLongError(PlannerError):
    """The deadline passed, and the process that planned was ended."""


class LostProcessError(PlannerError):
    """The processes that planned were ended from outside, one after another."""

    headers: ClassVar = {"Retry-After": "2"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function returned, or raised."""

    result: Any = None
    error: Exception | None = None


class Work:
    """Answers that take a while: how many at once, how long, and those that are known already."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._processes = CapacityLimiter(max(settings.processes, 1))
        self._start_one: Callable[[], object] = lambda: None
        self._known: TTLCache[Any, Outcome] = TTLCache(
            settings.cached_answers, settings.cache_seconds
        )

    async def run(
        self, request: Request, function: Callable[..., ResultT], *arguments: Any
    ) -> ResultT:
        """Return what a function of a module gives to arguments that can be hashed and pickled.

        Raises:
            PlannerError: too many wait already, it took too long, or its processes were ended.
            ClientDisconnect: nobody waits for the answer any more; its process was ended.
            Exception: whatever the function raises.
        """
        key = (function, *arguments)
        outcome = self._known.get(key)
        if outcome is None:
            outcome = await self._within_limits(request, function, *arguments)
        if outcome.error is not None:
            raise outcome.error
        if self.settings.cached_answers:
            self._known[key] = outcome
        result: ResultT = outcome.result
        return result

    @asynccontextmanager
    async def started(self, warm: Callable[[], object]) -> AsyncIterator[None]:
        """Start every process, by a function that reads what all answers need; end them all after."""
        async with create_task_group() as group:
            self._start_one = partial(group.start_soon, self._start, warm)
            for _ in range(self.settings.processes):
                self._start_one()
            yield
            group.cancel_scope.cancel()

    async def _within_limits(
        self, request: Request, function: Callable[..., object], *arguments: Any
    ) -> Outcome:
        if self._processes.statistics().tasks_waiting >= max(self.settings.queue, 1):
            raise TooBusyError("too many plans are being made", hint="try again in some seconds")
        outcome: Outcome | None = None
        with move_on_after(self.settings.deadline_seconds) as deadline:
            async with create_task_group() as group:
                group.start_soon(_cancel_when_gone, request, group.cancel_scope)
                outcome = await self._in_process(function, *arguments)
                group.cancel_scope.cancel()
        if outcome is not None:
            return outcome
        # Its process is gone: the next request, which has a deadline too, is not to wait for a new one.
        self._start_one()
        if deadline.cancelled_caught:
            raise TookTooLongError(
                f"no answer within {self.settings.deadline_seconds:g} s",
                hint="ask for fewer GPUs, name fields of the strategy, or plan on the command line,"
                " which has no such limit",
            )
        raise ClientDisconnect

    async def _start(self, warm: Callable[[], object]) -> None:
        await self._in_process(warm)

    async def _in_process(self, function: Callable[..., object], *arguments: Any) -> Outcome:
        if not self.settings.processes:
            task = partial(_outcome, function, arguments)
            return await to_thread.run_sync(task, abandon_on_cancel=True, limiter=self._processes)
        task = partial(_outcome_behind_the_server, function, arguments)
        for _ in range(_TRIES):
            with suppress(BrokenWorkerProcess):
                return await to_process.run_sync(task, cancellable=True, limiter=self._processes)
        lost = "the processes that planned were ended, one after another"
        return Outcome(error=LostProcessError(lost, hint="try again in some seconds"))


async def _cancel_when_gone(request: Request, scope: CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _outcome_behind_the_server(
    function: Callable[..., object], arguments: tuple[Any, ...]
) -> Outcome:
    """Return what a function gives, computed where the server leaves the cores to it."""
    os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    return _outcome(function, arguments)


def _outcome(function: Callable[..., object], arguments: tuple[Any, ...]) -> Outcome:
    """Return what a function gives, with where it failed: a traceback does not leave its process."""
    try:
        return Outcome(result=function(*arguments))
    except Exception as error:  # noqa: BLE001 - raised again where the answer is written
        error.add_note(traceback.format_exc())
        return Outcome(error=error)
