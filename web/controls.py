"""The form: a control for every field of a request that has a label, one per query parameter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from planner.catalog import records
from planner.catalog.fields import FieldsetWords
from planner.catalog.fields import fieldsets as fieldsets_in_words
from planner.domain.strategy import PipelineSchedule
from planner.report.layout_words import FAMILY_NAMES
from planner.request.files import ALL, launcher_names
from planner.request.schema import fields
from planner.request.wire import Asked
from planner.targets import JUDGES

EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "GPT-2 on 4 GPUs": {"model": "gpt2", "gpus_per_node": "4"},
    "Llama-2-7b on 8 A100": {
        "model": "meta-llama/Llama-2-7b-hf",
        "gpu": "a100-sxm-80gb",
        "gpus_per_node": "8",
    },
    "QLoRA of Llama-2-70b on 2 RTX 4090": {
        "model": "meta-llama/Llama-2-70b-hf",
        "gpu": "rtx-4090",
        "gpus_per_node": "2",
        "method": "qlora",
    },
    "Llama-3.1-70B on 4 nodes of 8 H100": {
        "model": "meta-llama/Llama-3.1-70B",
        "gpu": "h100-sxm-80gb",
        "gpus_per_node": "8",
        "nodes": "4",
        "framework": "megatron",
    },
}
"""Questions that show what can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One input of the form."""

    name: str
    label: str
    kind: str = "text"
    """`text`, `number`, `select` or `textarea`."""
    placeholder: str = ""
    """What an empty input means; of a select, the text of its empty option."""
    note: str = ""
    choices: Mapping[str, str] | None = None
    """Value to label: the options of a select, the suggestions of a text."""
    stands_for: str = ""
    """The value that holds where a select is left empty, which it does not list again."""
    is_required: bool = False
    columns: int = 4
    """Of the form's twelve, on a wide screen."""
    rows: int = 5
    """Of a text area."""
    pasted: str = ""
    """What may be pasted in place of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fieldset:
    """Inputs that belong together."""

    legend: str
    controls: tuple[Control, ...]


@cache
def fieldsets(*, are_folded: bool) -> tuple[Fieldset, ...]:
    """Return the fieldsets in sight, or those that are folded away, in reading order."""
    return tuple(
        Fieldset(legend=each.legend, controls=_controls(each))
        for each in fieldsets_in_words()
        if each.is_folded == are_folded
    )


@cache
def labels() -> Mapping[str, str]:
    """Return the label of each control by its name."""
    return {each.name: each.words.label for each in fields().values() if each.words.label}


def _controls(fieldset: FieldsetWords) -> tuple[Control, ...]:
    by_name = {each.name: each for each in fields().values()}
    return tuple(_control(by_name[name], fieldset.columns) for name in fieldset.inputs)


def _control(field: Asked, columns: int) -> Control:
    said, default = field.words, field.info.default
    placeholder = said.empty or ("" if field.info.is_required() else str(default))
    choices = _choices(field)
    unsaid = said.unsaid or _SWITCH.get(placeholder, placeholder)
    kind = said.kind or _kind(field)
    if kind == "select":
        choices = {value: label for value, label in choices.items() if value != unsaid}
    return Control(
        name=field.name,
        label=said.label,
        kind=kind,
        placeholder=placeholder,
        note=said.note,
        choices=choices or None,
        stands_for=unsaid if kind == "select" else "",
        is_required=field.info.is_required() and not said.pasted,
        columns=said.columns or columns,
        rows=_ROWS,
        pasted=said.pasted,
    )


_ROWS = 3
"""Of a file that is pasted: a form has more than that."""
_SWITCH = {"yes": "true", "no": "false"}


def _kind(field: Asked) -> str:
    if field.scalar is bool or (field.names and len(field.types) == 1):
        return "select"
    return "number" if field.scalar is int else "text"


def _choices(field: Asked) -> dict[str, str]:
    if not field.words.choices and field.scalar is bool:
        return {value: word for word, value in _SWITCH.items()}
    return choices_of(field.words.choices or field.names)


def choices_of(said: str | Iterable[str]) -> dict[str, str]:
    """Return value to label of choices that are listed, labelled, or named by where they come from."""
    names = _NAMED[said]() if isinstance(said, str) else said
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def _precisions() -> list[str]:
    frameworks = map(records.framework, records.framework_names())
    return list(dict.fromkeys(name for each in frameworks for name in each.precisions))


def _optimizers() -> list[str]:
    return list(records.framework(fields()["recipe.framework"].info.default).optimizers)


_NAMED: Mapping[str, Callable[[], Iterable[str]]] = {
    "models": records.model_ids,
    "gpus": records.gpu_names,
    "instances": records.instance_names,
    "links": records.link_names,
    "frameworks": records.framework_names,
    "precisions": _precisions,
    "optimizers": _optimizers,
    "families": lambda: FAMILY_NAMES,
    "schedules": PipelineSchedule.names,
    "targets": lambda: (*JUDGES, ALL),
    "launchers": lambda: (*launcher_names(), ALL),
}
"""Where choices come from, by what `data/request/fields.toml` calls them."""
