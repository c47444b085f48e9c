"""Edits of faults -> the mended texts and their difference."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from planner.configs.recognise import recognise
from planner.configs.rules.base import Edit
from planner.core.errors import PlannerError

_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s,})#\\]+"
_ORDER = ("set", "rename", "remove")
"""A value is found by its name: the name changes last."""
_TREES = frozenset({".json", ".yaml", ".yml", ".toml", ".py"})


def mended(texts: Mapping[str, str], edits: Iterable[Edit]) -> dict[str, str]:
    """Return the texts with all edits that a single line takes; the others are left out."""
    lines = {file: text.split("\n") for file, text in texts.items()}
    done: set[tuple[str, int, str, str]] = set()
    for edit in sorted(edits, key=lambda each: (-each.setting.line, _ORDER.index(each.action))):
        setting = edit.setting
        place = (setting.file, setting.line, setting.key, edit.action)
        if place in done or setting.file not in lines:
            continue
        done.add(place)
        _apply(lines[setting.file], edit)
    return {file: "\n".join(each) for file, each in lines.items()}


def patch(texts: Mapping[str, str], edits: Iterable[Edit]) -> str:
    """Return a unified difference that mends what a change of a line mends; "" for none.

    Each change is made to a copy first, which is read again: it may change its own setting alone.
    """
    after = mended(texts, [each for each in edits if _is_read_so(texts, each)])
    parts = (
        difflib.unified_diff(
            text.splitlines(keepends=True),
            after[file].splitlines(keepends=True),
            file,
            file,
            n=1,
        )
        for file, text in texts.items()
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for part in parts for line in part)


def _is_read_so(texts: Mapping[str, str], edit: Edit) -> bool:
    """Return whether a changed file is read as before but for what was to change."""
    file, setting = edit.setting.file, edit.setting
    after = mended({file: texts[file]}, [edit])[file] if file in texts else ""
    try:
        old, new = _values(texts[file], file), _values(after, file)
    except (PlannerError, KeyError):
        return False
    own = {setting.name, edit.value if edit.action == "rename" else setting.name}
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    is_alone = all(key[1].rpartition(".")[2] in own for key in changed)
    wanted = edit.value.strip("\"'").lower()
    is_set = edit.action != "set" or any(str(new.get(key)).lower() == wanted for key in changed)
    return bool(changed) and is_alone and (is_set or setting.value is True)


def _values(text: str, file: str) -> dict[tuple[int, str], object]:
    """Return what a file says, by its parts and the tool's own keys."""
    return {
        (number, each.key): each.value
        for number, found in enumerate(recognise(text, file))
        for each in found.settings.values()
        if not isinstance(each.value, dict) and each.key != "script"
    }


def _apply(lines: list[str], edit: Edit) -> None:
    at = edit.setting.line - 1
    if not 0 <= at < len(lines):
        return
    is_command = PurePath(edit.setting.file).suffix.lower() not in _TREES
    name = re.escape(edit.setting.name).replace("_", "[-_]" if is_command else "_")
    start = r"(?<=--)" if is_command else r"(?<![\w-])"
    line = lines[at]
    is_switch = is_command and edit.setting.value is True
    if edit.action == "remove" or (edit.action == "set" and is_switch):
        _remove(lines, at, name, is_command=is_command)
    elif edit.action == "rename":
        lines[at] = _once(rf"{start}{name}(?=[\"'\s:=]|$)", edit.value, line)
    else:
        pattern = rf"{start}({name}[\"']?(?:\s*[:=]\s*|\s+))({_VALUE})"
        found = re.findall(pattern, line)
        if len(found) == 1:
            lines[at] = re.sub(
                pattern, lambda match: match[1] + _quoted(match[2], edit.value), line
            )


def _once(pattern: str, new: str, line: str) -> str:
    """Return a line with the only match replaced; as it was where there are several."""
    return re.sub(pattern, lambda _: new, line) if len(re.findall(pattern, line)) == 1 else line


def _quoted(old: str, new: str) -> str:
    is_plain = re.fullmatch(r"-?\d+(\.\d+)?|true|false|True|False", new) is not None
    if old[0] in "\"'" and new[0] not in "\"'" and not is_plain:
        return f"{old[0]}{new}{old[0]}"
    return new


def _remove(lines: list[str], at: int, name: str, *, is_command: bool) -> None:
    line = lines[at]
    if is_command:
        lines[at] = re.sub(rf"\s--{name}(?:[= ](?!-)({_VALUE}))?(?=\s|$)", "", line)
        return
    alone = re.fullmatch(rf"\s*[\"']?{name}[\"']?\s*[:=]\s*({_VALUE})\s*(,?)\s*(?:#.*)?", line)
    if alone is None:
        return
    del lines[at]
    is_last = not alone[2] and at < len(lines) and lines[at].lstrip()[:1] == "}"
    if is_last and at > 0:
        lines[at - 1] = lines[at - 1].rstrip().removesuffix(",")
