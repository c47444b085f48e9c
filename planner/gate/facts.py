"""What of a plan is compared and judged: read from an answer's JSON, which anybody may have written."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from dataclasses import fields as fields_of_record
from itertools import chain
from types import MappingProxyType
from typing import Any

from planner.answers.shapes import ClusterAnswer, NamedRecipe
from planner.answers.whole_step import whole_step
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_seconds,
)
from planner.domain.job import Lora
from planner.request.schema import fields as request_fields

Value = str | float | bool
"""What a fact is: words, an amount in base units, a yes or no."""

LONGEST_TEXT = 300
"""Characters of a text out of a file that are kept."""
_MOST_TEXTS = 100
_LARGEST = 1e30
_WHOLE_FROM = 100
"""Amounts from here on are shown without a fraction."""
NONE = "-"
"""What stands where nothing was said."""


@frozen
class Field:
    """One fact: where an answer has it, and how a reader is told."""

    path: str
    """Of keys; `job.` is the plan's, all else is of its chosen layout."""
    label: str
    shown: Callable[[Any], str] = str
    """How an amount is written."""


def _number(amount: float) -> str:
    is_whole = amount % 1 == 0 or amount >= _WHOLE_FROM
    return f"{amount:,.0f}" if is_whole else f"{amount:.3g}"


_yes_or_no: Callable[[Any], str] = {True: "yes", False: "no"}.__getitem__
_SHOWN = {bool: _yes_or_no, int: _number, float: _number}
_ANSWERED = {
    *(f"cluster.{name}" for name in ClusterAnswer.__annotations__),
    *(f"recipe.{each.name}" for each in fields_of_record(NamedRecipe)),
    *(f"recipe.lora.{each.name}" for each in fields_of_record(Lora)),
}
_OTHERWISE = {
    *("id", "model", "why", "machine", "cluster.gpu", "cluster.nodes", "cluster.instance"),
    *("cluster.intra_node", "cluster.inter_node", "strategy.family", "strategy.data_parallel_size"),
}
"""Fields of a request that have a line of their own below, or are none of a run."""
_GENERATED = {"num_generations", "max_completion_length", "mean_completion_length", "beta"}
"""Those that an answer has with what GRPO generates."""


def _asked(section: str) -> Iterator[Field]:
    """Yield a fact for each field of a request: of the answer where that has it, else of what was asked."""
    for path, each in request_fields().items():
        if path.rpartition(".")[0].partition(".")[0] != section or path in _OTHERWISE:
            continue
        said = each.words.label or each.name.replace("_", " ")
        label = said[:1].lower() + said[1:] if said.partition(" ")[0][1:].islower() else said
        place = "" if section == "strategy" else "job." if path in _ANSWERED else "request."
        if each.name in _GENERATED:
            place = "job.recipe.rollout."
        kinds = [type(name) for name in each.names] or each.types
        written = next((_SHOWN[kind] for kind in kinds if kind in _SHOWN), str)
        at = each.name if each.name in _GENERATED else path
        yield Field(path=f"{place}{at}", label=label, shown=written)


_OF_REQUESTS = tuple(chain(*map(_asked, ("cluster", "recipe", ""))))
_OF_LAYOUTS = tuple(_asked("strategy"))

FIELDS = (
    Field(path="model.name", label="model"),
    Field(path="model.parameters", label="parameters", shown=format_count),
    Field(path="job.cluster.gpu", label="GPU"),
    Field(path="job.cluster.world_size", label="GPUs", shown=_number),
    Field(path="job.cluster.nodes", label="nodes", shown=_number),
    Field(path="job.cluster.instance", label="instance"),
    Field(path="job.cluster.intra_node.name", label="link within a node"),
    Field(path="job.cluster.inter_node.name", label="network"),
    *_OF_REQUESTS,
    Field(path="family", label="strategy"),
    *_OF_LAYOUTS,
    Field(path="rollout.mode", label="vLLM"),
    Field(path="rollout.generation_gpus", label="GPUs that generate", shown=_number),
    Field(path="rollout.engines", label="engines", shown=_number),
    Field(path="rollout.tensor_parallel_size", label="GPUs of an engine", shown=_number),
    Field(
        path="rollout.gpu_memory_utilization", label="vLLM's share of a card", shown=format_percent
    ),
    Field(path="rollout.sequences_at_once", label="completions at once", shown=_number),
    Field(path="fits", label="fits", shown=_yes_or_no),
    Field(path="memory.reserved_bytes", label="memory per GPU", shown=format_bytes),
    Field(path="memory.usable_bytes", label="memory that a GPU has", shown=format_bytes),
    Field(path="host_memory_bytes", label="host memory per node", shown=format_bytes),
    Field(path="time.step_seconds", label="step", shown=format_seconds),
    Field(path="tokens_per_second_per_gpu", label="tokens/s per GPU", shown=_number),
    Field(path="model_flops_utilization", label="MFU", shown=format_percent),
    Field(path="training.seconds", label="whole run", shown=format_duration),
    Field(path="training.gpu_hours", label="GPU-hours", shown=_number),
    Field(path="training.usd", label="cost", shown="${:,.2f}".format),
)

BY_PATH: Mapping[str, Field] = MappingProxyType({each.path: each for each in FIELDS})

MUST = ("family", "fits", "memory.reserved_bytes", "memory.usable_bytes", "time.step_seconds")
"""Without these an object is no answer."""
FROM_TABLE = frozenset(each.path for each in (*_OF_REQUESTS, *_OF_LAYOUTS))
"""Fields of a request: told apart where both sides have them, as an older lock has fewer."""
_LISTS: Mapping[str, tuple[type, str]] = {
    "strategy.recompute_modules": (str, "a list of names"),
    "strategy.pipeline_layout": (int, "a list of whole numbers"),
    "job.recipe.lora.targets": (str, "a list of names"),
}
_WANTED: Mapping[Any, str] = {str: "text", _yes_or_no: "true or false"}


@frozen
class Noted:
    """A finding that the plan itself has."""

    code: str
    severity: str
    message: str


@frozen
class Facts:
    """A plan or an estimate, as far as it is compared and judged."""

    values: Mapping[str, Value]
    """By the path of their field; what the answer does not have is left out."""
    targets: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    findings: tuple[Noted, ...] = field(default=())

    def amount(self, path: str) -> float | None:
        """Return an amount in base units; None where the answer has none."""
        value = self.values.get(path)
        return float(value) if isinstance(value, int | float) else None

    def text(self, path: str) -> str:
        """Return a value as a reader is shown it; "" where the answer has none."""
        return shown(path, self.values[path]) if path in self.values else ""

    @property
    def title(self) -> str:
        """Return what is trained, on what, and how."""
        gpus = f" on {self.text('job.cluster.world_size')} x {self.text('job.cluster.gpu')}"
        place = gpus if "job.cluster.gpu" in self.values else ""
        return f"{self.text('model.name') or 'a model'}{place} with {self.text('family')}"


def shown(path: str, value: Value) -> str:
    """Return the value of a field as a reader is shown it."""
    return value if isinstance(value, str) else BY_PATH[path].shown(value)


def read_facts(answer: Mapping[str, Any], request: Mapping[str, Any] | None = None) -> Facts:
    """Return the facts of a plan's or an estimate's JSON, and of what was asked, where that is known.

    Raises:
        InvalidInputError: it has not the fields of one, or one of another type.
    """
    chosen = answer.get("chosen")
    layout = chosen if isinstance(chosen, Mapping) else answer
    rollout = answer.get("rollout")
    if isinstance(rollout, Mapping):
        alone = {"rollout": rollout, "model_flops_utilization": None}
        layout = {**layout, **alone, **whole_step({**answer, "chosen": layout})}
    values: dict[str, Value] = {}
    whole = {**layout, "job": answer.get("job"), "request": request}
    for path in BY_PATH:
        value = _at(whole, path)
        if value is not None and value != []:
            values[path] = _checked(path, value)
        elif path in FROM_TABLE and (
            (request and path[:8] == "request.") or _at(whole, path, NONE) != NONE
        ):
            values[path] = NONE
    for path in MUST:
        if path not in values:
            raise InvalidInputError(
                f"the plan has no {path}",
                hint="give what `planner suggest --json` or `estimate --json` printed, whole",
                field="FILE",
            )
    return Facts(
        values=values,
        targets=_texts(_at(answer, "launch.targets"), lambda each: each),
        assumptions=_texts(answer.get("assumptions"), lambda each: _key(each, "text")),
        findings=_findings(answer.get("findings")),
    )


def one_line(text: str) -> str:
    """Return a text on one line, without what a terminal or a log would obey."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * LONGEST_TEXT])
    words = " ".join(plain.split())
    return words if len(words) <= LONGEST_TEXT else f"{words[: LONGEST_TEXT - 3]}..."


def _at(value: Any, path: str, absent: Any = None) -> Any:
    for key in path.split("."):
        value = _key(value, key, absent)
    return value


def _key(value: Any, key: str, absent: Any = None) -> Any:
    return value.get(key, absent) if isinstance(value, Mapping) else absent


def _checked(path: str, value: Any) -> Value:
    written, (kind, wanted) = BY_PATH[path].shown, _LISTS.get(path, (None, ""))
    if kind and isinstance(value, list | tuple) and all(type(each) is kind for each in value):
        return one_line(", ".join(map(str, value)))
    if written is str and isinstance(value, str) and not kind:
        return one_line(value)
    if written is _yes_or_no and isinstance(value, bool):
        return value
    is_amount = written not in {str, _yes_or_no} and type(value) in {int, float}
    if is_amount and 0 <= value <= _LARGEST and math.isfinite(value):
        return float(value) if isinstance(value, float) else int(value)
    raise _wrong(path, value, wanted or _WANTED.get(written, "a number that is not negative"))


def _wrong(path: str, value: Any, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is {one_line(repr(value)[:60])}, not {wanted}",
        hint="give what `planner suggest --json` or `estimate --json` printed, unchanged",
        field="FILE",
    )


def _texts(values: Any, take: Callable[[Any], Any]) -> tuple[str, ...]:
    found = (take(each) for each in values[:_MOST_TEXTS]) if isinstance(values, list) else ()
    return tuple(one_line(each) for each in found if isinstance(each, str))


def _findings(values: Any) -> tuple[Noted, ...]:
    found = []
    for each in values[:_MOST_TEXTS] if isinstance(values, list) else ():
        code, severity, message = (_key(each, key) for key in ("code", "severity", "message"))
        if isinstance(code, str) and isinstance(message, str):
            noted = Noted(
                code=one_line(code), severity=one_line(str(severity)), message=one_line(message)
            )
            found.append(noted)
    return tuple(found)
