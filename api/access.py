"""Who may ask, and how often: optional keys, and a rate per client."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http import HTTPStatus
from secrets import compare_digest
from typing import Any

import structlog
from fastapi import Request
from fastapi.security import APIKeyHeader, HTTPBasic, HTTPBearer
from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter

from api.far import Far
from api.settings import Settings
from planner.core.errors import PlannerError

_PROMPT = 'Basic realm="planner", charset="UTF-8"'
_LOG = structlog.stdlib.get_logger("api")
FOR_ALL = frozenset({"/healthz", "/readyz", "/metrics"})
"""What an orchestrator asks: neither keys nor rates."""


SCHEMES: Mapping[str, Any] = {
    "bearer": HTTPBearer(auto_error=False),
    "basic": HTTPBasic(auto_error=False),
    "header": APIKeyHeader(name="X-API-Key", auto_error=False),
}
"""Ways to send a key; a browser asks for a name, which may be any, and a password, which is the key."""


class KeyMissingError(PlannerError):
    """The service asks for a key, and the request has none that it knows."""

    def __init__(
        self, message: str, hint: str = "", field: str = "", scheme: str = "Bearer"
    ) -> None:
        super().__init__(message, hint, field)
        self.headers = {"WWW-Authenticate": scheme}


class TooOftenError(PlannerError):
    """A client asks more often than it may."""

    def __init__(self, message: str, hint: str = "", field: str = "", seconds: int = 1) -> None:
        super().__init__(message, hint, field)
        self.headers = {"Retry-After": str(seconds)}


class Access:
    """The keys and the rate of a service."""

    def __init__(self, settings: Settings, far: Far) -> None:
        self._keys = tuple(key.get_secret_value().encode() for key in settings.api_keys)
        self._rate: RateLimitItem | None = parse(settings.rate) if settings.rate else None
        self._near, self._far = MovingWindowRateLimiter(MemoryStorage()), far
        self._shared = self._near
        if far.redis is not None:
            pool: Any = far.redis.connection_pool
            known = RedisStorage("async+redis://", implementation="redispy", connection_pool=pool)
            self._shared = MovingWindowRateLimiter(known)
        self._most_searches = settings.searches
        self._searches: Counter[str] = Counter()
        self._is_told = False

    async def check(self, http: Request) -> None:
        """Let a request in.

        Raises:
            KeyMissingError: it needs a key.
            TooOftenError: its client asked as often as it may.
        """
        if http.url.path in FOR_ALL:
            return
        key = await _key(http)
        if self._keys and not self._is_known(key):
            if "text/html" in http.headers.get("accept", ""):
                hint = "load the page again: any name will do, and a key is the password"
                raise KeyMissingError("this service asks for a key", hint, scheme=_PROMPT)
            hint = "send it as Authorization: Bearer KEY"
            raise KeyMissingError("this service asks for a key", hint)
        http.state.client = sha256(key).hexdigest() if self._keys else self._address(http)
        await self.count(http)

    async def count(self, http: Request, cost: int = 1) -> None:
        """Count so many requests of a client.

        Raises:
            TooOftenError: it asked as often as it may.
        """
        if self._rate is None or cost < 1:
            return
        rate, who = self._rate, http.state.client
        seconds = await self._far.ask(lambda _: self._waits(self._shared, rate, who, cost))
        if seconds is None:
            seconds = await self._waits(self._near, rate, who, cost)
        if seconds:
            hint = f"try again in {seconds} s"
            raise TooOftenError(f"more than {rate}", hint=hint, seconds=seconds)

    async def count_lines(self, http: Request, lines: int) -> None:
        """Count the lines of a batch, of which the request is one.

        Raises:
            TooOftenError: they are more than the client may ask yet, or ever.
        """
        if self._rate is not None and lines > self._rate.amount:
            said = f"{lines} lines are as many requests, and {self._rate} is the limit"
            raise TooOftenError(said, f"at most {self._rate.amount} lines", seconds=60)
        await self.count(http, lines - 1)

    @staticmethod
    async def _waits(
        limiter: MovingWindowRateLimiter, rate: RateLimitItem, who: str, cost: int
    ) -> int:
        """Return for how many seconds a client has to wait, 0 where it has not; then it is counted."""
        if await limiter.hit(rate, who, cost=cost):
            return 0
        window = await limiter.get_window_stats(rate, who)
        return max(1, math.ceil(window.reset_time - time.time()))

    def _address(self, http: Request) -> str:
        """Return a client's address as uvicorn has it, which takes a proxy's word where FORWARDED_ALLOW_IPS names the proxy."""
        host, port = http.client or ("", 0)
        if port and "x-forwarded-for" in http.headers and not self._is_told:
            self._is_told = True
            _LOG.warning(
                "clients of a proxy count as one: FORWARDED_ALLOW_IPS does not name it", proxy=host
            )
        return host

    @contextmanager
    def searching(self, http: Request) -> Iterator[None]:
        """Count a search of a client while it goes on.

        Raises:
            TooOftenError: as many of its go on as may.
        """
        if not self._most_searches:
            yield
            return
        who = http.state.client
        if self._searches[who] >= self._most_searches:
            said = f"{self._searches[who]} searches of yours go on, which is as many as may"
            raise TooOftenError(said, hint="wait for one of them", seconds=2)
        self._searches[who] += 1
        try:
            yield
        finally:
            self._searches[who] -= 1
            if not self._searches[who]:
                del self._searches[who]

    def _is_known(self, key: bytes) -> bool:
        """Return whether a key is one of ours; every one is compared, so that time tells nothing."""
        return sum(compare_digest(key, known) for known in self._keys) > 0


async def admitted(http: Request) -> None:
    """Check a request, as a dependency of every route."""
    await http.app.state.access.check(http)


async def _key(http: Request) -> bytes:
    """Return the key that a request was sent with, in whichever way."""
    borne, typed = await SCHEMES["bearer"](http), await SCHEMES["basic"](http)
    said = await SCHEMES["header"](http) or ""
    key = borne.credentials if borne else typed.password if typed else said
    return str(key).encode("utf-8", "surrogateescape")


STATUSES = {
    KeyMissingError: HTTPStatus.UNAUTHORIZED,
    TooOftenError: HTTPStatus.TOO_MANY_REQUESTS,
}
