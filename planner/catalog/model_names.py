"""What people call a model -> the model that ships: by family, version and size, in any common way of writing them."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache
from math import log2
from typing import Any

from planner.catalog.records import model, model_ids, read
from planner.core.frozen import frozen

_LONGEST = 120
_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w. -]*", re.ASCII)
_ASIDE = re.compile(r"\b(?:patch\d+(?:-window\d+)?(?:-\d{3})?|bf16|fp16|a\d+(?:\.\d+)?[bm])\b")
"""Patches and windows of vision, a dtype, active parameters of a mixture: they follow from the rest."""
_PIECE = re.compile(
    r"(?P<size>(?:\d+x)?\d+(?:\.\d+)?[bm]\d?(?![a-z0-9]))|(?P<context>\d+k(?![a-z0-9]))"
    r"|(?P<number>\d+)|(?P<word>[a-z]+)"
)
_DATE = 1000
"""From which a number is a date, such as 2407: a version may leave it out."""
_SAME_SIZE = 0.05
_SIZES = (
    *(
        "model_type",
        "hidden_size",
        "n_embd",
        "d_model",
        "num_hidden_layers",
        "n_layer",
        "num_layers",
        "depths",
    ),
    *(
        "intermediate_size",
        "d_ff",
        "num_attention_heads",
        "n_head",
        "num_key_value_heads",
        "num_local_experts",
    ),
    "text_config",
)
"""Keys of a config that say how large a model is, by any family's name."""
_ALIKE = 0.6
"""Of the letters of two families, from which one may be meant for the other."""


@frozen
class _Named:
    """The parts of a name."""

    family: str
    version: tuple[int, ...]
    sizes: tuple[str, ...]
    details: frozenset[str]
    """Words and numbers that may be left out."""
    contexts: tuple[str, ...]


def model_called(text: str) -> str | None:
    """Return the id of the one model that ships and is called so; None where that is not certain.

    Of an owner who has none of them it never is: a model of yours may be changed and still be called so.
    """
    wanted, owner = _parts(text), text.strip().lower().rpartition("/")[0]
    if wanted is None or owner not in {
        "",
        *(name.lower().partition("/")[0] for name in model_ids()),
    }:
        return None
    for found in _by_precision(wanted):
        if len({str(_sizes_of(_config(each))) for each in found}) == 1:
            return min(found, key=lambda each: _rank(wanted, each))
        if found:
            return None
    return None


def weights_called(text: str, found: str) -> str:
    """Return the id whose weights are meant by a name: of the model that has its sizes, or a sibling's as it was written.

    Args:
        text: what the model was called.
        found: the id of the model that ships and has its sizes.
    """
    wanted = _parts(text)
    said = wanted.details & {*read("models", "names")["weights"]} if wanted else frozenset()
    if said <= _known()[found].details:
        return found
    return text if "/" in text else f"{found.partition('/')[0]}/{'-'.join(text.split())}"


def nearest_models(text: str, most: int = 3) -> list[str]:
    """Return the ids of the models that ship whose names are nearest, by family, then version, then size."""
    wanted = _parts(text)
    if wanted is None:
        return []
    scores = {name: _likeness(wanted, parts) for name, parts in _known().items()}
    near = [name for name in scores if scores[name] > 0]
    spelt = {name: SequenceMatcher(None, text.lower(), name.lower()).ratio() for name in near}
    return sorted(near, key=lambda name: (-scores[name] - spelt[name] / 8, name))[:most]


def _by_precision(wanted: _Named) -> Iterable[list[str]]:
    """Yield what has the name as it is; then in any version, then in any size, where it names none."""
    family = {
        name: parts
        for name, parts in _known().items()
        if parts.family == wanted.family and _agree(wanted.contexts, parts.contexts)
    }
    sized = [name for name, parts in family.items() if _same_sizes(wanted.sizes, parts.sizes)]
    yield [name for name in sized if family[name].version == wanted.version]
    if not wanted.version:
        yield sized
    if not wanted.sizes:
        yield [name for name in family if wanted.version in {(), family[name].version}]


def _rank(wanted: _Named, name: str) -> tuple[Any, ...]:
    parts = _known()[name]
    newest = tuple(-number for number in parts.version)
    return len(wanted.details ^ parts.details), newest, len(name)


def _likeness(wanted: _Named, parts: _Named) -> float:
    family = SequenceMatcher(None, wanted.family, parts.family).ratio()
    if family < _ALIKE:
        return 0.0
    version = (wanted.version == parts.version) + (wanted.version[:1] == parts.version[:1])
    apart = 3.0
    if wanted.sizes and parts.sizes:
        apart = min(apart, abs(log2(_number(wanted.sizes[0]) / _number(parts.sizes[0]))))
    return 4 * family + version / 4 - apart / 6


def _agree(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return not one or not other or one == other


def _same_sizes(wanted: tuple[str, ...], known: tuple[str, ...]) -> bool:
    if len(wanted) != len(known):
        return False
    pairs = list(zip(wanted, known, strict=True))
    experts = all(("x" in one) == ("x" in other) for one, other in pairs)
    return experts and all(abs(_number(o) / _number(k) - 1) < _SAME_SIZE for o, k in pairs)


def _number(size: str) -> float:
    """Return the parameters that 7b, 1b1 or 8x7b say; at least one."""
    experts, _, each = size.rpartition("x")
    amount, unit, tenths = re.split(r"([bm])", each)
    scale = 1e9 if unit == "b" else 1e6
    return max(1.0, float(experts or 1) * float(f"{amount}.{tenths}" if tenths else amount) * scale)


@cache
def _known() -> Mapping[str, _Named]:
    parts = {name: _parts(name) for name in model_ids()}
    return {name: found for name, found in parts.items() if found}


def _parts(text: str) -> _Named | None:
    """Return the parts of a name, without its owner; None of what is no name."""
    text = text.strip()
    if len(text) > _LONGEST or not _NAME.fullmatch(text):
        return None
    name = _ASIDE.sub("", re.sub(r"[\s_]+", "-", text.rpartition("/")[2].lower()))
    unsaid = set(read("models", "names")["unsaid"])
    found = {kind: [m[0] for m in _PIECE.finditer(name) if m.lastgroup == kind] for kind in _KINDS}
    words = [re.sub(r"^v$", "", word) for word in found["word"]]
    numbers = [int(number) for number in found["number"]]
    family = "".join(word for word in words if word not in unsaid)
    return _Named(
        family=re.sub(r"v$", "", family) if numbers else family,
        version=tuple(number for number in numbers if number < _DATE),
        sizes=tuple(found["size"]),
        details=frozenset(unsaid & {*words}) | {str(each) for each in numbers if each >= _DATE},
        contexts=tuple(found["context"]),
    )


_KINDS = ("size", "context", "number", "word")


def _config(name: str) -> Mapping[str, Any]:
    record = model(name)
    return record.config if record else {}


def _sizes_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes two models of one architecture the same size."""
    return {
        key: _sizes_of(value) if isinstance(value := config.get(key), Mapping) else value
        for key in _SIZES
    }
