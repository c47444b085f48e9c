"""What the Hub said about a model, kept on disk for a day; a file that cannot be used is no file."""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from planner.core.frozen import frozen

TTL_SECONDS = 24 * 60 * 60
LARGEST_ENTRY_BYTES = 2**23
"""A config of 1 MiB whose every character is written as an escape."""
MOST_ENTRIES = 256
"""The oldest go first, so that no stream of requests fills the disk."""
_FORMAT = 1


@frozen
class CachedConfig:
    """One repository at one revision: its config.json, or the model it was made from."""

    config: Mapping[str, Any] | None = None
    etag: str = ""
    """Of config.json; empty where there is none to compare."""
    base: str = ""
    """Where `config` is None: the model that this adapter or GGUF file was made from."""
    kind: str = ""
    """What a repository with a `base` is, such as "a LoRA adapter"."""
    safetensors_parameters: int | None = None
    safetensors_dtype: str = ""
    checked_at: float
    """When the Hub last said so, in seconds since the epoch."""

    @property
    def is_fresh(self) -> bool:
        """Return whether it need not be checked; a clock that was set back makes it stale."""
        return 0 <= time.time() - self.checked_at < TTL_SECONDS


def read(endpoint: str, name: str, revision: str) -> CachedConfig | None:
    """Return what was kept, however old; None when there is nothing, or it is damaged."""
    path = _path(endpoint, name, revision)
    if path is None:
        return None
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with path.open("rb") as file:
            content = file.read(LARGEST_ENTRY_BYTES + 1)
        if len(content) <= LARGEST_ENTRY_BYTES:
            return _entry(json.loads(content))
    return None


def write(endpoint: str, name: str, revision: str, entry: CachedConfig) -> None:
    """Keep an entry. What cannot be kept is asked for again: a full or read-only disk is no error."""
    path = _path(endpoint, name, revision)
    if path is None:
        return
    with suppress(OSError, ValueError, RecursionError):
        text = json.dumps({"format": _FORMAT, "entry": asdict(entry)})
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write_text(text, encoding="ascii")
        _forget_oldest(path.parent)


def _path(endpoint: str, name: str, revision: str) -> Path | None:
    """Return the file of a repository; its name alone tells who it is, and no secret is in it."""
    root = cache_root()
    key = sha256(f"{endpoint}\n{name}\n{revision}".encode()).hexdigest()[:32]
    return root / "hub" / f"{name.replace('/', '--')}.{key}.json" if root else None


def cache_root() -> Path | None:
    """Return the folder of what is kept for this user, if there is one."""
    chosen = os.environ.get("PLANNER_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        import platformdirs
    except ImportError:
        return None
    return platformdirs.user_cache_path("planner", appauthor=False)


def _entry(value: dict[str, Any]) -> CachedConfig:
    """Return the entry that a file holds.

    Raises:
        ValueError: it is of another format, or damaged. So are TypeError and KeyError.
    """
    if value["format"] != _FORMAT:
        raise ValueError
    entry = CachedConfig(**value["entry"])
    texts = (entry.etag, entry.base, entry.kind, entry.safetensors_dtype)
    is_sound = (
        isinstance(entry.config, dict | None)
        and all(isinstance(text, str) for text in texts)
        and isinstance(entry.safetensors_parameters, int | None)
        and isinstance(entry.checked_at, int | float)
        and bool(entry.base) == (entry.config is None)
    )
    if not is_sound:
        raise ValueError
    return entry


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new file that takes the place of `path` when it is complete, or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:100], suffix=".new")
    os.close(handle)
    new = Path(name)
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _forget_oldest(folder: Path) -> None:
    entries = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in entries[MOST_ENTRIES:]:
        old.unlink(missing_ok=True)
