"""Rules that are data: cases of `data/configs/rules.toml`, looked for in the files of a run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from planner.catalog.config_rules import Case, Held, TabledRule
from planner.catalog.configs import tool
from planner.configs.found import TRAINER, Found, Setting, Setup
from planner.configs.held import held_in
from planner.configs.meaning import (
    fsdp_option,
    fsdp_sections,
    fsdp_version,
    is_deepspeed,
    is_fsdp,
    is_of_others,
    is_older,
)
from planner.configs.rules.base import Edit, Fault, off, on, removed, renamed, set_to
from planner.configs.rules.values import wrong_values
from planner.core.frozen import frozen

_FSDP = "fsdp"


def faults_of(rule: TabledRule, setup: Setup) -> Iterator[Fault]:
    """Yield where a key holds what it may not, and where one of a rule's cases is met, case by case."""
    yield from wrong_values(rule, setup)
    for case in rule.cases:
        if _is_run(case, setup):
            for place in _places(setup, case.of):
                yield from _in_place(case, setup, place)


def _is_run(case: Case, setup: Setup) -> bool:
    gpu, below = setup.gpu, case.gpu_below
    is_card = not below or (gpu is not None and is_older(gpu, below))
    is_late = not case.gpu_from or (gpu is not None and not is_older(gpu, case.gpu_from))
    is_run = not case.run or any(_RUNS[name](setup) for name in case.run)
    return is_card and is_late and is_run and not any(_RUNS[name](setup) for name in case.not_run)


def _is_saved_by_trainer(setup: Setup) -> bool:
    """Return whether transformers' Trainer saves; with accelerate alone, or the planner's, the script decides."""
    return bool(setup.of(TRAINER)) and setup.model_ranks is None


def _is_planned(setup: Setup) -> bool:
    """Return whether the planner wrote the files, for links that it knows."""
    return setup.model_ranks is not None


_RUNS: Mapping[str, Callable[[Setup], bool]] = MappingProxyType(
    {
        "fsdp": is_fsdp,
        "deepspeed": is_deepspeed,
        "trainer": _is_saved_by_trainer,
        "planned": _is_planned,
    }
)


@frozen
class _Place:
    """A file, or its options of FSDP."""

    found: Found
    prefix: str | None = None
    """Of the options of FSDP; None for all settings by their own keys."""

    def get(self, *keys: str) -> Setting | None:
        """Return the first of these settings that is there."""
        if self.prefix is None:
            return self.found.get(*keys)
        options = (fsdp_option(self.found, self.prefix, key) for key in keys)
        return next((each for each in options if each is not None), None)


def _places(setup: Setup, tools: tuple[str, ...]) -> Iterator[_Place]:
    for name in tools:
        every = (each for each in setup.found if name in {each.kind, _tool_of_trainers(each)})
        yield from (_Place(found=found) for found in every)
        for found, prefix in fsdp_sections(setup) if name.startswith(_FSDP) else ():
            if name in {_FSDP, f"{_FSDP}.{found.kind}"}:
                yield _Place(found=found, prefix=prefix)


def _tool_of_trainers(found: Found) -> str:
    return found.tool if found.kind == TRAINER else ""


def _in_place(case: Case, setup: Setup, place: _Place) -> Iterator[Fault]:
    if case.is_whole and not place.found.is_whole:
        return
    of_version = fsdp_version(place.found, "fsdp_config." if place.prefix is None else place.prefix)
    if case.fsdp_version not in {None, of_version}:
        return
    where = [_anywhere(setup, place, each) for each in case.where]
    if None in where or any(_anywhere(setup, place, each, or_may=True) for each in case.unless):
        return
    level = (case.level_of_others if is_of_others(place.found) else None) or case.level
    title = tool(place.found.tool).title if place.found.tool else ""
    for keys in ((key,) for key in case.at.keys) if case.at.is_each else (case.at.keys,):
        at = held_in(place.get, place.found, replace(case.at, keys=keys))
        if at is not None:
            message = case.message.format(*where, at=at, gpu=setup.gpu, tool=title)
            hint = case.hint.format(*where, at=at, gpu=setup.gpu, tool=title)
            yield Fault(at=at, message=message, hint=hint, edit=_edit(case, place, at), level=level)


def _anywhere(setup: Setup, place: _Place, held: Held, *, or_may: bool = False) -> Setting | None:
    places = _places(setup, held.of) if held.of else (place,)
    every = (held_in(each.get, each.found, held, or_may=or_may) for each in places)
    return next(filter(None, every), None)


def _edit(case: Case, place: _Place, at: Setting) -> Edit | None:
    target = place.get(case.set_key) if case.set_key else at
    if target is None:
        return None
    if case.rename:
        return renamed(target, case.rename)
    if case.remove:
        return removed(target)
    written = {"on": on(target), "off": off(target)}.get(case.set, case.set)
    return set_to(target, written) if written else None
