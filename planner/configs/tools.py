"""A tool's own words -> ours, and what of them no estimate has: `data/configs/tools` says what each key is for us."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from planner.catalog.configs import Meaning, tool, trainer_fields
from planner.configs.found import TRAINER, Found, Setting, Setup
from planner.configs.held import held_in

_NOTHING: tuple[object, ...] = (
    None,
    "",
    False,
    0,
    [],
    {},
    "none",
    "None",
    "no",
    "false",
    "False",
    "0",
)
_OF_SCRIPTS = frozenset({"class", "method", "from_pretrained", "call"})
"""What a script says around its arguments."""
_MOVES = "moves."
"""Before the keys of values that move what is estimated without them."""
_MOST = 12
"""Keys that are named."""


def trainers_tool(keys: Collection[str]) -> str:
    """Return whose words arguments of a Trainer are: TRL's where one is that transformers' own scripts have not."""
    return (
        "trl" if tool("trl").known.difference(tool(TRAINER).known).intersection(keys) else TRAINER
    )


def in_our_words(found: Found, name: str) -> Found:
    """Return what a tool's file says under our keys beside its own."""
    record = tool(name)
    settings = dict(found.settings)
    for theirs, ours in record.same.items():
        if theirs in settings:
            settings.setdefault(ours, settings[theirs])
    for meaning in record.means:
        at = _meant(found, meaning)
        if at is not None and meaning.moves:
            words = f"{at.key} {at.text[:60]} ({meaning.moves})"
            settings[f"{_MOVES}{at.key}"] = replace(at, value=words)
        if at is not None:
            given = (
                (key, at.value if value == "=" else value) for key, value in meaning.gives.items()
            )
            settings |= {key: replace(at, value=value) for key, value in given}
    defaults = record.defaults
    if found.kind == TRAINER:
        defaults = {**trainer_fields().defaults, **defaults}
    return replace(found, settings=settings, tool=name, defaults=defaults)


_OF_TRAINERS = ("axolotl", "llamafactory", "swift", "trl", TRAINER)


def word_here(name: str, own: str) -> str:
    """Return what a tool calls what another calls by this name; "" where it has no word for it."""
    others = (tool(each).same for each in _OF_TRAINERS if each != own)
    ours = next((same[name] for same in others if name in same), name)
    theirs = {meant: word for word, meant in tool(own).same.items()}
    return theirs.get(ours, ours if ours in tool(own).reads and ours != name else "")


def _meant(found: Found, meaning: Meaning) -> Setting | None:
    """Return the setting that means it; None where the file does not."""
    if any(held_in(found.get, found, each, or_may=True) for each in meaning.unless):
        return None
    if not all(held_in(found.get, found, each) for each in meaning.where):
        return None
    return held_in(found.get, found, meaning.at)


def left_out(setup: Setup) -> tuple[str, ...]:
    """Return what is set, and in no estimate: where it stands, and which way it moves the numbers."""
    words = dict.fromkeys(words for found in setup.found for words in _left_out(found))
    return tuple(words)[:_MOST]


def _left_out(found: Found) -> Iterator[str]:
    if not found.tool:
        return
    record = tool(found.tool)
    ways, known = record.ways, record.known
    for name, setting in found.settings.items():
        if name.startswith(_MOVES):
            yield setting.text
            continue
        top = setting.key.partition(".")[0]
        if top in _OF_SCRIPTS:
            continue
        key = setting.key if setting.key in ways else top
        if key in ways and setting.value not in _NOTHING:
            yield f"{key} ({ways[key]})"
        elif top not in known and not found.is_command and setting.value not in _NOTHING:
            yield f"{top[:60]} (not known here)"
