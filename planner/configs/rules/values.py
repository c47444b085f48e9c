"""Values of keys, held against what `data/configs` says that they may be; one function for each type of key."""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from planner.catalog.config_rules import TabledRule
from planner.catalog.configs import Key, keys_of
from planner.catalog.configs import tool as tools_record
from planner.configs.found import Found, Setting, Setup
from planner.configs.meaning import fsdp_version, is_of_sagemaker, short
from planner.configs.rules.base import Edit, Fault, off, on, removed, set_to

_WHOLE = re.compile(r"\s*[+-]?\d+(\.0*)?\s*")
"""A text that pydantic takes for a whole number."""
_LARGEST = 2**63
_LONG_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_SHOWN = 6
"""Names that are listed where none is near."""


def wrong_values(rule: TabledRule, setup: Setup) -> Iterator[Fault]:
    """Yield the keys whose value is none that they take, of the types that a rule is about."""
    for tool, types in rule.keys.items():
        for found in setup.of(tool):
            own = tools_record(found.tool).keys if found.tool else {}
            for name, key in {**keys_of(tool), **own}.items():
                setting = found.get(name)
                if setting is None or setting.key != name or key.type not in types:
                    continue
                fault = None if _is_unread(found, key) else _JUDGES[key.type](setting, key)
                if fault is not None:
                    yield fault


def _is_unread(found: Found, key: Key) -> bool:
    is_of_other = key.is_of_fsdp_1 and fsdp_version(found, "fsdp_config.") != 1
    return is_of_other or (key.type == "name" and is_of_sagemaker(found))


def _is_besides(setting: Setting, key: Key) -> bool:
    value = setting.value
    held = {
        "auto": setting.is_auto,
        "null": value is None,
        "nothing": not value,
        "number": setting.text.strip().isdigit(),
        "truth": isinstance(value, bool),
    }
    return setting.is_unread or any(held[each] for each in key.also)


def _section(setting: Setting, key: Key) -> Fault | None:
    if isinstance(setting.value, dict) or _is_besides(setting, key):
        return None
    example = key.example
    if "stage" in example and str(setting.whole) in {"0", "1", "2", "3"}:
        example = f'{{"stage": {setting.whole}}}'
    below = f"its keys below {setting.name}:, each in a line of its own"
    return Fault(
        at=setting,
        message=f"{setting.name} is a section, not {short(setting.value)}",
        hint=f'"{setting.name}": {example}' if example else below,
    )


def _stage(setting: Setting, key: Key) -> Fault | None:
    is_scalar = isinstance(setting.value, str | float) and not setting.is_auto
    if not is_scalar or setting.whole is not None:
        return None
    hint = f"{', '.join(key.names[:-1])} or {key.names[-1]}"
    return Fault(at=setting, message=f"stage {short(setting.value)} is no number", hint=hint)


def _samples(setting: Setting, _: Key) -> Fault | None:
    """Return what is wrong with a batch size: a text, or no count."""
    name, value, whole = setting.name, setting.value, setting.whole
    if setting.is_auto or isinstance(value, bool):
        return None
    if _is_absurd(value):
        return _absurd(setting, "a number of samples")
    if setting.number is not None and setting.number <= 0:
        message = f"{name} {short(value)} is not above 0"
        hint = 'a number, or "auto" where the Trainer or accelerate fills it in'
        return Fault(at=setting, message=message, hint=hint)
    if not isinstance(value, str):
        return None
    return Fault(
        at=setting,
        message=f"{name} is a text, and DeepSpeed compares it with a number",
        hint=f"{whole}, without quotes" if whole else "a number",
        edit=set_to(setting, str(whole)) if whole else None,
    )


def _elements(setting: Setting, key: Key) -> Fault | None:
    """Return what is wrong with a number of elements: a text of no whole number, or too few."""
    name, value, number, whole = setting.name, setting.value, setting.number, setting.whole
    if setting.is_auto or isinstance(value, bool):
        return None
    if _is_absurd(value):
        return _absurd(setting, "elements: 500000000")
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        return Fault(
            at=setting,
            message=f"{name} is the text {short(value)}, and no whole number",
            hint=f"{whole}" if whole is not None else "elements, as a number: 500000000",
            edit=set_to(setting, str(whole)) if whole is not None and whole > 0 else None,
        )
    if number != whole:
        return Fault(at=setting, message=f"{name} is no whole number", hint="such as 500000000")
    if number is None or number >= key.least:
        return None
    return Fault(
        at=setting,
        message=f"{name} {short(value)} is not {'above 0' if key.least else '0 or more'}",
        hint="elements: 500000000 by default" if "bucket" in name else "elements",
    )


def _is_absurd(value: object) -> bool:
    """Return whether a number is none (NaN), or larger than DeepSpeed's largest default, 2**63 - 1."""
    return isinstance(value, int | float) and not abs(value) < _LARGEST


def _absurd(setting: Setting, hint: str) -> Fault:
    said = short(setting.value).lower() if isinstance(setting.value, float) else "so large a number"
    return Fault(at=setting, message=f"{setting.name} cannot be {said}", hint=hint)


def _dtype(setting: Setting, key: Key) -> Fault | None:
    if not setting.text or setting.text.lower() in key.names:
        return None
    right = _LONG_DTYPES.get(setting.text.lower())
    return Fault(
        at=setting,
        message=f"{setting.name} {short(setting.value)} is none of {', '.join(key.names)}",
        hint=right or "leave it out: it follows the precision of the run",
        edit=_written(setting, right) if right else removed(setting),
    )


def _written(setting: Setting, value: str) -> Edit:
    return set_to(setting, f'"{value}"' if setting.file.endswith(".json") else value)


def _truth(setting: Setting, key: Key) -> Fault | None:
    if not setting.is_word or setting.truth is not None or setting.text.lower() in key.names:
        return None
    message = f"{setting.name} {short(setting.value)} is neither true nor false"
    return Fault(at=setting, message=message, hint=" or ".join((on(setting), off(setting))))


def _name(setting: Setting, key: Key) -> Fault | None:
    text, value, is_argument = setting.text.strip()[:60], setting.value, key.type == "argument"
    names = {each.upper(): each for each in key.names}
    is_exact, is_any = is_argument or key.is_exact, key.type == "device"
    is_name = is_any or isinstance(value, str) or (is_argument and isinstance(value, bool))
    is_known = text in key.names if is_exact else text.upper() in names
    if not is_name or not (text or is_any) or is_known or _is_besides(setting, key):
        return None
    near = [names[each] for each in get_close_matches(text.upper(), names, n=1, cutoff=0.7)]
    return Fault(
        at=setting,
        message=f"{setting.name} has no {short(value)}",
        hint='"no", in quotes: yaml reads a bare no as false'
        if value is False
        else ", ".join(near or key.names[:_SHOWN]),
        edit=_written(setting, near[0]) if near and not is_argument else None,
    )


_JUDGES: Mapping[str, Callable[[Setting, Key], Fault | None]] = MappingProxyType(
    {
        "section": _section,
        "stage": _stage,
        "samples": _samples,
        "elements": _elements,
        "device": _name,
        "dtype": _dtype,
        "argument": _name,
        "name": _name,
        "truth": _truth,
    }
)
