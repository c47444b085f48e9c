"""A file -> what it configures: read by its ending, told apart by the keys that only one tool has."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import BinaryIO

import yaml

from planner.catalog.configs import Sign, known_keys, signs, trainer_fields
from planner.configs.found import DEEPSPEED, TRAINER, Found
from planner.configs.launch import read_launches
from planner.configs.manifests import is_manifest, read_manifest
from planner.configs.python_calls import read_python
from planner.configs.tools import in_our_words, trainers_tool
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
        elif suffix in {".yaml", ".yml"} and is_manifest(text):
            found = read_manifest(text, file)
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
    tree = Tree("")
    for key in data:
        tree.add(key, {}, 1)
    return _sign(tree, ".json") is not None


_FSDP = "fsdp_config"
"""A file that TrainingArguments' field of that name points to."""
_OF_TRAINER = Sign(title="TrainingArguments", keys=(), kind=TRAINER, tool=TRAINER)
_OF_FSDP = Sign(title="TrainingArguments", keys=(), kind=_FSDP)


def _sign(tree: Tree, suffix: str) -> Sign | None:
    """Return the tool whose keys these are; None for none's."""
    told = (sign for sign in signs() if suffix in sign.suffixes and _is_met(sign, tree))
    return next(told, None) or (None if suffix == ".toml" else _of_fields(tree))


def _is_met(sign: Sign, tree: Tree) -> bool:
    is_there = all(key in tree.settings for key in sign.keys)
    return is_there and (
        not sign.like or re.fullmatch(sign.like, tree.settings[sign.keys[0]].text) is not None
    )


def _of_fields(tree: Tree) -> Sign | None:
    top = frozenset(key for key in tree.settings if "." not in key)
    fields = trainer_fields().names
    if len(top & fields) >= _FEWEST or "per_device_train_batch_size" in top:
        return replace(_OF_TRAINER, tool=trainers_tool(top))
    sections = known_keys("accelerate").sections["fsdp_config"]
    return _OF_FSDP if top & {*sections, "transformer_layer_cls_to_wrap"} else None


def _of_tree(tree: Tree, suffix: str) -> tuple[Found, ...]:
    sign = _sign(tree, suffix)
    if sign is None:
        return ()
    if sign.kind == _FSDP:
        inner = Tree(tree.file)
        for key, each in tree.settings.items():
            inner.add(f"{_FSDP}.{key}", each.value, each.line)
        inner.repeated = tree.repeated
        return (inner.found(TRAINER, is_whole=False),)
    found = tree.found(sign.kind or sign.title)
    if sign.tool:
        found = in_our_words(found, sign.tool)
    has_deepspeed = found.kind == TRAINER and any(
        key.startswith("deepspeed.") for key in tree.settings
    )
    return (
        (found, in_our_words(found.inside("deepspeed", DEEPSPEED), DEEPSPEED))
        if has_deepspeed
        else (found,)
    )
