"""How the commands print: notes aside, colours only where they are wanted."""

import os
import sys
from collections.abc import Iterable
from shutil import get_terminal_size

import click

from planner.report.values import NARROWEST, WIDTH, Terminal

EXIT_USAGE, EXIT_NOTHING_FITS, EXIT_BROKEN, EXIT_MODEL = 2, 3, 4, 5


def say(notes: Iterable[str]) -> None:
    """Print notes where they do not mix with the answer."""
    for note in notes:
        say_folded(f"note: {note}")


def say_folded(text: str) -> None:
    """Print a message beside the answer: folded to a terminal, whole into a file."""
    shown = terminal().paragraph(text, rest="  ") if sys.stderr.isatty() else text
    click.echo(shown, err=True)


def color() -> bool | None:
    """Return whether to colour: NO_COLOR and FORCE_COLOR win over what the terminal can do."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def bold(text: str) -> str:
    """Return the text in bold, for a terminal that shows it."""
    return click.style(text, bold=True)


def terminal() -> Terminal:
    """Return the terminal of this process: COLUMNS, what it says of itself, or 100 columns."""
    return Terminal(width=max(NARROWEST, get_terminal_size((WIDTH, 24)).columns), bold=bold)
