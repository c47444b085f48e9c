"""Releases of frameworks whose facts differ from their record's: `data/frameworks/releases`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, TypeAlias

from planner.catalog.framework_names import framework_called, named_in, spellings_of
from planner.catalog.records import data_root, framework_record, merged, read
from planner.catalog.tables import build
from planner.core.errors import InvalidInputError, did_you_mean
from planner.core.frozen import frozen
from planner.domain.framework import Framework

FIELD = "recipe.framework_version"
FOLDER = "frameworks/releases"
_ABOUT = {"of", "name", "versions", "dates", "implied_on", "source"}
_SAID = "implied_by"
_DATE = re.compile(
    r"(?:20)?(?P<year>[12][0-9])[-./](?P<month>0[1-9]|1[0-2])(?:[-./][0-3]?[0-9])?(?:[-._][a-z].*)?"
)
"""2022-03, 2022-03-11, or 24.09 as NVIDIA's containers are called."""
_YEAR = re.compile(r"20[12][0-9]")
_NUMBER = re.compile(
    r"(?:v|r|rel|release|version)?[ _-]?(?P<parts>[0-9]{1,4}(?:\.[0-9]{1,4}){0,3})(?:[-.+_][a-z].*|(?:rc|a|b|dev|post)[0-9].*)?"
)
_COMMIT = re.compile(r"(?=[a-f]*[0-9])[0-9a-f]{7,40}")
_MONTHS = 12
_MIDDLE = 7
"""The month that a year alone means."""
_PARTS = 4
_LONGEST = 60
_Place: TypeAlias = tuple[int, ...]
"""A version's numbers, or a date's months since the year 2000: what is compared."""


@frozen
class Release:
    """A release, or a fork, that was looked at or timed by itself."""

    of: str
    """The framework whose record it adds to."""
    name: str
    versions: Mapping[str, tuple[str, ...]]
    """First and last version of each project that it stands for; none of one without numbers."""
    dates: tuple[str, ...]
    """Months at which it is the nearest."""
    implied_on: tuple[str, ...] = ()
    """Compute capabilities of GPUs on which runs are taken to be of it where none is named."""
    implied_by: Mapping[str, Any] = field(default_factory=dict)
    """What a run there must say of its recipe and layout as well, by field: no other release does all of it."""
    source: str
    sections: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Taken:
    """The release that a text means, and how far it is from what the text says."""

    release: Release
    remark: str = ""
    """What the text says that the release is not: older, or newer, than all that it stands for."""


@cache
def releases_of(framework: str) -> tuple[Release, ...]:
    """Return the known releases of a framework, in the order of their files."""
    folder = data_root() / "frameworks" / "releases"
    stems = sorted(file.name.removesuffix(".toml") for file in folder.iterdir())
    found = (_release(stem) for stem in stems if stem.count(".") == 0)
    return tuple(release for release in found if release.of == framework)


def _release(stem: str) -> Release:
    record = read(FOLDER, stem)
    about = {key: record[key] for key in record if key in _ABOUT}
    sections = {key: record[key] for key in record if key not in _ABOUT | {_SAID}}
    found = build(Release, about, f"{FOLDER}/{stem}")
    return replace(found, implied_by=record.get(_SAID, {}), sections=sections)


def has_own_releases(framework: str) -> bool:
    """Return whether a framework's own versions mean different records."""
    return any(framework in each.versions for each in releases_of(framework))


def release(framework: str, version: str) -> Taken:
    """Return the release that a version text means, among those of the project that it names, and what it is not.

    A version is a name with or without a number, or a number, a date (24.09, as NVIDIA's containers are called, is one)
    or a commit alone, which is of the project that the framework is named after. Of numbers and dates the last release
    that had begun by then is taken; a commit means the newest.

    Raises:
        InvalidInputError: the text is none of them.
    """
    project, text = named_in(framework, version)
    is_date = bool(_DATE.fullmatch(text) or _YEAR.fullmatch(text))
    known = [each for each in _candidates(framework) if project in each.versions]
    if not text or _COMMIT.fullmatch(text):
        remark = "a commit" if text else ""
        return Taken(release=max(known, key=lambda each: _months(each.dates[-1])), remark=remark)
    if not is_date and not _NUMBER.fullmatch(text):
        raise _unknown(framework, version)
    spans = [(each.dates if is_date else each.versions[project], each) for each in known]
    return _nearest(text, _months if is_date else _numbers, spans)


def implied_release(
    framework: str, compute_capability: str, said: Mapping[str, object]
) -> Release | None:
    """Return the release that such runs are taken to be of where none is named; None of most.

    Args:
        framework: by the name of its record.
        compute_capability: of the GPUs.
        said: of recipe and layout, by field.
    """
    return next(
        (
            each
            for each in releases_of(framework)
            if compute_capability in each.implied_on and each.implied_by.items() <= said.items()
        ),
        None,
    )


@cache
def at_release(framework: str, name: str) -> Framework:
    """Return a framework as it was at a release of that name; "" is its own record."""
    record = framework_record(framework)
    for each in releases_of(framework):
        if each.name == name:
            record = merged(record, each.sections) | {"release": name}
    return build(Framework, record, f"frameworks/{framework}")


def _candidates(framework: str) -> tuple[Release, ...]:
    """Return the releases of a framework, and its record, which has no name as a release, where it stands for the framework."""
    known = releases_of(framework)
    return known if has_own_releases(framework) else (*known, _own_record(framework))


def _own_record(framework: str) -> Release:
    can = framework_record(framework)["capabilities"]
    version = (can["version"],) if _NUMBER.fullmatch(can["version"]) else ()
    return Release(
        of=framework,
        name="",
        versions={framework: version},
        dates=(can["date"],),
        source=can["source"],
    )


def _nearest(
    text: str, place: Callable[[str], _Place], known: Sequence[tuple[Sequence[str], Release]]
) -> Taken:
    """Return the last release that had begun by then, the first where none had."""
    spans = sorted(((place(span[0]), span, each) for span, each in known if span), key=_begin)
    if not spans:
        return Taken(release=known[0][1], remark="which is of a commit")
    wanted = place(text)
    begun = [each for each in spans if each[0] <= wanted] or spans[:1]
    begin, span, found = begun[-1]
    remark = ""
    if wanted < begin:
        remark = f"older than {span[0]}"
    elif wanted > place(span[-1]):
        remark = f"newer than {span[-1]}"
    return Taken(release=found, remark=remark)


def _begin(span: tuple[_Place, Sequence[str], Release]) -> _Place:
    return span[0]


def _months(date: str) -> _Place:
    match = _DATE.fullmatch(date)
    if match is None:
        return (_MONTHS * int(date[-2:]) + _MIDDLE,)
    return (_MONTHS * int(match["year"]) + int(match["month"]),)


def _numbers(version: str) -> _Place:
    match = _NUMBER.fullmatch(version.lower())
    parts = [int(part) for part in match["parts"].split(".")] if match else []
    return tuple([*parts, *[0] * _PARTS][:_PARTS])


def _unknown(framework: str, version: str) -> InvalidInputError:
    text, other = version.strip()[:_LONGEST], framework_called(version)
    if other and other.framework != framework:
        hint = f"--framework {other.framework} is what plans {other.project}"
    else:
        newest = {
            project: f"{project} {span[-1]}".removeprefix(f"{framework} ")
            for each in sorted(_candidates(framework), key=lambda each: _months(each.dates[-1]))
            for project, span in each.versions.items()
            if span
        }
        name = re.split(r"[\s\d:=]", text)[0]
        near = did_you_mean(name, spellings_of(framework)) if name else ""
        known = ", ".join(newest.values())
        hint = f"{near} a date such as 2025-06, a commit, or a version: {known}".strip()
    return InvalidInputError(
        f"no release of {framework} is called {text!r}", hint=hint, field=FIELD
    )
