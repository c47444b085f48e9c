"""A plan's files as what sets them apart from files that are held already."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import PurePath

Files = Mapping[str, str]
"""Path to text."""

_CHANGE = re.compile(r"@@ (\d+) stay, (\d+) go @@")


def difference(files: Files, held: Files) -> str:
    """Return the plan's files, each as its changes to the nearest file of the same name.

    A file begins with `+++ path, from the held file that it is most like`. Each change says how
    many lines stay as they are, how many go away and the first of these (or, where none goes,
    the line before), and has the lines that come after it. Numbers are distances, not
    positions: a line more in a held file moves one number here and not all of them.
    """
    lines: list[str] = []
    for path, text in sorted(files.items()):
        near = _nearest(path, text, held)
        lines.append(f"+++ {path}, {f'from {near}' if near else 'new'}")
        lines += _changes(held[near], text) if near else [f"+{line}" for line in text.split("\n")]
        held = {**held, f"this plan's {path}": text}
    return "".join(f"{line}\n" for line in lines)


def rebuilt(text: str, held: Files) -> dict[str, str]:
    """Return the files of which `difference` gave the text, beside the same held files."""
    files: dict[str, str] = {}
    for part in text.removeprefix("+++ ").split("\n+++ "):
        head, *lines = part.removesuffix("\n").split("\n")
        path, _, near = head.rpartition(", ")
        known = {**held, **{f"this plan's {own}": text for own, text in files.items()}}
        old = [] if near == "new" else known[near.removeprefix("from ")].split("\n")
        new: list[str] = []
        for line in lines:
            change = _CHANGE.match(line)
            if change:
                stay, go = map(int, change.groups())
                new += old[:stay]
                old = old[stay + go :]
            else:
                new.append(line.removeprefix("+"))
        files[path] = "\n".join(new + old)
    return files


def _nearest(path: str, text: str, held: Files) -> str | None:
    """Return the first of the held files with the fewest lines too many or too few."""
    lines = Counter(text.split("\n"))

    def distance(other: str) -> int:
        others = Counter(held[other].split("\n"))
        return (lines - others).total() + (others - lines).total()

    candidates = [name for name in held if PurePath(name).name == PurePath(path).name]
    return min(candidates, key=distance, default=None)


def _changes(old_text: str, new_text: str) -> Iterator[str]:
    old, new = old_text.split("\n"), new_text.split("\n")
    stay = 0
    # autojunk would match none of the lines that a long script repeats, such as empty ones.
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind == "equal":
            stay = end - start
            continue
        place = old[start] if end > start else old[max(start - 1, 0)]
        yield f"@@ {stay} stay, {end - start} go @@ {place}".rstrip()
        yield from (f"+{line}" for line in new[new_start:new_end])
        stay = 0
