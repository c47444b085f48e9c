"""What of a plan is compared and judged: read from an answer's JSON, which anybody may have written."""

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_seconds,
)
from planner.domain.dimensions import DIMENSIONS

Value = str | float | bool
"""What a fact is: words, an amount in base units, a yes or no."""

LONGEST_TEXT = 300
"""Characters of a text out of a file that are kept."""
_MOST_TEXTS = 100
_LARGEST = 1e30
_WHOLE_FROM = 100
"""Amounts from here on are shown without a fraction."""


@frozen
class Field:
    """One fact: where an answer has it, and how a reader is told."""

    path: str
    """Of keys; `job.` is the plan's, all else is of its chosen layout."""
    label: str
    shown: Callable[[Any], str] = str
    """How an amount is written."""


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _number(amount: float) -> str:
    is_whole = amount % 1 == 0 or amount >= _WHOLE_FROM
    return f"{amount:,.0f}" if is_whole else f"{amount:.3g}"


_STRATEGY = (
    ("data_parallel_replicate_size", "replicas"),
    ("data_parallel_shard_size", "shards"),
    *((each.field, f"{each.name} parallel") for each in DIMENSIONS),
    ("expert_tensor_parallel_size", "expert tensor parallel"),
    ("sequence_parallel", "sequence parallel"),
    ("pipeline_schedule", "pipeline schedule"),
    ("virtual_pipeline_size", "chunks per stage"),
    ("pipeline_layout", "blocks of each stage"),
    ("zero_stage", "ZeRO stage"),
    ("micro_batch_size", "micro-batch"),
    ("gradient_accumulation_steps", "accumulation steps"),
    ("recompute", "recompute"),
    ("recompute_layers", "recomputed layers"),
    ("recompute_modules", "recomputed modules"),
    ("activation_offload_layers", "layers with offloaded activations"),
    ("offload", "offload"),
    ("synchronize_every", "steps between averages"),
)

FIELDS = (
    Field(path="model.name", label="model"),
    Field(path="model.parameters", label="parameters", shown=format_count),
    Field(path="job.cluster.gpu", label="GPU"),
    Field(path="job.cluster.world_size", label="GPUs", shown=_number),
    Field(path="job.cluster.nodes", label="nodes", shown=_number),
    Field(path="job.cluster.instance", label="instance"),
    Field(path="job.cluster.intra_node.name", label="link within a node"),
    Field(path="job.cluster.inter_node.name", label="network"),
    Field(path="job.recipe.framework", label="framework"),
    Field(path="job.recipe.precision", label="precision"),
    Field(path="job.recipe.optimizer", label="optimizer"),
    Field(path="job.recipe.attention", label="attention"),
    Field(path="job.recipe.loss", label="loss"),
    Field(path="job.recipe.lora.rank", label="rank of adapters", shown=_number),
    Field(path="job.recipe.sequence_length", label="sequence length", shown=_number),
    Field(path="job.recipe.global_batch_size", label="global batch", shown=_number),
    Field(path="job.recipe.training_tokens", label="tokens of the run", shown=format_count),
    Field(path="family", label="strategy"),
    *(Field(path=f"strategy.{key}", label=label, shown=_number) for key, label in _STRATEGY),
    Field(path="fits", label="fits"),
    Field(path="memory.reserved_bytes", label="memory per GPU", shown=format_bytes),
    Field(path="memory.usable_bytes", label="memory that a GPU has", shown=format_bytes),
    Field(path="host_memory_bytes", label="host memory per node", shown=format_bytes),
    Field(path="time.step_seconds", label="step", shown=format_seconds),
    Field(path="tokens_per_second_per_gpu", label="tokens/s per GPU", shown=_number),
    Field(path="model_flops_utilization", label="MFU", shown=format_percent),
    Field(path="training.seconds", label="whole run", shown=format_duration),
    Field(path="training.gpu_hours", label="GPU-hours", shown=_number),
    Field(path="training.usd", label="cost", shown=_dollars),
)

BY_PATH: Mapping[str, Field] = MappingProxyType({each.path: each for each in FIELDS})

MUST = ("family", "fits", "memory.reserved_bytes", "memory.usable_bytes", "time.step_seconds")
"""Without these an object is no answer."""
_YES_OR_NO = ("fits", "strategy.sequence_parallel")
_LISTS: Mapping[str, tuple[type, str]] = {
    "strategy.recompute_modules": (str, "names"),
    "strategy.pipeline_layout": (int, "whole numbers"),
}
_WORDS = (
    *(each.path for each in FIELDS if each.shown is str and each.path not in _YES_OR_NO),
    "strategy.pipeline_schedule",
    "strategy.recompute",
    "strategy.offload",
)


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
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else BY_PATH[path].shown(value)


def read_facts(answer: Mapping[str, Any]) -> Facts:
    """Return the facts of a plan's or an estimate's JSON.

    Raises:
        InvalidInputError: it has not the fields of one, or one of another type.
    """
    chosen = answer.get("chosen")
    layout = chosen if isinstance(chosen, Mapping) else answer
    values: dict[str, Value] = {}
    for each in FIELDS:
        value = _at(answer if each.path.startswith("job.") else layout, each.path)
        if value is not None and value != []:
            values[each.path] = _checked(each.path, value)
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


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = _key(value, key)
    return value


def _key(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _checked(path: str, value: Any) -> Value:
    if path in _YES_OR_NO:
        if isinstance(value, bool):
            return value
        raise _wrong(path, value, "true or false")
    if path in _LISTS:
        kind, named = _LISTS[path]
        if isinstance(value, list) and all(type(each) is kind for each in value):
            return one_line(", ".join(map(str, value)))
        raise _wrong(path, value, f"a list of {named}")
    if path in _WORDS:
        if isinstance(value, str):
            return one_line(value)
        raise _wrong(path, value, "text")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= _LARGEST and math.isfinite(value):
        return float(value) if isinstance(value, float) else int(value)
    raise _wrong(path, value, "a number that is not negative")


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
