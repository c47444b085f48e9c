"""What the words of distributed training mean: `data/glossary` -> typed records."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from planner.catalog.records import framework, framework_names, read
from planner.core.frozen import frozen


@frozen
class Spelling:
    """What one framework calls a term: its class, flag or field."""

    framework: str
    version: str
    """Release, or commit, in which it is called so."""
    text: str


@frozen
class Entry:
    """One term or strategy, explained as a rule is: a statement, then paragraphs with headings."""

    name: str
    group: str
    """What it belongs to, for a list of all."""
    title: str
    synonyms: tuple[str, ...]
    text: str
    see: tuple[str, ...]
    """Names of other entries, and codes of rules."""
    names: tuple[Spelling, ...]
    source: str

    @property
    def statement(self) -> str:
        """Return the line that says what it is."""
        return self.text.partition("\n\n")[0]


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, group by group."""
    files = [read("glossary", name) for name in read("glossary", "index")["groups"]]
    return tuple(_entry(record, file["title"]) for file in files for record in file["entry"])


def _entry(record: Mapping[str, Any], group: str) -> Entry:
    spellings = record.get("names", {})
    return Entry(
        name=record["name"],
        group=group,
        title=record["title"],
        synonyms=tuple(record.get("synonyms", ())),
        text=record["text"].strip(),
        see=tuple(record["see"]),
        names=tuple(
            Spelling(framework=name, version=_version(name), text=text)
            for name, text in spellings.items()
        ),
        source=record["source"],
    )


def _version(name: str) -> str:
    """Return which version was looked at: of a framework's own record, or of the index."""
    if name in framework_names():
        return framework(name).capabilities.version
    return str(read("glossary", "index")["versions"][name])
