"""Planning beside the server: in processes of its own, within a deadline, as long as the client waits."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path
from tempfile import gettempdir
from time import monotonic
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import anyio
from anyio import (
    BrokenWorkerProcess,
    CancelScope,
    CapacityLimiter,
    Event,
    Lock,
    create_task_group,
    move_on_after,
    sleep_forever,
    to_process,
    to_thread,
)
from starlette.requests import ClientDisconnect, Request

from api.cache import Key, KnownReplies
from api.lanes import is_small
from api.process import Outcome, Turn, begin, outcome_behind_the_server, outcome_of
from api.settings import Settings
from planner.core.deadline import no_answer_within, with_less
from planner.core.errors import (
    InvalidInputError,
    InvalidRequestError,
    NothingFitsError,
    PlannerError,
    TookTooLongError,
    UnknownNameError,
    UnsupportedError,
)

ResultT = TypeVar("ResultT")

# A process is kept however long it idles: a new one takes three seconds, and anyio ends those of five idle minutes.
to_process.WORKER_MAX_IDLE_TIME = sys.maxsize

_JOBS_OF_TEXT = frozenset({"check", "log", "machine", "scripts", "timings", "topology"})
"""What takes longer the more text is sent, and is no plan."""
_ESTIMATES = frozenset({"draw_estimate", "estimation"})
"""Of one layout, which nothing searches: a hand that moves a choice waits for it."""

_LOST = (BrokenWorkerProcess, KeyboardInterrupt, ProcessLookupError)
"""Of a process that was ended: Ctrl-C reaches the server's processes too, which hand it on; one that ended a
moment ago is not found by who would end it."""
_LASTING = (
    InvalidInputError,
    InvalidRequestError,
    NothingFitsError,
    UnsupportedError,
    UnknownNameError,
)
"""Refusals that the question alone decides: they are kept as answers are."""
_STOP_SECONDS = 3.0
"""For a search whose client left to stop by itself, between two tables of layouts: as long as a process takes to start."""
_TRIES = 3
"""Of a request whose process is ended from outside, for its memory perhaps."""


class TooBusyError(PlannerError):
    """As many requests wait as may."""

    headers: ClassVar = {"Retry-After": "2"}


class LostProcessError(PlannerError):
    """The processes that planned were ended from outside, one after another."""

    headers: ClassVar = {"Retry-After": "2"}


class Work:
    """Answers that take a while: how many at once, how long, and those that are known already."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        spare = 1 if settings.processes > 1 else 0
        self._started = settings.processes + spare
        self._processes = CapacityLimiter(max(self._started, 1))
        self._usual = CapacityLimiter(max(settings.processes, 1))
        """Of all but small plans, which find one more."""
        self._behind = CapacityLimiter(max(settings.processes - 1, 1))
        """Of batches: one process is left to who waits for one answer."""
        self._waiting: Counter[bool] = Counter()
        """Of small plans, and of others."""
        self._as_many = CapacityLimiter(inf)
        """Of the library's own, whose turns are not told from a start's."""
        self._start_one: Callable[[AsyncExitStack], object] | None = None
        self._lock = Lock()
        self._always: dict[Callable[[], object], Any] = {}
        self._known = KnownReplies(settings)
        self.far = self._known.far

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
        key = (function, *arguments)
        known = None if token else await self._known.get(key)
        if known is not None:
            kept: ResultT = _result(_as_outcome(known))
            return kept
        outcome: Outcome | None = None
        with request.app.state.access.searching(request):
            async with create_task_group() as group:
                group.start_soon(_cancel_when_gone, request, group.cancel_scope)
                outcome = await self._made(key, token)
                if group.cancel_scope.cancel_called:
                    outcome = None
                group.cancel_scope.cancel()
        if outcome is None:
            raise ClientDisconnect
        result: ResultT = _result(outcome)
        return result

    async def outcome(
        self,
        function: Callable[..., object],
        *arguments: Any,
        token: str = "",
        may_wait: bool = False,
        seconds: float | None = None,
    ) -> Outcome:
        """Return what a function gives or raises; `may_wait`, however many wait already; within other seconds."""
        key = (function, *arguments)
        known = None if token else await self._known.get(key)
        if known is not None:
            return _as_outcome(known)
        return await self._made(key, token, may_wait=may_wait, seconds=seconds)

    async def _made(
        self, key: Key, token: str, *, may_wait: bool = False, seconds: float | None = None
    ) -> Outcome:
        """Return the outcome of what is not known yet, and keep it where no secret opened it."""
        task = (*key, token) if token else key
        outcome = await self._within_limits(*task, may_wait=may_wait, seconds=seconds)
        if outcome.error is None and not token:
            await self._known.put(key, outcome.result)
        elif isinstance(outcome.error, _LASTING) and not token:
            await self._known.put(key, outcome)
        return outcome

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a process."""
        return self._waiting.total()

    def know(self, function: Callable[[], ResultT], result: ResultT | None) -> None:
        """Take what a function always gives as known, if it is."""
        if result is not None:
            self._always[function] = result

    async def once(self, function: Callable[[], ResultT]) -> ResultT:
        """Return what a function always gives; it is asked once, and has the time that it takes."""
        async with self._lock:
            if function not in self._always:
                async with self._behind, self._usual, self._processes:
                    self._always[function] = _result(await self._in_process(function))
        result: ResultT = self._always[function]
        return result

    @asynccontextmanager
    async def started(
        self, *warm: Callable[[], object], ahead: Callable[[], object] | None = None
    ) -> AsyncIterator[None]:
        """Start every process, by functions that read what all answers need; end them all after.

        Where there is more than one, what `ahead` always gives is made before it is asked for.
        """
        async with create_task_group() as group:

            def start_one(place: AsyncExitStack | None = None) -> None:
                group.start_soon(self._start, warm, place)

            self._start_one = start_one
            for _ in range(self._started):
                start_one()
            if ahead is not None and self.settings.processes > 1:
                group.start_soon(self._ahead, ahead)
            yield
            self._start_one = None
            await self.far.close()
            group.cancel_scope.cancel()

    async def _ahead(self, function: Callable[[], object]) -> None:
        with suppress(Exception):  # who asks for it is told
            await self.once(function)

    async def _within_limits(
        self,
        function: Callable[..., object],
        *arguments: Any,
        may_wait: bool,
        seconds: float | None,
    ) -> Outcome:
        is_search = _name_of(function) not in _ESTIMATES
        small = self._started > 1 and not may_wait and is_small(*arguments, is_search=is_search)
        if self._waiting[small] >= max(self.settings.queue, 1) and not may_wait:
            busy = "too many plans are being made"
            return Outcome(error=TooBusyError(busy, hint="try again in some seconds"))
        async with self._behind if may_wait else nullcontext():
            allowed = seconds or self.settings.deadline_seconds
            turn = Turn.SMALL if small else Turn.LATER if may_wait else Turn.USUAL
            return await self._in_turn(function, *arguments, turn=turn, allowed=allowed)

    async def _in_turn(
        self, function: Callable[..., object], *arguments: Any, turn: Turn, allowed: float
    ) -> Outcome:
        outcome: Outcome | None = None
        running = CancelScope(shield=True)
        with move_on_after(allowed) as limit:
            async with self._turn(small=turn == Turn.SMALL) as held:
                try:
                    outcome = await self._in_process(
                        function,
                        *arguments,
                        turn=turn,
                        ends=limit.deadline,
                        allowed=allowed,
                        running=running,
                    )
                finally:
                    if running.cancel_called and self._start_one is not None:
                        # Its process is gone: a new one takes its place before the next request does,
                        # which would take the one that is kept for small plans.
                        self._start_one(held.pop_all())
        return outcome or Outcome(error=_took_too_long(function, allowed))

    @asynccontextmanager
    async def _turn(self, *, small: bool) -> AsyncIterator[AsyncExitStack]:
        """Wait for a process that is free, and hold its place."""
        async with AsyncExitStack() as held:
            self._waiting[small] += 1
            try:
                await self._take(held, () if small else (self._usual,))
            finally:
                self._waiting[small] -= 1
            yield held

    async def _take(self, held: AsyncExitStack, lane: Sequence[CapacityLimiter]) -> None:
        for limit in (*lane, self._processes):
            await limit.acquire_on_behalf_of(held)
            held.callback(limit.release_on_behalf_of, held)

    async def _start(
        self, warm: Sequence[Callable[[], object]], place: AsyncExitStack | None
    ) -> None:
        async with place or AsyncExitStack() as held:
            if place is None:
                await self._take(held, (self._usual,))
            for each in warm:
                if self.settings.processes:
                    # Alone and first: to read what `each` is, a process would import all of it in front of others.
                    first = partial(begin, each.__module__)
                    with suppress(*_LOST):
                        await to_process.run_sync(first, cancellable=True, limiter=self._as_many)
                await self._in_process(each)

    async def _in_process(
        self,
        function: Callable[..., object],
        *arguments: Any,
        turn: Turn = Turn.USUAL,
        ends: float = inf,
        allowed: float = inf,
        running: CancelScope | None = None,
    ) -> Outcome:
        running = running or CancelScope(shield=True)
        left = Path(gettempdir()) / f"planner-left-{uuid4().hex}"
        limited = (function, arguments, ends, allowed, left)
        outcome: Outcome | None = None
        is_done = Event()
        async with create_task_group() as group:
            with running:
                group.start_soon(_stop_when_left, anyio.Path(left), ends, is_done, running)
                outcome = await self._outcome_of(turn, *limited)
            is_done.set()
            group.cancel_scope.cancel()
        while outcome is None:
            await sleep_forever()  # until who cancelled it, which ended its process, is heard
        return outcome

    async def _outcome_of(self, turn: Turn, *limited: Any) -> Outcome:
        if not self.settings.processes:
            task = partial(outcome_of, *limited)
            return await to_thread.run_sync(task, abandon_on_cancel=True, limiter=self._as_many)
        behind = partial(outcome_behind_the_server, turn, *limited)
        for _ in range(_TRIES):
            with suppress(*_LOST):
                return await to_process.run_sync(behind, cancellable=True, limiter=self._as_many)
        lost = "the processes that planned were ended, one after another"
        return Outcome(error=LostProcessError(lost, hint="try again in some seconds"))


def _name_of(function: Callable[..., object]) -> str:
    return str(getattr(function, "__name__", ""))


def _as_outcome(known: object) -> Outcome:
    """Return what was kept: a refusal as it was, else an answer."""
    return known if isinstance(known, Outcome) else Outcome(result=known)


def _result(outcome: Outcome) -> Any:
    """Return what was made, or raise what was: a refusal that is kept does not grow by where it was raised before."""
    if outcome.error is not None:
        raise outcome.error.with_traceback(None)
    return outcome.result


def _took_too_long(function: Callable[..., object], seconds: float) -> TookTooLongError:
    is_of_text = _name_of(function) in _JOBS_OF_TEXT
    hint = with_less("send less text") if is_of_text else with_less()
    return TookTooLongError(no_answer_within(seconds), hint)


async def _stop_when_left(
    left: anyio.Path, ends: float, is_done: Event, running: CancelScope
) -> None:
    """Ask work to stop when it is cancelled before its time is over, and end its process where it does not soon."""
    try:
        await sleep_forever()
    finally:
        if not is_done.is_set():
            patience = _STOP_SECONDS if monotonic() < ends else 0.0
            with move_on_after(patience, shield=True), suppress(OSError):
                await left.touch()
                await is_done.wait()
            if not is_done.is_set():
                running.cancel()
            with CancelScope(shield=True), suppress(OSError):
                await left.unlink(missing_ok=True)


async def _cancel_when_gone(request: Request, scope: CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
