"""A model's name, path or Hub id -> its config.json; the only module that uses the network."""

import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_DEFAULT_ENDPOINT = "https://huggingface.co"


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
        raise InvalidInputError(
            f"{name[:80]!r} is not a model id",
            hint="an id reads organisation/name; "
            + (did_you_mean(name, catalog.model_ids()) or "`planner models` lists the known ones"),
            field="model",
        )
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


def _is_path(name: str) -> bool:
    looks_like_one = name.startswith((".", "/", "~")) or name.endswith(".json")
    return "\0" not in name and (looks_like_one or Path(name).is_dir())


def _read_path(path: Path) -> dict[str, Any]:
    path = path.expanduser()
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > LARGEST_CONFIG_BYTES:
            raise InvalidInputError(f"{file} is larger than 1 MiB", field="model")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelNotFoundError(
            f"cannot read {str(file)!r}: {error.strerror}",
            hint="give the path of a config.json, or of the folder that holds it",
            field="model",
        ) from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{str(file)!r} is not a text file", field="model") from None
    return parse_config(text, str(file))


def _read_hub(name: str) -> dict[str, Any]:
    try:
        import huggingface_hub as hub  # noqa: PLC0415 - an optional extra, and slow to import
    except ImportError:
        raise ModelNotFoundError(
            f"{name!r} is not among the models that ship with the planner",
            hint=_similar(name, "to ask the Hub: pip install 'planner[hub]'"),
            field="model",
        ) from None
    try:
        cached = hub.try_to_load_from_cache(name, "config.json")
        if not isinstance(cached, str):
            _require_network(name)
            cached = hub.hf_hub_download(name, "config.json")
    except (OSError, ValueError) as error:
        raise _hub_error(name, error) from None
    return _read_path(Path(cached))


def _require_network(name: str) -> None:
    """Fail within seconds where the Hub cannot be reached; the client itself retries for 23 s."""
    if os.environ.get("HF_HUB_OFFLINE", "") in {"1", "ON", "YES", "TRUE"}:
        raise _unreachable(name, "HF_HUB_OFFLINE is set")
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT)
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        socket.create_connection(
            (endpoint.hostname or "", port), timeout=CONNECT_TIMEOUT_SECONDS
        ).close()
    except OSError:
        raise _unreachable(name, f"no connection to {endpoint.hostname}") from None


def _hub_error(name: str, error: Exception) -> ModelNotFoundError:
    from huggingface_hub import errors  # noqa: PLC0415 - only importable where hub is installed

    if isinstance(error, errors.GatedRepoError):
        return ModelAccessError(
            f"{name!r} is gated",
            hint=f"accept its terms at {_DEFAULT_ENDPOINT}/{name}, then set HF_TOKEN",
            field="model",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFoundError(
            f"there is no model {name!r} on the Hub, or it is private",
            hint=_similar(name, "a private model needs HF_TOKEN"),
            field="model",
        )
    is_missing_file = isinstance(error, errors.RemoteEntryNotFoundError)
    if is_missing_file:
        return ModelNotFoundError(
            f"{name!r} has no config.json",
            hint="is it an adapter, a GGUF file or a data set? plan for its base model",
            field="model",
        )
    return _unreachable(name, type(error.__cause__ or error).__name__)


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
