"""Planning beside the server: in processes of its own, within a deadline, as long as the client waits."""

import os
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
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
from starlette.requests import ClientDisconnect, Request

from api.cache import KnownReplies
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
        self._waiting = 0
        self._as_many = CapacityLimiter(inf)
        """Of the library's own, whose turns are not told from a start's."""
        self._start_one: Callable[[], object] = _nothing
        self._known = KnownReplies(settings)

    async def run(
        self,
        request: Request,
        function: Callable[..., ResultT],
        *arguments: Any,
        token: str = "",
    ) -> ResultT:
        """Return what a function of a module gives to arguments that can be hashed and pickled.

        Args:
            request: of the client that waits.
            function: what is to be done.
            arguments: what its answer depends on.
            token: a secret that it is given last; then the answer is not kept.

        Raises:
            PlannerError: too many wait already, it took too long, or its processes were ended.
            ClientDisconnect: nobody waits for the answer any more; its process was ended.
            Exception: whatever the function raises.
        """
        outcome: Outcome | None = None
        async with create_task_group() as group:
            group.start_soon(_cancel_when_gone, request, group.cancel_scope)
            outcome = await self.outcome(function, *arguments, token=token)
            group.cancel_scope.cancel()
        if outcome is None:
            raise ClientDisconnect
        if outcome.error is not None:
            raise outcome.error
        result: ResultT = outcome.result
        return result

    async def outcome(
        self,
        function: Callable[..., object],
        *arguments: Any,
        token: str = "",
        may_wait: bool = False,
    ) -> Outcome:
        """Return what a function gives or raises; `may_wait`, however many wait already."""
        if token:
            return await self._within_limits(function, *arguments, token, may_wait=may_wait)
        key = (function, *arguments)
        known = await self._known.get(key)
        if known is not None:
            return Outcome(result=known)
        outcome = await self._within_limits(function, *arguments, may_wait=may_wait)
        if outcome.error is None:
            await self._known.put(key, outcome.result)
        return outcome

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a process."""
        return self._waiting

    @asynccontextmanager
    async def started(self, warm: Callable[[], object]) -> AsyncIterator[None]:
        """Start every process, by a function that reads what all answers need; end them all after."""
        async with create_task_group() as group:
            self._start_one = partial(group.start_soon, self._start, warm)
            for _ in range(self.settings.processes):
                self._start_one()
            yield
            self._start_one = _nothing
            await self._known.close()
            group.cancel_scope.cancel()

    async def _within_limits(
        self, function: Callable[..., object], *arguments: Any, may_wait: bool
    ) -> Outcome:
        if self.waiting >= max(self.settings.queue, 1) and not may_wait:
            busy = "too many plans are being made"
            return Outcome(error=TooBusyError(busy, hint="try again in some seconds"))
        outcome: Outcome | None = None
        with move_on_after(self.settings.deadline_seconds):
            async with self._turn():
                try:
                    outcome = await self._in_process(function, *arguments)
                finally:
                    if outcome is None:
                        # Its process is gone: the next request, which has a deadline too,
                        # is not to wait for a new one.
                        self._start_one()
        return outcome or Outcome(error=self._took_too_long())

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for a process that is free."""
        self._waiting += 1
        try:
            await self._processes.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._processes.release()

    def _took_too_long(self) -> TookTooLongError:
        return TookTooLongError(
            f"no answer within {self.settings.deadline_seconds:g} s",
            hint="ask for fewer GPUs, name fields of the strategy, or plan on the command line,"
            " which has no such limit",
        )

    async def _start(self, warm: Callable[[], object]) -> None:
        async with self._processes:
            await self._in_process(warm)

    async def _in_process(self, function: Callable[..., object], *arguments: Any) -> Outcome:
        if not self.settings.processes:
            task = partial(_outcome, function, arguments)
            return await to_thread.run_sync(task, abandon_on_cancel=True, limiter=self._as_many)
        task = partial(_outcome_behind_the_server, function, arguments)
        for _ in range(_TRIES):
            # Ctrl-C reaches the server's processes too, which hand it on.
            with suppress(BrokenWorkerProcess, KeyboardInterrupt):
                return await to_process.run_sync(task, cancellable=True, limiter=self._as_many)
        lost = "the processes that planned were ended, one after another"
        return Outcome(error=LostProcessError(lost, hint="try again in some seconds"))


def _nothing() -> None:
    """Start no process: the service does not run."""


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
