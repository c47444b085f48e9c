"""What stands beside the settings of a run: files that they name, and what its scripts do."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from planner.configs.found import Setting, Setup
from planner.configs.meaning import named_files
from planner.configs.recognise import SUFFIXES
from planner.doctor.scripts.rules import look_at
from planner.gate.facts import one_line
from planner.gate.limits import Check

_KNOWN = frozenset({"DOC027"})
"""What a rule of configurations says of the same line: CFG059."""


def of_scripts(texts: Mapping[str, str]) -> Iterator[Check]:
    """Yield what the doctor finds in a script beyond its settings: there it is an error, where here it may be meant."""
    for file, text in texts.items():
        for each in look_at(text.encode(errors="replace"), file) if file.endswith(".py") else ():
            if each.level != "advice" and each.code not in _KNOWN:
                yield Check(
                    code=each.code,
                    name=each.name,
                    level="warning",
                    message=one_line(each.message),
                    hint=one_line(each.fix),
                    line=each.line,
                    file=file,
                )


def not_among(named: Setting, *, may_look: bool) -> str:
    """Return that the file which says the ZeRO stage was not given, or is not there at all."""
    name = "" if named.text.startswith("--") else one_line(named.text)
    what = "is not among the files: give it too"
    if name and may_look and not _is_there(name, named.file):
        what = "is not there"
    whose = {"config_file": "accelerate's file", "config": "the configuration"}
    file = f"{whose.get(named.key, 'the DeepSpeed configuration')} {name}".strip()
    return f"not estimated: {file} that {named.file} names in line {named.line} {what}"


def not_there(setup: Setup, said: Sequence[str]) -> Iterator[str]:
    """Yield the files that others name and that are not there: what they say is not judged."""
    for named in named_files(setup):
        name = one_line(named.text)
        is_file = Path(name).suffix in SUFFIXES and not any(name in note for note in said)
        if is_file and not _is_there(name, named.file):
            yield f"{name}, which {named.file} names in line {named.line}, is not there: it is not judged"


def _is_there(name: str, beside: str) -> bool:
    try:
        return any((folder / name).exists() for folder in (Path(), Path(beside).parent))
    except (OSError, ValueError):
        return False
