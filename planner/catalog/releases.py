"""Releases of frameworks whose facts differ from their record's: `data/frameworks/releases`."""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from typing import Any

from planner.catalog.records import (
    data_root,
    framework_meant,
    framework_names,
    framework_record,
    merged,
    read,
)
from planner.catalog.tables import build
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.framework import Framework

FIELD = "recipe.framework_version"
FOLDER = "frameworks/releases"
_ABOUT = {"of", "name", "names", "version", "dates", "implied_on", "source"}
_SAID = "implied_by"
_DATE = re.compile(
    r"(?:20)?(?P<year>2[0-9])[-.](?P<month>0[1-9]|1[0-2])(?:[-.](?P<day>[0-3]?[0-9]))?"
)
"""2022-03, 2022-03-11, or 24.09 as NVIDIA's containers are called."""
_NUMBER = re.compile(r"v?(?P<parts>[0-9]{1,4}(?:\.[0-9]{1,4}){0,3})(?:[-.+_]?[a-z].*)?")
_MONTHS = 12
_LONGEST = 60


@frozen
class Release:
    """A release, or a fork, that was looked at or timed by itself."""

    of: str
    """The framework whose record it adds to."""
    name: str
    names: tuple[str, ...]
    """What a version text says of it; a fork has a name, and no number that compares."""
    version: str
    dates: tuple[str, ...]
    """Months at which it is the nearest; none of a fork that is meant only where it is named."""
    implied_on: tuple[str, ...] = ()
    """Compute capabilities of GPUs on which runs are taken to be of it where none is named."""
    implied_by: Mapping[str, Any] = field(default_factory=dict)
    """What a run there must say of its recipe and layout as well, by field: no other release does all of it."""
    source: str
    sections: Mapping[str, Any] = field(default_factory=dict)


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


def release(framework: str, version: str) -> Release | None:
    """Return the release nearest to a name, a date or a number; None where no release is known.

    A name wins over a date, a date over a number; of equals the first.

    Raises:
        InvalidInputError: the text is none of them.
    """
    known, text = releases_of(framework), version.strip().lower()
    named = [each for each in known for name in each.names if name in text]
    if named:
        return max(named, key=lambda each: max(len(n) for n in each.names if n in text))
    dated, numbered = _DATE.fullmatch(text), _NUMBER.fullmatch(text)
    if dated is None and numbered is None:
        raise InvalidInputError(
            f"no release of {framework} is called {version.strip()[:_LONGEST]!r}",
            hint=f"a date such as 2024-08, a number, or {_known(known)}",
            field=FIELD,
        )
    if dated:
        wanted = _months(text)
        by_date = [(abs(_months(date) - wanted), each) for each in known for date in each.dates]
        return min(by_date, key=lambda pair: pair[0])[1] if by_date else None
    parts = _numbers(text)
    by_number = [(_apart(_numbers(each.version), parts), each) for each in known if each.dates]
    return min(by_number, key=lambda pair: pair[0])[1] if by_number else None


def fork_called(name: str) -> Release | None:
    """Return the fork that goes by that name itself, of any framework; None where none does.

    What people call a framework itself is no release of it: Megatron-LM alone says no year.
    """
    wanted = name.strip().lower()
    if framework_meant(wanted):
        return None
    every = (each for framework in framework_names() for each in releases_of(framework))
    return next((each for each in every if wanted in each.names), None)


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
def framework_release(framework: str, version: str) -> tuple[Framework, str]:
    """Return a framework as it was at a release, and the name of the release that was taken.

    Raises:
        InvalidInputError: the text is no release.
    """
    record, found = framework_record(framework), release(framework, version)
    if found is not None:
        record = merged(record, found.sections) | {"release": found.name}
    name = found.name if found else ""
    return build(Framework, record, f"frameworks/{framework}"), name


def _months(date: str) -> int:
    match = _DATE.fullmatch(date)
    if match is None:
        raise InvalidInputError(
            f"{date[:_LONGEST]!r} is no date", hint="such as 2024-08", field=FIELD
        )
    return _MONTHS * int(match["year"]) + int(match["month"])


def _numbers(version: str) -> tuple[int, ...]:
    match = _NUMBER.fullmatch(version.lower())
    return tuple(int(part) for part in match["parts"].split(".")) if match else ()


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return how far two numbers are apart, the first part that differs weighing most."""
    longest = max(len(one), len(other))
    pairs = zip(_padded(one, longest), _padded(other, longest), strict=True)
    return tuple(abs(left - right) for left, right in pairs)


def _padded(parts: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (*parts, *(0,) * (length - len(parts)))


def _known(known: tuple[Release, ...]) -> str:
    return ", ".join(name for each in known for name in each.names) or "none by name"
