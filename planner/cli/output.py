"""How the commands print: notes aside, colours only where they are wanted."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from threading import Event, Thread

import click

from planner.core.errors import ModelNotFoundError, NothingFitsError
from planner.report.values import NARROWEST, WIDTH, Terminal

_PATIENCE_SECONDS = 2
"""That something may take before it is said."""
_COLORS = {"fits": "green", "tight": "yellow", "does not fit": "red"}
EXIT_USAGE, EXIT_NOTHING_FITS, EXIT_BROKEN, EXIT_MODEL = 2, 3, 4, 5


def say(notes: Iterable[str]) -> None:
    """Print notes where they do not mix with the answer."""
    for note in notes:
        say_folded(f"note: {note}")


def say_kept(names: Sequence[str]) -> None:
    """Print which edited files are kept beside those that replace them."""
    if names:
        say([f"what you edited is kept: {', '.join(names)}"])


def say_folded(text: str) -> None:
    """Print a message beside the answer: folded to a terminal, whole into a file."""
    shown = terminal().paragraph(text, rest="  ") if sys.stderr.isatty() else text
    click.echo(shown, err=True)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say on a terminal, from the third second on, what is done and since when; the line goes when it is done."""
    if not sys.stderr.isatty():
        yield
        return
    done = Event()
    shown = Thread(target=_count_seconds, args=(what, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _count_seconds(what: str, done: Event) -> None:
    if done.wait(_PATIENCE_SECONDS):
        return
    seconds = _PATIENCE_SECONDS
    while not done.is_set():
        click.echo(f"\r{what}: {seconds} s", nl=False, err=True)
        done.wait(1)
        seconds += 1
    click.echo(f"\r{' ' * len(f'{what}: {seconds} s')}\r", nl=False, err=True)


def color() -> bool | None:
    """Return whether to colour: NO_COLOR and FORCE_COLOR win over what the terminal can do."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def bold(text: str) -> str:
    """Return the text in bold, for a terminal that shows it."""
    return click.style(text, bold=True)


def tint(text: str, verdict: str) -> str:
    """Return the text in bold in the colour of a verdict, for a terminal that shows it."""
    return click.style(text, fg=_COLORS.get(verdict), bold=True)


def terminal() -> Terminal:
    """Return the terminal of this process: COLUMNS, what it says of itself, or 100 columns."""
    columns = get_terminal_size((WIDTH, 24)).columns
    return Terminal(width=max(NARROWEST, columns), bold=bold, tint=tint)


def exit_of(error: type[BaseException]) -> int:
    """Return the exit code of what is wrong."""
    if issubclass(error, NothingFitsError):
        return EXIT_NOTHING_FITS
    return EXIT_MODEL if issubclass(error, ModelNotFoundError) else EXIT_USAGE
