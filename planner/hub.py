"""A model's name, path or Hub id -> its config.json; the only module that uses the network."""

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

from planner import catalog
from planner.errors import (
    HubUnreachableError,
    InvalidInputError,
    ModelAccessError,
    ModelNotFoundError,
    did_you_mean,
)

LARGEST_CONFIG_BYTES = 2**20
CONNECT_TIMEOUT_SECONDS = 3.0
_WEBSITE = "https://huggingface.co"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A config.json and where it came from."""

    name: str
    config: Mapping[str, Any]
    is_pretrained: bool
    """Weights can be loaded from the Hub under `name`."""


def find_model(name: str, *, allow_paths: bool) -> ModelSource:
    """Return the config.json of a model: from the catalogue, a local path, or the Hub.

    Args:
        name: catalogue name, Hub id, or path of a config.json or of the folder that holds one.
        allow_paths: whether the file system may be read (never for a request from elsewhere).

    Raises:
        ModelNotFoundError: or one of its children; each hint says what to do.
        InvalidInputError: the name can be neither an id nor a path.
    """
    record = catalog.model(name) if len(name) <= 200 else None  # noqa: PLR2004 - no id is longer
    if record:
        return ModelSource(name=record.id, config=record.config, is_pretrained=True)
    if allow_paths and _is_path(name):
        return ModelSource(name=name, config=_read_path(Path(name)), is_pretrained=False)
    if not _HUB_ID.fullmatch(name) or ".." in name or "--" in name:
        raise _not_an_id(name)
    return ModelSource(name=name, config=_read_hub(name), is_pretrained=True)


def parse_config(text: str, where: str) -> dict[str, Any]:
    """Return the object that a config.json holds.

    Raises:
        InvalidInputError: it is too large, not JSON, or not an object.
    """
    if len(text) > LARGEST_CONFIG_BYTES:
        raise InvalidInputError(f"{where} is larger than 1 MiB", field="model")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{where} is not JSON: {error}", field="model") from None
    if not isinstance(config, dict):
        raise InvalidInputError(f"{where} holds no JSON object", field="model")
    return config


def _not_an_id(name: str) -> InvalidInputError:
    similar = did_you_mean(name, catalog.model_ids()) or "`planner models` lists the known ones"
    return InvalidInputError(
        f"{name[:80]!r} is not a model id",
        hint=f"an id reads organisation/name; {similar}",
        field="model",
    )


def _is_path(name: str) -> bool:
    if name.startswith((".", "/", "~")) or name.endswith(".json"):
        return "\0" not in name
    with suppress(OSError):
        return bool(name) and Path(name).is_dir()
    return False


def _read_path(path: Path) -> dict[str, Any]:
    """Read at most the largest config, so that no device and no growing file can hold us."""
    try:
        path = path.expanduser()
        path = path / "config.json" if path.is_dir() else path
        with path.open("rb") as file:
            content = file.read(LARGEST_CONFIG_BYTES + 1)
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        raise ModelNotFoundError(
            f"cannot read {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}",
            hint="give the path of a config.json, or of the folder that holds it",
            field="model",
        ) from None
    if len(content) > LARGEST_CONFIG_BYTES:
        raise InvalidInputError(f"{str(path)!r} is larger than 1 MiB", field="model")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{str(path)!r} is not a text file", field="model") from None
    return parse_config(text, repr(str(path)))


def _read_hub(name: str) -> dict[str, Any]:
    try:
        import huggingface_hub as hub  # noqa: PLC0415 - an optional extra, and slow to import
    except ImportError:
        raise ModelNotFoundError(
            f"{name!r} is not among the models that ship with the planner",
            hint=_similar(name, "to ask the Hub: pip install 'planner[hub]'"),
            field="model",
        ) from None
    endpoint = _endpoint(name)
    try:
        cached = hub.try_to_load_from_cache(name, "config.json")
    except hub.errors.HFValidationError:
        raise _not_an_id(name) from None
    path = cached if isinstance(cached, str) else _download(name, endpoint)
    return _read_path(Path(path))


def _endpoint(name: str) -> SplitResult:
    """Return the Hub's address, checked: the client breaks while importing if it is no URL."""
    try:
        endpoint = urlsplit(os.environ.get("HF_ENDPOINT", _WEBSITE))
        is_url = bool(endpoint.hostname) and endpoint.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise _unreachable(name, "HF_ENDPOINT is not a URL")
    return endpoint


def _download(name: str, endpoint: SplitResult) -> str:
    import huggingface_hub as hub  # noqa: PLC0415 - only importable where hub is installed

    _require_network(name, endpoint)
    try:
        # Asked without retries, and before anything of any size is written to the disk.
        size = hub.get_hf_file_metadata(hub.hf_hub_url(name, "config.json")).size or 0
        if size <= LARGEST_CONFIG_BYTES:
            return hub.hf_hub_download(name, "config.json")
    except Exception as error:  # noqa: BLE001 - the client's transport errors share no public base
        raise _hub_error(name, error) from None
    raise InvalidInputError(f"config.json of {name!r} is larger than 1 MiB", field="model")


def _require_network(name: str, endpoint: SplitResult) -> None:
    """Fail within seconds where the Hub cannot be reached; the client itself retries for 23 s."""
    from urllib.request import getproxies  # noqa: PLC0415 - slow to import, and seldom needed

    from huggingface_hub import constants  # noqa: PLC0415 - only importable where hub is installed

    if constants.HF_HUB_OFFLINE:
        raise _unreachable(name, "HF_HUB_OFFLINE is set")
    if not getproxies().keys().isdisjoint({endpoint.scheme, "all"}):
        return
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    if not _connects(endpoint.hostname or "", port):
        raise _unreachable(name, f"no connection to {endpoint.hostname}")


def _connects(host: str, port: int) -> bool:
    """Return whether the host answers in time, all its addresses and the look-up included."""
    has_answered = Event()

    def connect() -> None:
        with suppress(OSError, UnicodeError):
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_SECONDS).close()
            has_answered.set()

    attempt = Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(CONNECT_TIMEOUT_SECONDS)
    return has_answered.is_set()


def _hub_error(name: str, error: Exception) -> ModelNotFoundError:
    from huggingface_hub import errors  # noqa: PLC0415 - only importable where hub is installed

    if isinstance(error, errors.GatedRepoError):
        return ModelAccessError(
            f"{name!r} is gated",
            hint=f"accept its terms at {_WEBSITE}/{name}, then set HF_TOKEN",
            field="model",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFoundError(
            f"there is no model {name!r} on the Hub, or it is private",
            hint=_similar(name, "a private model needs HF_TOKEN"),
            field="model",
        )
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return ModelNotFoundError(
            f"{name!r} has no config.json",
            hint="is it an adapter, a GGUF file or a data set? plan for its base model",
            field="model",
        )
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return ModelAccessError(
            f"the Hub refused access to {name!r} (HTTP {status})",
            hint="is HF_TOKEN still valid, and may it read this model?",
            field="model",
        )
    return _unreachable(name, f"HTTP {status}" if status else type(error).__name__)


def _unreachable(name: str, reason: str) -> HubUnreachableError:
    return HubUnreachableError(
        f"{name!r} does not ship with the planner, and the Hub did not answer ({reason})",
        hint=_similar(name, "or give the path of its config.json"),
        field="model",
    )


def _similar(name: str, otherwise: str) -> str:
    aliases = (*catalog.model_ids(), *(i.split("/")[1] for i in catalog.model_ids()))
    close = did_you_mean(name, aliases)
    return f"{close} {otherwise}" if close else otherwise
