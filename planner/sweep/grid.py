"""A sweep's file -> its requests: every combination of a grid's values, and a list of more."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError, PlannerError, did_you_mean
from planner.core.files import decode_text, read_limited
from planner.core.frozen import frozen
from planner.core.strict_json import parse_json
from planner.request.schema import parse_request

LARGEST_FILE_BYTES = 2**20
MOST_REQUESTS = 10_000_000
_DEEPEST = 20
"""Tables and lists within each other; a request has four."""
_SECTIONS = ("base", "grid", "list")
_SHORT_NAMES = {
    "instance": "cluster.instance",
    "gpu": "cluster.gpu",
    "gpus": "cluster.gpus_per_node",
    "nodes": "cluster.nodes",
    "batch": "recipe.global_batch_size",
    "sequence_length": "recipe.sequence_length",
    "method": "recipe.method",
    "framework": "recipe.framework",
    "precision": "recipe.precision",
}
"""What may stand for the path of a request's field."""

Fields = Mapping[str, Any]
"""Values by their path in a request, such as cluster.nodes."""


@frozen
class Sweep:
    """Requests, in an order that only the file decides: the last axis turns fastest, then the list."""

    base: Fields
    """What every request has, unless it says otherwise."""
    axes: Mapping[str, tuple[Any, ...]]
    listed: tuple[Fields, ...]

    def __len__(self) -> int:
        """Return how many requests there are."""
        return (prod(map(len, self.axes.values())) if self.axes else 0) + len(self.listed)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the requests, made one at a time."""
        combined = product(*self.axes.values()) if self.axes else ()
        turned = (dict(zip(self.axes, values, strict=True)) for values in combined)
        return (_request({**self.base, **fields}) for fields in chain(turned, self.listed))


def read_sweep(file: Path) -> Sweep:
    """Return the sweep that a YAML or JSON file describes.

    Raises:
        InvalidInputError: it cannot be read, or a value of it can be in no request; each value is
            looked at once, and not in every combination.
    """
    document = _parse(_text(file), file)
    if not isinstance(document, dict) or not document.keys() & {"grid", "list"}:
        raise InvalidInputError(
            f"{file} has neither a grid nor a list of requests",
            hint="for example: grid: {model: [gpt2], gpu: [a100, h100], gpus: [8], nodes: [1, 2]}",
            field="grid",
        )
    for name in document:
        if name not in _SECTIONS:
            hint = did_you_mean(name, _SECTIONS) or f"known: {', '.join(_SECTIONS)}"
            raise InvalidInputError(f"unknown section {name[:60]!r}", hint=hint, field=name[:60])
    sweep = Sweep(
        base=_fields(document.get("base", {}), "base"),
        axes=_axes(document.get("grid", {})),
        listed=tuple(
            _fields(each, f"list[{index}]")
            for index, each in enumerate(_list(document.get("list", []), "list"))
        ),
    )
    _check(sweep, file)
    return sweep


def _text(file: Path) -> str:
    hint = "a sweep in yaml or JSON"
    raw = read_limited(file, str(file), LARGEST_FILE_BYTES, hint=hint, field="SWEEP")
    return decode_text(raw, str(file), hint=hint, field="SWEEP")


def _parse(text: str, file: Path) -> Any:
    """Return what the file holds, if JSON has it too: no date, no key that is a number."""
    try:
        is_json = file.suffix == ".json"
        document = parse_json(text) if is_json else _from_yaml(text)
        if json.loads(json.dumps(document, allow_nan=False)) != document:
            raise InvalidInputError(
                f"{file} has a key that is not a text", hint="put it in quotes", field="SWEEP"
            )
    except (ValueError, TypeError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InvalidInputError(
            f"{file} cannot be read: {said}",
            hint="texts, numbers, lists and tables; a date goes into quotes",
            field="SWEEP",
        ) from None
    return document


def _from_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise InvalidInputError(
            "a sweep in YAML needs PyYAML",
            hint="pip install 'trainplan[sweep]', or write it as a .json file",
            field="SWEEP",
        ) from None
    try:
        depth = 0
        for event in yaml.parse(text):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:  # the parser takes the square of the depth
                raise ValueError("nested too deeply")
            if isinstance(event, yaml.AliasEvent):  # it may name itself, or multiply what it names
                raise InvalidInputError(
                    "aliases are not read", hint="what all share goes under base", field="SWEEP"
                )
        _check_nodes(yaml.compose(text, yaml.SafeLoader))
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None


def _check_nodes(node: Any) -> None:
    """Refuse a YAML document, without aliases, of which a mapping has a name twice."""
    if node is None or isinstance(node.value, str):
        return
    is_mapping = node.id == "mapping"
    if is_mapping:
        _check_names(key.value for key, _ in node.value if isinstance(key.value, str))
    for each in chain.from_iterable(node.value) if is_mapping else node.value:
        _check_nodes(each)


def _check_names(names: Iterable[str]) -> None:
    """Refuse a name that is given twice: a parser would drop one without a word."""
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise InvalidInputError(
            f"{repeated[:80]!r} is given twice", hint="give each name once", field="SWEEP"
        )


def _axes(grid: object) -> dict[str, tuple[Any, ...]]:
    axes: dict[str, tuple[Any, ...]] = {}
    for path, value in _fields(grid, "grid").items():
        axes[path] = tuple(value) if isinstance(value, list) else (value,)
        if not axes[path]:
            raise InvalidInputError(f"grid.{path} has no values", field=f"grid.{path}")
    return axes


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInputError(f"{where} is not a list", field=where)
    return value


def _fields(
    table: object, where: str, short_names: Mapping[str, str] = _SHORT_NAMES
) -> dict[str, Any]:
    """Return a table's values by their whole paths; tables within it are opened."""
    if not isinstance(table, dict):
        raise InvalidInputError(f"{where} is not a table of fields", field=where)
    found: dict[str, Any] = {}
    for name, value in table.items():
        path = short_names.get(name, name)
        inner = _fields(value, f"{where}.{name}", {}) if isinstance(value, dict) else {"": value}
        for rest, each in inner.items():
            whole = f"{path}.{rest}" if rest else path
            if whole in found:
                raise InvalidInputError(f"{where} says {whole} twice", field=f"{where}.{name}")
            found[whole] = each
    return found


def _request(fields: Fields) -> dict[str, Any]:
    request: dict[str, Any] = {}
    for path, value in fields.items():
        *sections, name = path.split(".")
        table = request
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise InvalidInputError(f"{section} is a value and a table", field=path)
        table[name] = value
    return request


def _check(sweep: Sweep, file: Path) -> None:
    """Refuse a sweep without or with too many requests, or with a value that no request can have."""
    if not 0 < len(sweep) <= MOST_REQUESTS:
        raise InvalidInputError(
            f"the sweep has {len(sweep):,} requests", hint=f"1 to {MOST_REQUESTS:,}", field="grid"
        )
    first = {path: values[0] for path, values in sweep.axes.items()}
    turned = ({path: value} for path, values in sweep.axes.items() for value in values)
    for fields in chain(({**first, **each} for each in turned), sweep.listed):
        try:
            parse_request(_request({**sweep.base, **fields}))
        except PlannerError as error:
            place = "" if error.field in error.message else f" ({error.field})"
            said = f"{file}: {error.message}{place}"
            # No flag set it: the field is the file that did.
            raise InvalidInputError(said, error.hint, "SWEEP") from None
