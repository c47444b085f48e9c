"""Answers that are known already: in the process, and for several replicas in Redis."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from cachetools import TTLCache

from api.far import Far
from api.jobs import Reply
from api.settings import Settings
from planner import __version__
from planner.catalog.records import data_root

Key = tuple[Any, ...]
"""A function of a module, and its arguments."""

_DIGEST_LENGTH = 64


class KnownReplies:
    """Replies by what they depend on. Where Redis does not answer, they are computed anew."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.cache_seconds
        self._near: TTLCache[Key, Any] = TTLCache(settings.cached_answers, settings.cache_seconds)
        self.far = Far(settings)
        if self.far.redis is not None:
            _release()

    async def get(self, key: Key) -> Any:
        """Return what is known, or None."""
        found = self._near.get(key)
        if found is None and self.far.redis is not None:
            found = await self._ask(key)
        return found

    async def put(self, key: Key, reply: Any) -> None:
        """Keep a reply; what Redis cannot keep is no failure."""
        with suppress(ValueError):
            self._near[key] = reply
        if self.far.redis is not None and isinstance(reply, Reply):
            name, packed, seconds = _name(key), _packed(reply), max(1, int(self._seconds))
            await self.far.ask(lambda redis: redis.set(name, packed, ex=seconds))

    async def _ask(self, key: Key) -> Reply | None:
        name = _name(key)
        reply = _unpacked(await self.far.ask(lambda redis: redis.get(name)))
        if reply is not None:
            with suppress(ValueError):
                self._near[key] = reply
        return reply


def _name(key: Key) -> str:
    """Return the name of a reply: of the question, the release, and the data that answers it."""
    function, *arguments = key
    asked = hashlib.sha256()
    for argument in arguments:
        said = (
            argument
            if isinstance(argument, bytes)
            else repr(argument).encode("ascii", "backslashreplace")
        )
        asked.update(f"{len(said)}:".encode() + said)
    return f"planner:{_release()}:{_path(function)}:{asked.hexdigest()}"


def _path(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@cache
def _release() -> str:
    """Return what tells apart the releases, and the data, that one Redis may serve."""
    root = Path(str(data_root()))
    digest = hashlib.sha256(__version__.encode())
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _packed(reply: Reply) -> bytes:
    return f"{hashlib.sha256(reply.body).hexdigest()}{reply.tag}".encode() + reply.body


def _unpacked(packed: object) -> Reply | None:
    """Return the reply that a value holds; None where it is damaged."""
    if not isinstance(packed, bytes) or len(packed) < 2 * _DIGEST_LENGTH:
        return None
    digest, tag = packed[:_DIGEST_LENGTH], packed[_DIGEST_LENGTH : 2 * _DIGEST_LENGTH]
    body = packed[2 * _DIGEST_LENGTH :]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    return Reply(body, tag.decode("ascii", "replace"))
