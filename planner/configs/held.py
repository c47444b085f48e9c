"""Whether settings hold what a record of `data/configs` looks for."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from planner.catalog.config_rules import Held
from planner.configs.found import Found, Setting


def held_in(
    get: Callable[..., Setting | None], found: Found, held: Held, *, or_may: bool = False
) -> Setting | None:
    """Return the setting that is looked for; None where none holds what it is to.

    Args:
        get: returns the first of these settings that is there.
        found: the file.
        held: what is looked for.
        or_may: whether one whose value only the run knows is returned, too: it may hold that.
    """
    setting = get(*held.keys)
    if setting is not None and setting.is_unread and not _is_of_presence(held):
        return setting if or_may and not held.is_seen else None
    if held.default is not None and (setting is None or setting.whole is None):
        setting = Setting(key=held.keys[0], value=held.default, line=0, file=found.file)
    if setting is not None and held.is_own and setting.key not in held.keys:
        return None
    if setting is not None and held.word:
        words = setting.value if isinstance(setting.value, list) else setting.text.split()
        word = next((str(each) for each in words if re.fullmatch(held.word, str(each))), None)
        setting = None if word is None else replace(setting, value=word)
    return setting if setting is not None and _holds(setting, held) else None


def _is_of_presence(held: Held) -> bool:
    """Return whether a setting is looked for whatever it holds."""
    return held == Held(keys=held.keys, of=held.of, is_each=held.is_each, is_own=held.is_own)


def _holds(setting: Setting, held: Held) -> bool:
    whole, text = setting.whole, setting.text
    if held.number not in {None, whole}:
        return False
    if held.least is not None and (whole is None or whole < held.least):
        return False
    if held.most is not None and (whole is None or whole > held.most):
        return False
    is_like = not held.like or re.fullmatch(held.like, text, re.DOTALL) is not None
    is_unlike = not held.unlike or re.fullmatch(held.unlike, text) is None
    return is_like and is_unlike and _STATES[held.state](setting)


_STATES: Mapping[str, Callable[[Setting], bool]] = MappingProxyType(
    {
        "there": lambda _: True,
        "said": lambda setting: setting.value is not None,
        "filled": lambda setting: setting.value not in (None, ""),
        "given": lambda setting: bool(setting.value),
        "auto": lambda setting: setting.is_auto,
        "truth": lambda setting: isinstance(setting.value, bool),
        "on": lambda setting: setting.truth is True,
        "off": lambda setting: setting.truth is False,
        "not off": lambda setting: setting.truth is not False,
    }
)
