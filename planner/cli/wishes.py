"""What --strategy, the flags of a layout and --pin say together, as one wish that does not contradict itself."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.strict_json import parse_json

Said = tuple[str, Mapping[str, Any]]
"""Words of the command line, and the fields of a strategy that they set."""
_DATA = "data_parallel_size"
_REPLICAS_AND_SHARDS = ("data_parallel_replicate_size", "data_parallel_shard_size")


def read(text: str, flag: str) -> dict[str, Any]:
    """Return the fields that a wish names.

    Raises:
        InvalidInputError: it cannot be read; says which flag it was typed for.
    """
    from planner.request.wish import read_wish

    try:
        return read_wish(text)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, hint=error.hint, field=flag) from None


def only(questions: Sequence[str]) -> str | None:
    """Return the one question of --why, None without any.

    Raises:
        InvalidInputError: there are several, of which one alone would be answered.
    """
    if len(questions) > 1:
        raise InvalidInputError(
            f"{len(questions)} questions at once: {', '.join(questions)}",
            hint="ask one at a time; --why tp=2,pp=2 is about layouts that have both",
            field="--why",
        )
    return questions[0] if questions else None


def strategy(text: str | None) -> dict[str, Any]:
    """Return the fields that a family's name, as plans print it, or a JSON object holds."""
    if text is None:
        return {}
    if not text.lstrip().startswith(("{", "[")):
        return read(text, "strategy")
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInputError(
            f"{text[:60]!r} is no JSON object",
            hint="a family's name, such as zero-3 or tp+pp, or an object of the contract's fields",
            field="strategy",
        )
    return value


def flag(path: str, typed: Any, value: Any) -> Said:
    """Return the words of a flag as it was typed, and what its field is set to."""
    from planner.report.flags import flag_words

    return " ".join(flag_words(path, value=typed)), {path.removeprefix("strategy."): value}


def together(said: Iterable[Said]) -> dict[str, Any]:
    """Return all fields that were said.

    Raises:
        InvalidInputError: two words of the command line say different things of one field.
    """
    found: dict[str, Any] = {}
    words: dict[str, str] = {}
    for text, fields in said:
        for name, value in fields.items():
            if found.setdefault(name, value) != value:
                raise _contradiction(words[name], text)
            words.setdefault(name, text)
    _check_family(found, words)
    if {_DATA, *_REPLICAS_AND_SHARDS} <= found.keys():
        replicas, shards = (found[name] for name in _REPLICAS_AND_SHARDS)
        if found[_DATA] != replicas * shards:
            raise _contradiction(words[_DATA], words[_REPLICAS_AND_SHARDS[0]])
    return found


def _check_family(found: Mapping[str, Any], words: Mapping[str, str]) -> None:
    """Refuse a field that is not what a family's own name says of it."""
    from planner.domain.strategy import CHOICES
    from planner.request.family import named_fields
    from planner.search.pinned_fields import holds

    family = found.get("family")
    for name, wanted in named_fields(family).items() if isinstance(family, str) else ():
        value, kind = found.get(name), CHOICES.get(name)
        if kind and value in kind.names():
            value = kind(value)
        if isinstance(value, int) and not holds(value, wanted):
            raise _contradiction(words["family"], words[name])


def _contradiction(one: str, other: str) -> InvalidInputError:
    return InvalidInputError(
        f"{one} and {other} contradict each other", hint="leave one of them out", field=""
    )
