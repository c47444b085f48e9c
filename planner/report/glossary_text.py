"""Terms -> text for a terminal."""

from collections.abc import Sequence
from textwrap import fill

from planner.catalog.glossary import Entry, Spelling
from planner.report.glossary import Code
from planner.report.values import Emphasis, columns_text


def entry_text(entry: Entry, bold: Emphasis, width: int) -> str:
    """Return an entry, wrapped to a width in characters."""
    head = bold(entry.title)
    if entry.synonyms:
        head += f"\n{_wrapped('also: ' + ', '.join(entry.synonyms), width)}"
    paragraphs = [
        _wrapped(" ".join(paragraph.split()), width) for paragraph in entry.text.split("\n\n")
    ]
    names = [f"{bold('Names')}\n{_names(entry.names, width)}"] if entry.names else []
    see = f"See: {', '.join(entry.see)}"
    tail = [_wrapped(see, width), _wrapped(f"Source: {entry.source}", width)]
    return "\n\n".join((head, *paragraphs, *names, *tail))


def list_text(codes: Sequence[Code], entries: Sequence[Entry], bold: Emphasis) -> str:
    """Return the list of everything that can be explained: rules and findings, then terms."""
    rules = [(code.code, code.severity, code.text.splitlines()[0]) for code in codes]
    terms = [(entry.name, entry.title) for entry in entries]
    return f"{bold('Rules and findings')}\n{columns_text(rules)}\n\n{bold('Terms')}\n{columns_text(terms)}"


def _names(names: Sequence[Spelling], width: int) -> str:
    columns = [max(len(name.framework) for name in names), max(len(n.version) for n in names)]
    indent = " " * (sum(columns) + 6)
    return "\n".join(
        fill(
            name.text,
            max(width, len(indent) + 20),
            initial_indent=f"  {name.framework:<{columns[0]}}  {name.version:<{columns[1]}}  ",
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for name in names
    )


def _wrapped(text: str, width: int) -> str:
    return fill(text, max(width, 20), break_on_hyphens=False, break_long_words=False)
