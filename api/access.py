"""Who may ask, and how often: optional keys, and a rate per client."""

import math
import time
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from secrets import compare_digest
from typing import Any, ClassVar

from fastapi import Request
from fastapi.security import APIKeyHeader, HTTPBearer
from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from api.settings import Settings
from planner.core.errors import PlannerError

FOR_ALL = frozenset({"/healthz", "/readyz", "/metrics"})
"""What an orchestrator asks: neither keys nor rates."""


SCHEMES: Mapping[str, Any] = {
    "bearer": HTTPBearer(auto_error=False),
    "header": APIKeyHeader(name="X-API-Key", auto_error=False),
}
"""Ways to send a key."""


class KeyMissingError(PlannerError):
    """The service asks for a key, and the request has none that it knows."""

    headers: ClassVar = {"WWW-Authenticate": "Bearer"}


class TooOftenError(PlannerError):
    """A client asks more often than it may."""

    def __init__(self, message: str, hint: str = "", field: str = "", seconds: int = 1) -> None:
        super().__init__(message, hint, field)
        self.headers = {"Retry-After": str(seconds)}


class Access:
    """The keys and the rate of a service."""

    def __init__(self, settings: Settings) -> None:
        self._keys = tuple(key.get_secret_value().encode() for key in settings.api_keys)
        self._rate: RateLimitItem | None = parse(settings.rate) if settings.rate else None
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

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
            raise KeyMissingError(
                "this service asks for a key", hint="send it as Authorization: Bearer KEY"
            )
        if self._rate is None:
            return
        host = http.client.host if http.client else ""
        who = sha256(key).hexdigest() if self._keys else host
        if not await self._limiter.hit(self._rate, who):
            window = await self._limiter.get_window_stats(self._rate, who)
            seconds = max(1, math.ceil(window.reset_time - time.time()))
            raise TooOftenError(
                f"more than {self._rate}", hint=f"try again in {seconds} s", seconds=seconds
            )

    def _is_known(self, key: bytes) -> bool:
        """Return whether a key is one of ours; every one is compared, so that time tells nothing."""
        return sum(compare_digest(key, known) for known in self._keys) > 0


async def admitted(http: Request) -> None:
    """Check a request, as a dependency of every route."""
    await http.app.state.access.check(http)


async def _key(http: Request) -> bytes:
    """Return the key that a request was sent with, in whichever way."""
    borne, said = await SCHEMES["bearer"](http), await SCHEMES["header"](http)
    return (borne.credentials if borne else said or "").encode("utf-8", "surrogateescape")


STATUSES = {
    KeyMissingError: HTTPStatus.UNAUTHORIZED,
    TooOftenError: HTTPStatus.TOO_MANY_REQUESTS,
}
