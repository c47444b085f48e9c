"""What pydantic refuses -> one problem per field, by its dotted path, with the field that was meant."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from planner.catalog.fields import words
from planner.catalog.spellings import unplanned
from planner.core.errors import MOST_PROBLEMS, InvalidInputError, Problem, did_you_mean
from planner.core.in_json import in_json
from planner.domain.dimensions import DIMENSIONS
from planner.request.amounts import AMOUNTS

Sections = Mapping[str, type[BaseModel]]
"""The schema of each object of a request, by its key; of the request itself under ""."""

SHORT_NAMES: Mapping[str, str] = {
    **{dimension.short_name: dimension.field for dimension in DIMENSIONS},
    "gpus": "gpus_per_node",
    "seq_len": "sequence_length",
    "batch_size": "global_batch_size",
    "zero": "zero_stage",
    "weights": "weights_dtype",
}
"""What people call a field of the contract."""
_NAMED_BY = {"strategy": "family", "cluster": "gpu"}
"""The field of an object for which people give its name alone."""
_BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_WHOLE, _NUMBER = "must be a whole number", "must be a number"
_LIKE = {_WHOLE: "8", _NUMBER: "0.5"}
"""A number like those that are wanted."""
_DIGITS = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,9})?")
_NEAR = 0.6
"""Of the few words that a field may have; "some" is not near "none"."""
_SAID: Mapping[str, str] = {
    "missing": "is missing",
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), "must be an object"),
    "list_type": "must be a list",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    "finite_number": _NUMBER,
    "greater_than": "must be more than {gt:,}",
    "greater_than_equal": "must be at least {ge:,}",
    "less_than": "must be less than {lt:,}",
    "less_than_equal": "must be at most {le:,}",
    "string_too_long": "must have at most {max_length:,} characters",
    "too_short": "must have {min_length:,} or more items",
    "too_long": "must have at most {max_length:,} items",
    "literal_error": "must be {expected}",
}
"""What is wrong with a field, by pydantic's name for it; its own words where it has another."""


def problems_of(error: ValidationError, sections: Sections) -> tuple[Problem, ...]:
    """Return what is wrong with a request, one problem per field, the first 20: unknown ones first, as others follow from them.

    Each branch of a union complains of the same value: the first says enough, and nothing where another
    branch found the fault further inside.
    """
    details = sorted(
        error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden"
    )
    problems = [_problem(detail, sections) for detail in details[:MOST_PROBLEMS]]
    of_fields = {problem.field: problem for problem in reversed(problems)}
    return tuple(
        problem
        for field, problem in reversed(of_fields.items())
        if not any(field and other.startswith(f"{field}.") for other in of_fields)
    )


def _problem(detail: Any, sections: Sections) -> Problem:
    *steps, last = [str(step) for step in detail["loc"]] or [""]
    is_unknown = detail["type"] == "extra_forbidden"
    # What is unknown is a key of the user's, whatever it looks like.
    path = [step for step in steps if not _is_branch(step)]
    path += [last] if is_unknown or not _is_branch(last) else []
    field = ".".join(path)
    if not is_unknown:
        shown = f", not {_shown(detail):.40}" if detail["type"] != "missing" else ""
        message = f"{field or 'the request'}: {what_is_wrong(detail)}{shown}"
        return Problem(field=field, message=message, hint=_hint(field, detail))
    hint = _nearest_field(last, path[-2] if len(path) > 1 else "", sections)
    return Problem(field=field, message=f"unknown field {field[:80]!r}", hint=hint)


def what_is_wrong(detail: Any) -> str:
    """Return what pydantic found of a field, in words that follow the field's name."""
    said = _SAID.get(detail["type"])
    return str(detail["msg"]) if said is None else said.format_map(detail.get("ctx", {}))


def _hint(field: str, detail: Any) -> str:
    """Return the value that was meant, or the object that a lone name stands for."""
    if detail["type"] == "literal_error":
        return unplanned(field, str(detail["input"])) or _nearest_value(field, detail)
    if _SAID.get(detail["type"]) in _LIKE:
        return _number_for(field, detail)
    if detail["type"] == "model_type" and isinstance(detail["input"], str) and field in _NAMED_BY:
        return f"such as {json.dumps({_NAMED_BY[field]: detail['input'][:40]})}"
    return ""


def _number_for(field: str, detail: Any) -> str:
    value, wanted = detail["input"], _SAID[detail["type"]]
    is_text = isinstance(value, str)
    for name, number in (_as_typed(field, value) if is_text else {_name(field): value}).items():
        if type(number) is float and number.is_integer():
            return _as_written(name, int(number), is_text=is_text)
        if is_text and (type(number) is int or wanted == _NUMBER):
            return _as_written(name, number, is_text=is_text)
    return f"such as {_LIKE[wanted]}"


def _as_written(name: str, number: float, *, is_text: bool) -> str:
    """Return a hint with a field as JSON has it; of an item of a list, the number alone."""
    shown = json.dumps(number if name.isdigit() else {name: number}).strip("{}")
    return f"{'without quotes' if is_text else 'a whole number'}: {shown}"


def _as_typed(field: str, text: str) -> dict[str, Any]:
    """Return what a terminal reads of a text for a field; nothing where it reads none."""
    name, said = _name(field), words().get(field)
    if _DIGITS.fullmatch(text):
        return {name: float(text) if "." in text else int(text)}
    if said is None or not said.reads:
        return {}
    try:
        found = AMOUNTS[said.reads](text)
    except InvalidInputError:
        return {}
    return found if isinstance(found, dict) else {name: found}


def _name(field: str) -> str:
    return field.rpartition(".")[2]


def _shown(detail: Any) -> str:
    value, is_bound = detail["input"], detail["type"] in _BOUNDS
    shown = in_json(value)
    return (
        f"{value:,}" if is_bound and type(value) is int and shown.lstrip("-").isdecimal() else shown
    )


def _nearest_value(field: str, detail: Any) -> str:
    """Return a hint with the value that was meant, of those that a field may have; all where none is near."""
    known = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
    text = str(detail["input"])[:40]
    (meant,) = _as_typed(field, text).values() or (text,)
    if meant in known:
        return f"did you mean {meant}?"
    return did_you_mean(text, known, nearness=_NEAR) or f"known: {', '.join(known)}"


_MOST_LISTED = 20
"""Names of a hint: more are not read."""


def _is_branch(step: str) -> bool:
    return step in {"str", "int"} or "[" in step or step[:1].isupper()


def _nearest_field(name: str, parent: str, sections: Sections) -> str:
    """Return a hint with the field that was meant: of this section, of another, or by its short name."""
    known = sections.get(parent, sections[""]).model_fields
    lower = name.lower().replace("-", "_")
    meant = SHORT_NAMES.get(lower, lower)
    if meant in known:
        return f"did you mean {meant}?"
    for section in ("cluster", "recipe", "strategy"):
        if meant in sections[section].model_fields:
            return f"did you mean {section}.{meant}?"
    first = ", ".join([*known][:_MOST_LISTED])
    rest = len(known) - _MOST_LISTED
    return did_you_mean(name, known) or f"known: {first}" + (
        f" and {rest} more" if rest > 0 else ""
    )
