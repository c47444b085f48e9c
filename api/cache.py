"""Answers that are known already: in the process, and for several replicas in Redis."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cachetools import TTLCache

import planner
from api.far import Far
from api.jobs import Reply
from api.settings import Settings
from planner import __version__
from planner.catalog.records import data_root

Key = tuple[Any, ...]
"""A function of a module, and its arguments."""

_DIGEST_LENGTH = 64
_USUAL_BYTES = 200_000
"""That an answer takes at most, but for some."""
_READ = {".json", ".md", ".py", ".toml"}
"""Files that an answer may depend on."""


class KnownReplies:
    """Replies by what they depend on. Where Redis does not answer, they are computed anew."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.cache_seconds
        self._near: TTLCache[Key, Any] = TTLCache(
            settings.cached_answers, settings.cache_seconds, getsizeof=weight
        )
        self.far = Far(settings)
        if self.far.redis is not None:
            release()

    async def get(self, key: Key) -> Any:
        """Return what is known, or None."""
        near = _short(key)
        found = self._near.get(near)
        if found is None and self.far.redis is not None:
            found = await self._ask(near)
        return found

    async def put(self, key: Key, reply: Any) -> None:
        """Keep a reply; what Redis cannot keep is no failure."""
        near = _short(key)
        with suppress(ValueError):
            self._near[near] = reply
        if self.far.redis is not None and isinstance(reply, Reply):
            name, value, seconds = _name(near), packed(reply), max(1, int(self._seconds))
            await self.far.ask(lambda redis: redis.set(name, value, ex=seconds))

    async def _ask(self, near: Key) -> Reply | None:
        name = _name(near)
        reply = unpacked(await self.far.ask(lambda redis: redis.get(name)))
        if reply is not None:
            with suppress(ValueError):
                self._near[near] = reply
        return reply


def weight(held: object) -> int:
    """Return as how many answers one counts that is held: the few that are long take no more memory than others."""
    said = held.body if isinstance(held, Reply) else held
    return 1 + (len(said) // _USUAL_BYTES if isinstance(said, bytes | str) else 0)


def _short(key: Key) -> Key:
    """Return a function and a digest of its arguments: a body may be a MiB of spaces."""
    function, *arguments = key
    asked = hashlib.sha256()
    for argument in arguments:
        said = (
            argument
            if isinstance(argument, bytes)
            else repr(argument).encode("ascii", "backslashreplace")
        )
        asked.update(f"{len(said)}:".encode() + said)
    return function, asked.hexdigest()


def _name(near: Key) -> str:
    """Return the name of a reply: of the question, the release, and the data that answers it."""
    function, asked = near
    return f"planner:{release()}:{_path(function)}:{asked}"


def _path(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@cache
def release() -> str:
    """Return what tells apart the releases, their code and their data, that one Redis may serve."""
    versions = (f"{name} {version(name)}" for name in ("fastapi", "pydantic"))
    digest = hashlib.sha256("\n".join((__version__, *versions)).encode())
    for root in (Path(str(data_root())), Path(planner.__file__).parent, Path(__file__).parent):
        for file in sorted(path for path in root.rglob("*") if path.suffix in _READ):
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def packed(reply: Reply) -> bytes:
    """Return a reply in bytes that show whether they were damaged."""
    return f"{hashlib.sha256(reply.body).hexdigest()}{reply.tag}".encode() + reply.body


def unpacked(held: object) -> Reply | None:
    """Return the reply that a value holds; None where it is damaged."""
    if not isinstance(held, bytes) or len(held) < 2 * _DIGEST_LENGTH:
        return None
    digest, tag = held[:_DIGEST_LENGTH], held[_DIGEST_LENGTH : 2 * _DIGEST_LENGTH]
    body = held[2 * _DIGEST_LENGTH :]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    return Reply(body, tag.decode("ascii", "replace"))
