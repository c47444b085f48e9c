"""What people call a framework, and the projects whose runs its record plans: `aliases` and `[projects]` of its record."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

from planner.catalog.records import framework_names, read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class Project:
    """A project of its own whose runs a framework's record and releases plan: NeMo is planned as megatron."""

    aliases: tuple[str, ...] = ()
    """What people call it beside its key in the record."""
    means_a_release: bool = True
    """Its name alone says what ran; else it says no more than the framework's."""
    source: str


@frozen
class Called:
    """What a text calls a framework."""

    framework: str
    project: str
    """The framework's own name where it is no other project."""
    rest: str = ""
    """What follows the name: a version."""


def projects_of(framework: str) -> Mapping[str, Project]:
    """Return the projects that a framework's record plans beside the one it is named after, by name."""
    said = read("frameworks", framework).get("projects", {})
    return {name: build(Project, said[name], f"frameworks/{framework}") for name in said}


@cache
def spellings_of(framework: str) -> Mapping[str, str]:
    """Return every name of a framework and its projects, longest first, and the project that each means."""
    own = (framework, *read("frameworks", framework).get("aliases", ()))
    found = dict.fromkeys(own, framework)
    for name, project in projects_of(framework).items():
        found |= dict.fromkeys((name, *project.aliases), name)
    return {spelling: found[spelling] for spelling in sorted(found, key=len, reverse=True)}


def framework_called(text: str) -> Called | None:
    """Return what a text calls: a name in any case, after its owner's or not, with a version behind it or none.

    What a framework itself is called wins over what projects are: "fsdp2" is torch's, though accelerate has it too.
    None of a text that is no such name.
    """
    wanted = text.strip().lower()
    return next(
        (found for each in (wanted, wanted.rpartition("/")[2]) for found in _all(each)), None
    )


def named_in(framework: str, text: str) -> tuple[str, str]:
    """Return the project that a version text names, the framework's own where it names none, and what follows.

    The last that it names is meant: "nemo megatron-core 0.9" is a version of Megatron Core.
    """
    project, rest = framework, text.strip().lower()
    while found := next(_in_text(framework, rest), None):
        project, rest = found
    return project, rest.strip(_BETWEEN)


def as_recorded(framework: str, version: str | None) -> tuple[str, str | None]:
    """Return a framework by the name of its record, and a version that says which project's it is.

    What no record plans is returned as it came.
    """
    called = framework_called(framework)
    if called is None:
        return framework, version
    version = version or called.rest or None
    if called.project == called.framework:
        return called.framework, version
    if version is None and not projects_of(called.framework)[called.project].means_a_release:
        return called.framework, None
    return called.framework, f"{called.project} {version or ''}".strip()


def _all(wanted: str) -> Iterator[Called]:
    """Yield what a text calls, the surest first: a name alone, of a framework before a project; a name and a version."""
    alone, versioned = [], []
    for framework in framework_names():
        for spelling, project in spellings_of(framework).items():
            match = re.match(_pattern(spelling), wanted)
            rest = wanted[match.end() :].strip(_BETWEEN) if match else ""
            found = Called(framework=framework, project=project, rest=rest)
            if match and match.end() == len(wanted):
                alone.append(found)
            elif match and re.match(_VERSION, rest):
                versioned.append(found)
    yield from sorted(alone, key=lambda each: each.project != each.framework)
    yield from versioned


def _in_text(framework: str, text: str) -> Iterator[tuple[str, str]]:
    for spelling, project in spellings_of(framework).items():
        match = re.search(rf"(?<![\w.-]){_pattern(spelling)}", text)
        if match and not re.search(r"\d", text[: match.start()]):
            yield project, text[match.end() :]


_BETWEEN = " :=@_-/()"
"""What stands between a name and its version."""
_VERSION = r"(?:v|r|core[_-]?[vr])?\d"


@cache
def _pattern(spelling: str) -> str:
    """Return a name as it is looked for: megatron-lm, megatron_lm and megatron lm are one."""
    return r"[\s_-]*".join(map(re.escape, re.split(r"[\s_-]+", spelling))) + r"(?![a-z0-9])"
