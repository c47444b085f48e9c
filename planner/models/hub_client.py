"""Questions to the Hub through huggingface_hub: each bounded in time and size, none retried."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

from planner.catalog import records
from planner.catalog.model_names import nearest_models
from planner.core.errors import (
    HubUnreachableError,
    InvalidInputError,
    ModelAccessError,
    ModelNotFoundError,
    PlannerError,
)

LARGEST_FILE_BYTES = 2**20
PATIENCE_SECONDS = 4.0
"""For all questions about one model together; the client itself would retry for 23 s."""
WEBSITE = "https://huggingface.co"
_MISSPELT = 0.75
"""How much of two names is the same, by difflib, where one is the other misspelt."""
_OWN_CONFIG = (
    "try again when the Hub can be reached, or give the model's config.json: its path on the command"
    " line, its text in the form, the object itself as `model` of a request"
)

T = TypeVar("T")

_token: ContextVar[str] = ContextVar("token", default="")


@contextmanager
def asking_with(token: str) -> Iterator[None]:
    """Ask the Hub in the name of a token's owner, while this lasts; "" as the machine is logged in."""
    before = _token.set(token)
    try:
        yield
    finally:
        _token.reset(before)


class FileMissingError(ModelNotFoundError):
    """The repository exists, but has no file of that name."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a repository."""

    content: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Weights:
    """What the headers of the safetensors files say."""

    parameters: int
    dtype: str
    """Of most parameters, such as BF16."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A model of the Hub at a revision, and until when its answers are waited for."""

    name: str
    revision: str
    until: float = field(default_factory=lambda: time.monotonic() + PATIENCE_SECONDS)
    token: str = field(default_factory=_token.get, repr=False)
    """Of whoever asks; what it opens is theirs alone. "" as the machine is logged in."""

    def sibling(self, name: str) -> "Repository":
        """Return another model, asked about in the time that is left."""
        return Repository(name, "main", self.until, self.token)

    def is_unchanged(self, file: str, etag: str) -> bool:
        """Return whether a file still is what it was when it had this ETag.

        Raises:
            ModelNotFoundError: as `fetch` does.
        """
        return bool(etag) and self._head(file).etag == etag

    def fetch(self, file: str) -> File:
        """Return a file.

        Raises:
            FileMissingError: the repository has no such file.
            ModelNotFoundError: there is no such model or revision, or it needs access.
            HubUnreachableError: the Hub gave no answer in time, or one that makes no sense.
            InvalidInputError: the file is larger than 1 MiB.
        """
        head = self._head(file)
        size = head.size or 0
        if size <= LARGEST_FILE_BYTES:
            url = self._url(file)
            content = self._asked(lambda: _download(url, self.until, self.token))
            size = len(content)
        if size > LARGEST_FILE_BYTES:
            raise InvalidInputError(f"{file} of {self.name!r} is larger than 1 MiB", field="model")
        return File(content, head.etag or "")

    def weights(self) -> Weights | None:
        """Return what is known about the safetensors files; None where there are none, or no answer."""
        with suppress(Exception):
            safetensors = self._info("safetensors").safetensors
            counts = {str(dtype): int(count) for dtype, count in safetensors.parameters.items()}
            return Weights(int(safetensors.total), max(counts, key=lambda dtype: counts[dtype]))
        return None

    def files_and_tags(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of all files and the tags; nothing where there is no answer."""
        with suppress(Exception):
            info = self._info("siblings", "tags")
            files = tuple(str(sibling.rfilename) for sibling in info.siblings or ())
            return files, tuple(str(tag) for tag in info.tags or ())
        return (), ()

    @property
    def endpoint(self) -> str:
        """Return the Hub's address.

        Raises:
            HubUnreachableError: HF_ENDPOINT is no URL; the client would break while importing.
        """
        address = os.environ.get("HF_ENDPOINT", WEBSITE)
        try:
            parts = urlsplit(address)
            is_url = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            raise self.unreachable("HF_ENDPOINT is not a URL")
        return address

    def require_client(self) -> None:
        """Check that huggingface_hub is installed.

        Raises:
            ModelNotFoundError: it is not.
        """
        try:
            import huggingface_hub  # noqa: F401 - slow to import, and for few models
        except ImportError:
            raise ModelNotFoundError(
                f"{self.name!r} is not among the models that ship with the planner",
                hint=similar(self.name, "to ask the Hub: pip install huggingface_hub"),
                field="model",
            ) from None

    def copy_of_client(self) -> Path | None:
        """Return the config.json that other programs have downloaded, if any."""
        import huggingface_hub as hub

        path = hub.try_to_load_from_cache(self.name, "config.json", revision=self.revision)
        return Path(path) if isinstance(path, str) else None

    def unreachable(self, reason: str) -> HubUnreachableError:
        """Return the error that says why the Hub gave no answer."""
        is_shipped = records.model(self.name) is not None
        of = f" at revision {self.revision!r}" if is_shipped else ""
        near = "leave the revision out, " if is_shipped else _near(self.name)
        return HubUnreachableError(
            f"{self.name!r}{of} does not ship with the planner, and the Hub did not answer ({reason})",
            hint=near + _OWN_CONFIG,
            field="model",
        )

    @property
    def _login(self) -> dict[str, Any]:
        return {"token": self.token} if self.token else {}

    def _url(self, file: str) -> str:
        import huggingface_hub as hub

        return hub.hf_hub_url(self.name, file, revision=self.revision)

    def _head(self, file: str) -> Any:
        import huggingface_hub as hub

        url = self._url(file)
        return self._asked(lambda: hub.get_hf_file_metadata(url, **self._login))

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return self._within(ask)
        except PlannerError:
            raise
        except Exception as error:  # noqa: BLE001 - transport errors share no public base
            raise self._explained(error) from None

    def _within(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns in the time left; a look-up of a name knows no other limit."""
        from concurrent.futures import Future

        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            raise self.unreachable("HF_HUB_OFFLINE is set")
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(ask())
            except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits
                answer.set_exception(error)

        Thread(target=work, daemon=True).start()
        return answer.result(max(0.0, self.until - time.monotonic()))

    def _info(self, *fields: Any) -> Any:
        import huggingface_hub as hub

        seconds = max(0.0, self.until - time.monotonic())
        return self._within(
            lambda: hub.model_info(
                self.name,
                revision=self.revision,
                timeout=seconds,
                expand=list(fields),
                **self._login,
            )
        )

    def _is_data_set(self) -> bool:
        import huggingface_hub as hub

        url = hub.hf_hub_url(self.name, "README.md", repo_type="dataset")
        try:
            self._within(lambda: hub.get_hf_file_metadata(url, **self._login))
        except (hub.errors.GatedRepoError, hub.errors.EntryNotFoundError):
            return True
        except Exception:  # noqa: BLE001 - then nobody knows, and the first error stands
            return False
        return True

    def _explained(self, error: Exception) -> ModelNotFoundError:
        from huggingface_hub import errors

        if isinstance(error, errors.GatedRepoError):
            return ModelAccessError(
                f"{self.name!r} is gated",
                hint=f"accept its terms at {WEBSITE}/{self.name}, then set HF_TOKEN",
                field="model",
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return self._no_such_model()
        if isinstance(error, errors.RevisionNotFoundError):
            return ModelNotFoundError(
                f"{self.name!r} has no revision {self.revision!r}",
                hint="name a branch, a tag or a commit; the default is main",
                field="model",
            )
        if isinstance(error, errors.RemoteEntryNotFoundError):
            return FileMissingError(f"{self.name!r} has no config.json", field="model")
        if isinstance(error, errors.HfHubHTTPError):
            return self._refused(error.response.status_code)
        return self.unreachable(_reason(error))

    def _refused(self, status: int) -> ModelNotFoundError:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return ModelAccessError(
                f"the Hub refused access to {self.name!r} (HTTP {status})",
                hint="is HF_TOKEN still valid, and may it read this model?",
                field="model",
            )
        return self.unreachable(f"HTTP {status}")

    def _no_such_model(self) -> ModelNotFoundError:
        if self._is_data_set():
            return ModelNotFoundError(
                f"{self.name!r} is a data set, not a model",
                hint="give the id of the model to train on it",
                field="model",
            )
        return ModelNotFoundError(
            f"there is no model {self.name!r} on the Hub, or it is private",
            hint=similar(self.name, "a private model needs HF_TOKEN"),
            field="model",
        )


def similar(name: str, otherwise: str) -> str:
    """Return a hint with the models that ship under a similar name, whoever made them, or else."""
    return _meant(name, nearest_models(name)) + otherwise


def _near(name: str) -> str:
    """Return the hint of a name that may well be right, as nobody could ask: of a misspelt one alone."""
    if "/" not in name:
        return similar(name, "")
    by_short = {_short(model): model for model in records.model_ids()}
    close = get_close_matches(_short(name), by_short, n=2, cutoff=_MISSPELT)
    return _meant(name, [by_short[short] for short in close])


def _meant(name: str, models: Iterable[str]) -> str:
    """Return a hint with models, by their short names where one was typed and they have one."""
    is_short = "/" not in name
    known = " or ".join(
        _short(model) if is_short and records.model(_short(model)) else model for model in models
    )
    return f"did you mean {known}? " if known else ""


def _short(name: str) -> str:
    return name.rpartition("/")[2].lower()[:100]


def _download(url: str, until: float, token: str) -> bytes:
    """Return a file, or the beginning of one that is larger than any we read."""
    import huggingface_hub as hub
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
    )

    content = bytearray()
    headers = build_hf_headers(token=token or None) | {"accept-encoding": "identity"}
    timeout = max(0.0, until - time.monotonic())
    with hub.get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        hub.hf_raise_for_status(response)
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > LARGEST_FILE_BYTES or time.monotonic() > until:
                break
    return bytes(content)


def _reason(error: Exception) -> str:
    """Say what went wrong in words that hold no secret: an error's own text may quote a header."""
    from urllib.request import getproxies

    host = urlsplit(os.environ.get("HF_ENDPOINT", WEBSITE)).hostname
    kind = type(error).__name__
    if isinstance(error, TimeoutError) or kind.endswith("Timeout"):
        return f"no answer from {host} within {PATIENCE_SECONDS:.0f} s"
    if kind == "ConnectError":
        return f"no connection to {host}{' through the proxy' if getproxies() else ''}"
    return kind
