"""A model's name, path or Hub id -> its config.json: from the catalogue, the disk or the Hub."""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from planner.catalog import records
from planner.catalog.model_names import model_called, nearest_models, weights_called
from planner.core.errors import (
    HubUnreachableError,
    InvalidInputError,
    ModelNotFoundError,
)
from planner.core.files import decode_text, open_file
from planner.core.frozen import frozen
from planner.core.strict_json import read_whole
from planner.models import hub_cache
from planner.models.hub_cache import CachedConfig
from planner.models.hub_client import LARGEST_FILE_BYTES, FileMissingError, Repository

LARGEST_CONFIG_BYTES = LARGEST_FILE_BYTES
_MAIN = "main"
_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
_HUB_ID = re.compile(rf"{_PART}(?:/{_PART})?", re.ASCII)
_LONGEST_ID = 2 * 96 + 1
"""Characters: two parts and the stroke between them."""
_REVISION = re.compile(r"\w[\w./-]{0,127}", re.ASCII)
_SITES = ("huggingface.co", "www.huggingface.co", "hf.co")
_QUOTES = ("'", '"', "`")
"""Around a name that was copied out of a program."""
_BASE_TAG = "base_model:"
_WEIGHTS = tuple(
    name + index
    for name in ("model.safetensors", "pytorch_model.bin")
    for index in ("", ".index.json")
)
"""Files that transformers loads a model's weights from; an index names the parts of them."""


@frozen
class ModelSource:
    """A config.json and where it came from."""

    name: str
    config: Mapping[str, Any]
    is_pretrained: bool
    """Weights can be loaded: from the Hub under `name`, at `revision`, or from `folder`."""
    folder: str = ""
    """Where the config.json lies on this disk, by its whole path, with or without weights; "" where it does not."""
    revision: str = _MAIN
    note: str = ""
    """What the user should know about it: how old it is, or that it stands for another model."""
    safetensors_parameters: int | None = None
    """How many the Hub counts in the weights, where it does."""
    safetensors_dtype: str = ""
    """The dtype of most of them, such as BF16."""


def find_model(name: str, *, allow_paths: bool, revision: str | None = None) -> ModelSource:
    """Return the config.json of a model: from the catalogue, a local path, or the Hub.

    Args:
        name: catalogue name, Hub id, or path of a config.json or of the folder that holds one.
            `id@revision` names a revision too, and so does the address of the model's page.
        allow_paths: whether the file system may be read (never for a request from elsewhere).
        revision: branch, tag or commit of the Hub's repository; main where it is None.

    Raises:
        ModelNotFoundError: or one of its children; each hint says what to do.
        InvalidInputError: the name can be neither an id nor a path.
    """
    name = _id_of_address(name)
    model_id = name
    if revision is None:
        model_id, at, named = name.partition("@")
        revision = named if at else _MAIN
    record = _shipped(model_id) if revision == _MAIN else None
    if record:
        return record
    if allow_paths and _is_path(name):
        return _from_disk(name)
    meant = _called(model_id) if revision == _MAIN else None
    if meant and "/" not in model_id:
        return _planned_as(model_id, meant, repr(model_id))
    if not _is_id(model_id):
        raise _not_an_id(name)
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise InvalidInputError(
            f"{revision[:80]!r} is not a revision",
            hint="name a branch, a tag or a commit; the default is main",
            field="model",
        )
    try:
        return _from_hub(Repository(model_id, revision))
    except ModelNotFoundError as error:
        if meant is None:
            raise
        return _planned_as(model_id, meant, f"{error.message}; it")


def _planned_as(asked: str, meant: ModelSource, subject: str) -> ModelSource:
    """Return the model that was asked for, of which one that ships has the architecture and sizes."""
    name = weights_called(asked, meant.name)
    sizes = "" if name == meant.name else f", with the architecture and sizes of {meant.name}"
    return replace(meant, name=name, note=f"{subject} is planned as {name}{sizes}")


def _called(name: str) -> ModelSource | None:
    """Return the model that ships and is called so, however it is written."""
    meant = model_called(name)
    return _shipped(meant) if meant else None


def _id_of_address(name: str) -> str:
    """Return the id that a page of the Hub is of, huggingface.co/id[/tree/revision], or that stands in quotes."""
    if name[:1] in _QUOTES and name[:1] == name[-1:]:
        name = name[1:-1]
    try:
        address = urlsplit(name if "://" in name else f"https://{name}")
    except ValueError:
        return name
    if address.scheme not in {"http", "https"} or (address.hostname or "") not in _SITES:
        return name
    path = address.path.strip("/")
    model_id, _, rest = path.partition("/tree/") if "/tree/" in path else path.partition("/blob/")
    revision = rest.removesuffix("/config.json") if rest else ""
    return f"{model_id}@{revision}" if revision else model_id


def parse_config(text: str, where: str) -> dict[str, Any]:
    """Return the object that a config.json holds.

    Raises:
        InvalidInputError: it is too large, not JSON, or not an object.
    """
    if len(text) > LARGEST_CONFIG_BYTES:
        raise InvalidInputError(f"{where} is larger than 1 MiB", field="model")
    try:
        # Not as strict as requests are read: published files have Infinity in them.
        config = json.loads(text, parse_int=read_whole)
    except ValueError as error:
        raise InvalidInputError(f"{where} is not JSON: {error}", field="model") from None
    except RecursionError:
        raise InvalidInputError(f"{where} is nested too deeply", field="model") from None
    if not isinstance(config, dict):
        raise InvalidInputError(f"{where} holds no JSON object", field="model")
    return config


def _shipped(name: str) -> ModelSource | None:
    record = records.model(name) if len(name) <= _LONGEST_ID else None
    if record is None:
        return None
    return ModelSource(name=record.id, config=record.config, is_pretrained=True)


def _is_id(name: str) -> bool:
    if ".." in name or "--" in name or name.endswith(".git"):
        return False
    return bool(_HUB_ID.fullmatch(name))


def _not_an_id(name: str) -> InvalidInputError:
    near = nearest_models(name)
    known = (
        f"did you mean {' or '.join(near)}?" if near else "`planner models` lists the known ones"
    )
    return InvalidInputError(
        f"{name[:80]!r} is not a model id",
        hint=f"an id reads organisation/name; {known}",
        field="model",
    )


def _is_path(name: str) -> bool:
    if name.startswith((".", "/", "~")) or name.endswith(".json"):
        return "\0" not in name
    with suppress(OSError):
        return bool(name) and Path(name).is_dir()
    return False


def _from_disk(name: str) -> ModelSource:
    config = _read_path(Path(name))
    path = Path(name).expanduser()
    folder = path.parent if path.name == "config.json" else path
    has_weights = any((folder / weights).is_file() for weights in _WEIGHTS)
    return ModelSource(
        name=name,
        config=config,
        is_pretrained=has_weights,
        folder=str(folder.absolute()) if folder.is_dir() else "",
    )


def _read_path(path: Path) -> dict[str, Any]:
    """Read at most the largest config, so that no device and no growing file can hold us."""
    try:
        path = path.expanduser()
        path = path / "config.json" if path.is_dir() else path
        with open_file(path) as file:
            content = file.read(LARGEST_CONFIG_BYTES + 1)
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        raise ModelNotFoundError(
            f"cannot read {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}",
            hint="give the path of a config.json, or of the folder that holds it",
            field="model",
        ) from None
    return _parse(content, repr(str(path)))


def _parse(content: bytes, where: str) -> dict[str, Any]:
    if len(content) > LARGEST_CONFIG_BYTES:
        raise InvalidInputError(f"{where} is larger than 1 MiB", field="model")
    return parse_config(decode_text(content, where, hint="a config.json", field="model"), where)


def _from_hub(repository: Repository) -> ModelSource:
    entry, note = _entry(repository)
    if entry.config is not None:
        return _source(repository, entry, entry.config, note)
    about = f"{repository.name!r} {entry.kind}"
    notes = f"{note}; {about}" if note else about
    shipped = _shipped(entry.base)
    if shipped:
        return replace(shipped, note=f"{notes}: this is its base model {shipped.name!r}")
    base = repository.sibling(entry.base)
    try:
        base_entry, note = _entry(base)
    except ModelNotFoundError as error:
        raise type(error)(f"{about}, and {error.message}", error.hint, error.field) from None
    if base_entry.config is None:
        raise ModelNotFoundError(
            f"{about}, and its base model {base.name!r} {base_entry.kind} too",
            hint="give the id of the model that both were made from",
            field="model",
        )
    source = _source(base, base_entry, base_entry.config, note)
    notes = f"{notes}: this is its base model {base.name!r}"
    return replace(source, note=f"{notes}; {source.note}" if source.note else notes)


def _source(
    repository: Repository, entry: CachedConfig, config: Mapping[str, Any], note: str
) -> ModelSource:
    notes = [note, _custom_code(repository.name, config)]
    return ModelSource(
        name=repository.name,
        config=config,
        is_pretrained=True,
        revision=repository.revision,
        note="; ".join(text for text in notes if text),
        safetensors_parameters=entry.safetensors_parameters,
        safetensors_dtype=entry.safetensors_dtype,
    )


def _custom_code(name: str, config: Mapping[str, Any]) -> str:
    model_type = config.get("model_type")
    is_known = isinstance(model_type, str) and model_type in records.model_types()
    if "auto_map" not in config or is_known:
        return ""
    return (
        f"{name!r} ships its own code (auto_map), which the planner never runs;"
        " if it cannot be planned, try a model of a known architecture and the same sizes"
    )


def _entry(repository: Repository) -> tuple[CachedConfig, str]:
    """Return what is known about a repository, and a note where that may be out of date."""
    place = (repository.endpoint, repository.name, repository.revision)
    cached = None if repository.token else hub_cache.read(*place)
    if cached and cached.is_fresh:
        return cached, ""
    repository.require_client()
    try:
        entry = _ask(repository, cached)
    except HubUnreachableError:
        if cached:
            day = datetime.fromtimestamp(cached.checked_at, UTC).date()
            return cached, f"the Hub did not answer: {repository.name!r} is shown as of {day}"
        copy = None if repository.token else repository.copy_of_client()
        if copy is None:
            raise
        entry = CachedConfig(config=_read_path(copy), checked_at=0)
        return entry, f"the Hub did not answer: {repository.name!r} is shown as last downloaded"
    if not repository.token:
        hub_cache.write(*place, entry)
    return entry, ""


def _ask(repository: Repository, cached: CachedConfig | None) -> CachedConfig:
    now = time.time()
    try:
        if cached and repository.is_unchanged("config.json", cached.etag):
            return replace(cached, checked_at=now)
        file = repository.fetch("config.json")
    except FileMissingError as error:
        return _made_from(repository, error)
    config = _parse(file.content, f"config.json of {repository.name!r}")
    weights = repository.weights()
    return CachedConfig(
        config=config,
        etag=file.etag,
        safetensors_parameters=weights.parameters if weights else None,
        safetensors_dtype=weights.dtype if weights else "",
        checked_at=now,
    )


def _made_from(repository: Repository, missing: FileMissingError) -> CachedConfig:
    with suppress(FileMissingError):
        file = repository.fetch("adapter_config.json")
        where = f"adapter_config.json of {repository.name!r}"
        adapter = _parse(file.content, where)
        kind = "is a LoRA adapter" if adapter.get("peft_type") == "LORA" else "is an adapter"
        return _based_on(repository, kind, adapter.get("base_model_name_or_path"))
    files, tags = repository.files_and_tags()
    kinds = _kinds(files)
    if any(file.endswith(".gguf") for file in files):
        bases = [tag.rpartition(":")[2] for tag in tags if tag.startswith(_BASE_TAG)]
        kind = f"has no config.json, only GGUF weights ({kinds})"
        return _based_on(repository, kind, bases[0] if bases else None)
    raise ModelNotFoundError(
        missing.message + (f", only {kinds}" if kinds else ""),
        hint="is it a model of another library? Plan for its base model, or give a config.json",
        field="model",
    )


def _based_on(repository: Repository, kind: str, base: object) -> CachedConfig:
    if isinstance(base, str) and _is_id(base) and base != repository.name:
        return CachedConfig(base=base, kind=kind, checked_at=time.time())
    raise ModelNotFoundError(
        f"{repository.name!r} {kind}, and names no base model on the Hub",
        hint="plan for the model that it was made from: give its id",
        field="model",
    )


def _kinds(files: tuple[str, ...]) -> str:
    """Say which kinds of files there are, the most frequent first, such as "3 .gguf, 1 .md"."""
    counts = Counter(Path(file).suffix[:20] or "other" for file in files)
    return ", ".join(f"{count} {suffix}" for suffix, count in counts.most_common(6))
