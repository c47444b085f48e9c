"""The query string of a page <-> a request of the wire contract."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode

from planner.core.errors import (
    MOST_PROBLEMS,
    InvalidInputError,
    InvalidRequestError,
    Problem,
    did_you_mean,
)
from planner.core.strict_json import parse_json
from planner.hardware.mixed_gpus import is_list
from planner.machine.reading import AGAIN
from planner.report.command import SECTIONS, goal_words, section_words
from planner.report.flags import flag_words
from planner.request.family import family_fields
from planner.request.field_problems import SHORT_NAMES
from planner.request.schema import Request, fields, parse_request
from planner.request.typed import read_each, unless_wrong
from planner.request.wire import Asked, nested
from planner.request.wish import read_wish
from web.packed import LONG, is_json, packed, unpacked

_FIELDS: dict[str, Asked] = {
    each.name: each
    for path, each in fields().items()
    if each.words.label or path in {"recipe.packed", "strategy.zero_stage"}
}
_FIELDS["family"] = _FIELDS["strategy"]
"""A query parameter is the last part of a field's name, which the contract does not repeat, of adapters both parts."""
_PARAMETERS: Mapping[str, str] = {each.path: name for name, each in _FIELDS.items()} | {
    "recipe.lora": "lora_rank",
    "recipe.global_batch_tokens": "global_batch_size",
    "strategy": "strategy",
    "strategy.family": "strategy",
    "strategy.zero_stage": "strategy",
}
"""The parameter that sets a field."""
_WEIGHED = ("gpus_per_node", "optimizer", "attention", "framework", "compile", "loss")
"""What is assumed aloud, or left open, where nobody says it."""
BESIDE = ("vs", "planner")
"""Parameters of a page that are no part of its question."""
_WHOLE = "paste the whole config.json, with null in place of NaN and Infinity"
_FEW = 20
"""Parameters that a hint can list."""
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3}){1,5}")
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a query string asks: the text as typed, and the request that it means."""

    values: Mapping[str, str]
    """Query parameters that are not empty."""
    payload: Mapping[str, Any]
    """The body of the same question over REST."""
    request: Request
    versus: str = ""
    """The question that its plan is to be compared with: whole, or what it says otherwise."""
    made_by: str = ""
    """The planner's version that made the link, where it says so."""

    @property
    def query(self) -> str:
        """Return the shortest query string that asks the same."""
        return urlencode(packed(self.short))

    @property
    def short(self) -> dict[str, str]:
        """Return the parameters without those that say what holds unsaid."""
        return {name: text for name, text in self.values.items() if not _goes_unsaid(name, text)}


def form_values(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters that are not empty, unpacked; of a repeated one, the last."""
    said = ((name, unpacked(text)) if name in LONG else (name, text) for name, text in query)
    texts = {name: text.replace("\r\n", "\n") for name, text in said if text.strip()}
    return {
        name: text.strip("\n") if name == "topology" else text.strip()
        for name, text in texts.items()
    }


def read_question(query: Iterable[tuple[str, str]]) -> Question:
    """Return the question that a query string asks; empty parameters mean nothing.

    Raises:
        InvalidRequestError: with every parameter that is unknown, else every one that is wrong.
    """
    values = form_values(query)
    versus, made_by = (values.pop(name, "") for name in BESIDE)
    unknown = [name for name in values if name not in _known()]
    if unknown:
        raise InvalidRequestError(unknown_parameters(unknown, _known()))
    found, wrong = read_each(partial(_read, name, text) for name, text in values.items())
    # A model that cannot be read is not missing too.
    payload = nested({"model": "", **found} if "model" in values else found)
    request = unless_wrong(lambda: parse_request(payload), wrong)
    if request.recipe.precision is not None:
        values["precision"] = request.recipe.precision
    return Question(values=values, payload=payload, request=request, versus=versus, made_by=made_by)


def _read(name: str, text: str) -> dict[str, Any]:
    field = _FIELDS[name]
    if name == "strategy":
        family_fields(text)
    if name in _READ:
        return {field.path: _READ[name](text)}
    value = _value(text, field)
    return field.typed(_ungrouped(text)) if isinstance(value, str) else {field.path: value}


def _goes_unsaid(name: str, text: str) -> bool:
    field = _FIELDS.get(name)
    if field is None or field.path.startswith("strategy.") or name in _WEIGHED:
        return False
    return field.info.default is not None and _value(text, field) == field.info.default


def control_of(field: str) -> str:
    """Return the query parameter that sets a field of the contract, or an empty string.

    Of what is assumed of the recipe together, the first.
    """
    if field == "recipe":
        return "precision"
    if field in _known():
        return field
    while field and field not in _PARAMETERS:
        field = field.rpartition(".")[0]
    return _PARAMETERS.get(field, "")


def command_line(question: Question, gpu: str, gpus_per_node: int) -> str:
    """Return the command that asks the same; what was pasted is read from files.

    Args:
        question: what was asked.
        gpu: named even where neither question nor machine does, as a terminal would look for local ones.
        gpus_per_node: likewise.
    """
    payload = question.payload
    said = payload.get("cluster", {})
    assumed = {} if "machine" in payload else {"gpu": gpu, "gpus_per_node": gpus_per_node}
    if "topology" in said or is_list(said.get("gpu", "")):
        assumed.pop("gpus_per_node", None)  # it says how many; the plan may be on fewer
    cluster = {**assumed, **said}
    if "topology" in cluster:
        cluster["topology"] = "topology.txt"
    model = payload["model"]
    words = ["planner", "suggest", model if isinstance(model, str) else "config.json"]
    for section in SECTIONS:
        words += section_words(section, {**payload, "cluster": cluster}.get(section, {}))
    words += goal_words(payload)
    if "why" in payload:
        words += flag_words("why", value=question.values["why"])
    if "machine" in payload:
        words += flag_words("machine", value="machine.json")
    return shlex.join(words)


@cache
def _known() -> frozenset[str]:
    return frozenset(_FIELDS)


def is_known(name: str) -> bool:
    """Return whether a plan's page has a parameter."""
    return name in _known() or name in BESIDE


def unknown_parameters(names: Sequence[str], known: Collection[str]) -> tuple[Problem, ...]:
    """Return what to say of parameters that a page does not have, the first of many: which are near, or all of few."""
    every = f"known: {', '.join(sorted(known))}" if len(known) <= _FEW else ""
    return tuple(
        Problem(
            field=name[:80],
            message=f"unknown field {name[:80]!r}",
            hint=_near(name, known) or every,
        )
        for name in names[:MOST_PROBLEMS]
    )


def _near(name: str, known: Collection[str]) -> str:
    """Return which parameter was meant: by what people call it, or by its letters."""
    short = SHORT_NAMES.get(name.lower().replace("-", "_"), "")
    return f"did you mean {short}?" if short in known else did_you_mean(name, known)


def _wish(text: str) -> object:
    try:
        return read_wish(text)
    except InvalidInputError as error:
        problem = Problem(field="why", message=f"why: {error.message}", hint=error.hint)
        raise InvalidRequestError((problem,)) from None


def _ungrouped(text: str) -> str:
    """Return 1024 for 1,024, as the pages themselves write it; any other text as it is."""
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


def _machine(text: str) -> object:
    return _object("machine", text, AGAIN)


def _model(text: str) -> object:
    """Return a model's name as it is, and of a pasted config.json what it holds."""
    return _object("model", text, _WHOLE) if is_json(text) else text


def _object(name: str, text: str, hint: str) -> dict[str, Any]:
    """Return what a pasted file holds; one that is no JSON is refused where it stands."""
    said = "no JSON object"
    try:
        found = parse_json(text)
        if isinstance(found, dict):
            return found
    except ValueError as error:
        said = f"not JSON: {str(error)[:200]}"
    raise InvalidRequestError((Problem(field=name, message=f"{name}: {said}", hint=hint),))


def _value(text: str, field: Asked) -> object:
    """Return the JSON value that a text means; what cannot be read stays text, to be refused."""
    digits = _ungrouped(text)
    if int in field.types and _WHOLE_NUMBER.fullmatch(digits):
        return int(digits)
    if float in field.types and _NUMBER.fullmatch(text):
        return float(text)
    if bool in field.types:
        return {"true": True, "false": False}.get(text.lower(), text)
    return text if field.read else field.plain(text)


_READ: Mapping[str, Callable[[str], object]] = {
    "why": _wish,
    "machine": _machine,
    "model": _model,
}
"""How a parameter is read that is neither a number nor a name."""
