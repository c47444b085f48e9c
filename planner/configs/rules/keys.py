"""Rules about the keys themselves: unknown, gone, given twice."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice

from planner.catalog.configs import known_keys, launchers, tool, trainer_fields
from planner.configs.found import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCH,
    TORCHTITAN,
    TRAINER,
    UNKNOWN,
    Found,
    Setting,
    Setup,
)
from planner.configs.meaning import is_of_others, is_of_sagemaker
from planner.configs.rules.base import ERROR, WARNING, Fault, removed, renamed
from planner.configs.tools import word_here

_MOST = 30
"""Unknown keys of a section that are looked up: after these it is no slip."""
_NEAR = 0.87
"""How alike two keys are of which one is a slip of the other."""


def key_is_not_known(setup: Setup) -> Iterator[Fault]:
    """A key is refused: the tool has none of that name."""
    keys = known_keys("deepspeed")
    for found in setup.of(DEEPSPEED):
        for section in keys.sections.keys() - {"top"}:
            known = (*keys.sections[section], *keys.others)
            yield from _strange(found.section(section), known, f"of {section}")
    top = known_keys("accelerate").sections["top"]
    for found in setup.of(ACCELERATE):
        if not is_of_sagemaker(found):
            yield from _strange(found.section(""), top, "of accelerate's file")
    for found in setup.of(TRAINER):
        called = found.get("class")
        if called is not None and called.text == "TrainingArguments":
            known = (*trainer_fields().ever, "class")
            yield from _strange(found.section(""), known, "of TrainingArguments")
        elif called is not None and found.tool == _TRL:
            yield from _slips(found.section(""), {*tool(_TRL).known, *trainer_fields().ever})


_TRL = "trl"
_REFUSES = "llamafactory"
"""Whose parser ends at a key that it does not know."""


def _of_trainer(setup: Setup) -> Iterator[Found]:
    return (found for found in setup.of(TRAINER) if not is_of_others(found))


def _strange(settings: Iterable[Setting], known: Iterable[str], of: str) -> Iterator[Fault]:
    names = frozenset(known)
    strange = (each for each in settings if each.name not in names)
    for setting in islice(strange, _MOST):
        name = setting.name[:60]
        near = get_close_matches(name, sorted(names - {"class"}), n=1, cutoff=0.6)
        hint = f"{near[0]}?" if near else "leave it out"
        yield Fault(at=setting, message=f"{name} is no key {of}", hint=hint)


def key_is_ignored(setup: Setup) -> Iterator[Fault]:
    """A key is ignored: the tool has none of that name, but one that is almost the same."""
    keys = known_keys("deepspeed")
    for found in setup.of(DEEPSPEED):
        gone = (name for name in keys.removed if "." not in name)
        yield from _slips(found.section(""), (*keys.sections["top"], *gone))
    keys = known_keys("accelerate")
    for found in setup.of(ACCELERATE):
        for section, names in keys.sections.items():
            short = [name.removeprefix(f"{section.partition('_config')[0]}_") for name in names]
            own = found.section(section) if section != "top" else ()
            yield from _slips(own, (*names, *short, *keys.others))
    for found in setup.of(TORCHTITAN):
        for section, names in known_keys("torchtitan").sections.items():
            yield from _slips(found.section(section), names)
    for found in setup.of(TRAINER):
        if found.get("class") is None and (found.is_whole or not found.is_command):
            yield from _of_arguments(found)
    for found in setup.of(LAUNCH):
        launcher = launchers().get(str(found.settings["launcher"].value))
        if launcher is not None:
            flags = (*launcher.values, *launcher.switches)
            known = {flag.lstrip("-").replace("-", "_") for flag in flags}
            yield from _slips(found.section(""), known | _NO_FLAGS)


def _of_arguments(found: Found) -> Iterator[Fault]:
    """Yield slips of a Trainer's arguments, and words of another tool; LLaMA-Factory refuses both."""
    fields, own = trainer_fields(), tool(found.tool).known if found.tool else frozenset()
    known = own if is_of_others(found) else {*own, *fields.ever, *fields.others}
    level = ERROR if found.tool == _REFUSES else None
    yield from (replace(each, level=level) for each in _slips(found.section(""), known))
    for setting in found.section("") if found.tool not in {"", TRAINER} else ():
        word = "" if setting.name in known else word_here(setting.name, found.tool)
        if word:
            message = f"{tool(found.tool).title} knows no {setting.name}"
            yield Fault(at=setting, message=message, hint=f"here it is {word}", level=level)


_NO_FLAGS = {"launcher", "script", "module", "starter", "hidden", "environment", "told"}
"""What a command is read into besides."""


def _slips(settings: Iterable[Setting], known: Iterable[str]) -> Iterator[Fault]:
    names = set(known)
    strange = (each for each in settings if each.name not in names)
    for setting in islice(strange, _MOST):
        near = get_close_matches(setting.name[:60], names - _NO_FLAGS, n=1, cutoff=_NEAR)
        if near:
            message = f"{setting.name[:60]} is not known here"
            yield Fault(at=setting, message=message, hint=f"{near[0]}?")


def flag_is_another_launchers(setup: Setup) -> Iterator[Fault]:
    """A launcher is given a flag that only another launcher has."""
    for launch in setup.of(LAUNCH):
        name = str(launch.settings["launcher"].value)
        launcher = launchers().get(name)
        for flag, own in launcher.of_others.items() if launcher is not None else ():
            setting = launch.get(flag)
            if setting is not None:
                yield Fault(at=setting, message=f"{name} has no --{flag}", hint=f"here it is {own}")


def key_is_gone(setup: Setup) -> Iterator[Fault]:
    """A key was known to earlier releases and is refused now."""
    keys = known_keys("deepspeed")
    for found in setup.of(DEEPSPEED):
        for name in keys.removed:
            setting = found.get(name)
            if setting is not None:
                yield Fault(
                    at=setting,
                    message=f"DeepSpeed {keys.version} has removed {setting.name}, and refuses it",
                    hint="leave it out",
                    edit=None if isinstance(setting.value, dict) else removed(setting),
                )
    yield from _gone_of_trl(setup)
    fields = trainer_fields()
    for found in _of_trainer(setup):
        for name, now in fields.renamed.items():
            setting = found.get(name)
            if setting is not None:
                yield Fault(
                    at=setting,
                    message=f"transformers {fields.version} has no {name}, which 4.57.1 has",
                    hint=now,
                    edit=renamed(setting, now) if _can_be(found, now) else None,
                )
        if found.is_command and found.get("per_device_train_batch_size") is None:
            continue  # its flags are not all the Trainer's
        for name, instead in fields.removed.items():
            setting = found.get(name)
            if setting is not None:
                is_plain = isinstance(setting.value, bool | int | float | str)
                yield Fault(
                    at=setting,
                    message=f"{name} was removed in transformers 5",
                    hint=instead or "leave it out",
                    edit=removed(setting) if is_plain and not instead else None,
                )


def _gone_of_trl(setup: Setup) -> Iterator[Fault]:
    """Yield arguments of earlier releases of TRL; of a call all that this one has not."""
    record, fields = tool(_TRL), trainer_fields()
    schema = {*record.known, *fields.ever} - {*record.others, *record.renamed}
    for found in (each for each in setup.of(TRAINER) if each.tool == _TRL):
        for setting in islice(found.section(""), _MOST):
            if setting.name not in record.renamed and not _is_strange(found, setting, schema):
                continue
            now = record.renamed.get(setting.name, "")
            is_free = now in schema and getattr(found.get(now), "key", "") != now
            yield Fault(
                at=setting,
                message=f"TRL {record.version} has no {setting.name[:60]}",
                hint=now or "leave it out, or the release that has it",
                edit=renamed(setting, now) if is_free else None,
            )


def _is_strange(found: Found, setting: Setting, schema: set[str]) -> bool:
    """Return whether a call is given what it has not, and what is no slip of what it has."""
    is_call = found.get("class") is not None
    is_known = setting.name in {*schema, *trainer_fields().ever, "class", "method"}
    is_slip = get_close_matches(setting.name[:60], schema, n=1, cutoff=_NEAR)
    return is_call and not is_known and not is_slip


def _can_be(found: Found, name: str) -> bool:
    """Return whether a setting may be renamed so: to a field that takes the same and is not there yet."""
    is_field = name in trainer_fields().names and "config" not in name
    return is_field and found.get(name) is None


def key_stands_twice(setup: Setup) -> Iterator[Fault]:
    """A key is given twice."""
    for found in setup.found:
        for setting in found.repeated:
            last = found.settings.get(setting.key, setting)
            if isinstance(setting.value, dict) and found.kind == TORCHTITAN:
                continue
            # The last counts on a command line: a switch that is repeated does nothing, and a value may be meant so.
            if found.is_command and (
                last.value in (setting.value, UNKNOWN) or not _is_known(found, setting)
            ):
                continue
            line = last.line
            yield Fault(
                at=setting,
                message=f"{setting.key[:60]} stands again in line {line}",
                hint="leave one of them out",
                level=WARNING if found.is_command else None,
            )


def _is_known(found: Found, setting: Setting) -> bool:
    """Return whether a flag is one of the tool's: a program's own may be given several times."""
    return (
        bool(found.tool) and setting.key in tool(found.tool).known and setting.value is not UNKNOWN
    )


def torchtitan_reads_no_toml(setup: Setup) -> Iterator[Fault]:
    """The file is one that torchtitan no longer reads."""
    for found in setup.of(TORCHTITAN):
        if not found.is_command and found.settings:
            first = min(found.settings.values(), key=lambda each: each.line)
            yield Fault(
                at=first,
                message="torchtitan from 0.3 on reads no .toml",
                hint="its values as flags, such as --parallelism.tensor_parallel_degree 2; or torchtitan 0.2",
            )
