"""A Redis that several replicas share: where it does not answer, it is as if there were none."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.settings import Settings

ResultT = TypeVar("ResultT")

_PATIENCE_SECONDS = 0.25
_REST_SECONDS = 5.0
"""Without Redis after it failed: a request is to wait for it once, not each."""


class Far:
    """The Redis of the settings, if they name one."""

    def __init__(self, settings: Settings) -> None:
        url = settings.redis_url
        self._rests_until = 0.0
        self.redis: Redis | None = None
        if url is not None:
            self.redis = Redis.from_url(
                url.get_secret_value(),
                socket_timeout=_PATIENCE_SECONDS,
                socket_connect_timeout=_PATIENCE_SECONDS,
            )

    async def ask(self, asked: Callable[[Redis], Awaitable[ResultT]]) -> ResultT | None:
        """Return what Redis says; None where there is none, or where it does not answer."""
        if self.redis is None or time.monotonic() < self._rests_until:
            return None
        try:
            return await asked(self.redis)
        except (RedisError, OSError, TimeoutError):
            self._rests_until = time.monotonic() + _REST_SECONDS
            return None

    async def close(self) -> None:
        """Close the connections."""
        if self.redis is not None:
            await self.redis.aclose()
