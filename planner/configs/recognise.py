"""A file -> what it configures: read by its ending, told apart by the keys that only one tool has."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import BinaryIO

import yaml

from planner.catalog.configs import known_keys, trainer_fields
from planner.configs.found import ACCELERATE, DEEPSPEED, TORCHTITAN, TRAINER, Found
from planner.configs.launch import read_launches
from planner.configs.python_calls import read_python
from planner.configs.tree import Tree, read_json_tree, read_toml_tree, read_yaml_tree
from planner.core.errors import InvalidInputError
from planner.core.files import decode_text, read_limited

LARGEST_FILE = 2**18
"""Bytes of a configuration or a script that are read: a hundred times the usual."""
KNOWN = "ds_config.json, accelerate's yaml, TrainingArguments (.json, .yaml, .py), a command line (.sh), torchtitan's .toml"
_TREES = {
    ".json": read_json_tree,
    ".yaml": read_yaml_tree,
    ".yml": read_yaml_tree,
    ".toml": read_toml_tree,
}
SUFFIXES = frozenset({*_TREES, ".py", ".sh", ".bash", ".slurm", ".sbatch"})
_DEEPSPEED_ALONE = frozenset(
    {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"}
)
_ACCELERATE_ALONE = frozenset({"distributed_type", "compute_environment"})
_FEWEST = 2
"""Keys of TrainingArguments in a file of them."""


def read_text(source: Path | BinaryIO, file: str) -> str:
    """Return the text of a file.

    Raises:
        InvalidInputError: it cannot be read, is too large, or is no text.
    """
    hint = f"give a configuration: {KNOWN}"
    raw = read_limited(source, file, LARGEST_FILE, hint=hint, field="FILE")
    return decode_text(raw, file, hint=KNOWN, field="FILE").replace("\r\n", "\n")


def recognise(text: str, file: str) -> tuple[Found, ...]:
    """Return what a file configures, by its name's ending; a text without one is a command line.

    Raises:
        InvalidInputError: it cannot be parsed, or configures nothing that is known here.
    """
    suffix = PurePath(file).suffix.lower()
    try:
        if suffix == ".py":
            found = read_python(text, file)
        elif suffix in _TREES:
            found = _of_tree(_TREES[suffix](text, file), suffix)
        else:
            found = read_launches(text, file)
    except (ValueError, SyntaxError, RecursionError, MemoryError, yaml.YAMLError) as error:
        raise InvalidInputError(
            f"{file} cannot be read: {_reason(error)}", hint=KNOWN, field="FILE"
        ) from None
    if not found:
        raise InvalidInputError(
            f"{file} configures nothing that is known here", hint=f"known: {KNOWN}", field="FILE"
        )
    return found


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, SyntaxError) and error.lineno:
        return f"line {error.lineno}: {error.msg}"
    return " ".join(str(error).split())[:200]


def is_configuration(data: Mapping[str, object]) -> bool:
    """Return whether a JSON object is another tool's configuration."""
    return bool(_kind(frozenset(data)))


def _kind(keys: frozenset[str]) -> str:
    """Return the tool whose keys these are; "" for none's."""
    if keys & _ACCELERATE_ALONE:
        return ACCELERATE
    if keys & _DEEPSPEED_ALONE:
        return DEEPSPEED
    if len(keys & trainer_fields().names) >= _FEWEST or "per_device_train_batch_size" in keys:
        return TRAINER
    sections = known_keys("accelerate").sections["fsdp_config"]
    if keys & {*sections, "transformer_layer_cls_to_wrap"}:
        return _FSDP
    return ""


_FSDP = "fsdp_config"
"""A file that TrainingArguments' field of that name points to."""


def _of_tree(tree: Tree, suffix: str) -> tuple[Found, ...]:
    top = frozenset(key for key in tree.settings if "." not in key)
    if suffix == ".toml":
        kind = TORCHTITAN if top & {"parallelism", "training"} else ""
    else:
        kind = _kind(top)
    if not kind:
        return ()
    if kind == _FSDP:
        inner = Tree(tree.file)
        for key, each in tree.settings.items():
            inner.add(f"{_FSDP}.{key}", each.value, each.line)
        inner.repeated = tree.repeated
        return (inner.found(TRAINER, is_whole=False),)
    found = tree.found(kind)
    has_deepspeed = kind == TRAINER and any(key.startswith("deepspeed.") for key in tree.settings)
    return (found, found.inside("deepspeed", DEEPSPEED)) if has_deepspeed else (found,)
