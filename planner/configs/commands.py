"""A shell script -> what it runs: its own variables are put in, its branches kept apart, and nothing is run."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import PurePosixPath

from planner.configs.shell import LITERAL, UNSEEN, Scanner, Word
from planner.core.frozen import frozen

MOST_WORDS = 20_000
_LONGEST = 4096
_NAME = r"[A-Za-z_]\w*"
_ASSIGNED = re.compile(rf"({_NAME})\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    rf"\$(?:({_NAME}|[\d@*#?$!])|\{{({_NAME}|[\d@*#?])(?:\[[@*]\])?(?::?[-=]((?:[^{{}}]|\{{[^{{}}]{{0,200}}\}}){{0,500}}))?\}}|\{{[^}}]{{0,500}}\}})"
)
_OF_LAUNCHERS = re.compile(
    r"CUDA_VISIBLE_DEVICES|PET_(?:NPROC_PER_NODE|NODE_RANK|RDZV_ENDPOINT|MASTER_ADDR)|NPROC_PER_NODE|FORCE_TORCHRUN"
    r"|NCCL_(?:IB_DISABLE|P2P_DISABLE|SHM_DISABLE|SOCKET_IFNAME|NET)|GLOO_SOCKET_IFNAME|CUDA_LAUNCH_BLOCKING"
    r"|MASTER_ADDR|RANK|WORLD_SIZE"
)
"""Variables that a launcher, or NCCL, reads where they are exported."""
_DECLARE = frozenset({"export", "declare", "local", "set", "typeset", "readonly"})
_BEGINS, _ENDS = (
    frozenset({"if", "case", "while", "until", "for"}),
    frozenset({"fi", "esac", "done"}),
)
_BETWEEN = frozenset({"then", "else", "elif", "do", "!", "time", "{", "}"})
SHELLS, _REMOTE = frozenset({"bash", "sh", "zsh"}), frozenset({"ssh", "pdsh"})


@frozen
class Command:
    """One command, as far as the script says it."""

    words: tuple[Word, ...]
    """What it exports for launchers stands first, as in `NAME=value command`."""
    is_sure: bool
    """Whether it stands in no branch."""
    unexported: tuple[Word, ...] = ()
    """Variables that launchers read, set for the shell alone."""


@dataclass(slots=True)
class _Script:
    """What was set on the way to a command."""

    variables: dict[str, Word] = field(default_factory=dict)
    exported: dict[str, Word] = field(default_factory=dict)
    depth: int = 0

    def keywords(self, words: list[Word]) -> list[Word]:
        """Return a command without the words around it, which may open or close a branch."""
        while words and not words[0].is_quoted:
            word = words[0].text
            self.depth = max(0, self.depth + (word in _BEGINS) - (word in _ENDS))
            if word in {"for", "case"}:
                return []
            if word not in _BEGINS | _ENDS | _BETWEEN:
                break
            words = words[1:]
        return words

    def assign(self, name: str, word: Word, text: str) -> None:
        """Take a variable; where a branch may have another value, nobody knows it."""
        value = self.with_values(replace(word, text=text, is_quoted=True)).text
        known = self.variables.get(name)
        if self.depth and known is not None and known.text != value:
            value = UNSEEN
        self.variables[name] = Word(text=value, line=word.line)
        if name in self.exported:
            self.export(name, word)

    def export(self, name: str, word: Word) -> None:
        """Take a variable for the programs, too."""
        if name in self.variables and _OF_LAUNCHERS.fullmatch(name):
            text = f"{name}={self.variables[name].text}"
            self.exported[name] = _ended(Word(text=text, line=word.line))

    def expanded(self, word: Word, arrays: Mapping[str, list[Word]]) -> Iterator[Word]:
        """Yield the words that a word stands for."""
        only = _VARIABLE.fullmatch(word.text)
        name = (only[1] or only[2] or "") if only else ""
        if name in arrays:
            for each in arrays[name]:
                yield from self.expanded(each, {})
        elif name in self.variables and not word.is_quoted:
            value = self.variables[name]
            for line, texts in enumerate(value.text.split("\n"), value.line):
                yield from (Word(text=text, line=line) for text in texts.split())
        else:
            yield self.with_values(word)

    def with_values(self, word: Word) -> Word:
        """Return a word with its variables put in; UNSEEN for one that the script does not set."""

        def value(match: re.Match[str]) -> str:
            found = self.variables.get(match[1] or match[2] or "")
            if found is not None:
                return found.text[:_LONGEST]
            if match[3] is None or "$(" in match[3] or "`" in match[3]:
                return UNSEEN
            return _VARIABLE.sub(value, match[3].strip("\"'")[:_LONGEST])

        return replace(word, text=_VARIABLE.sub(value, word.text)[:_LONGEST])


def _ended(word: Word) -> Word:
    """Return a word as a program gets it, as far as it is known."""
    is_known = UNSEEN not in word.text and "$" not in word.text
    text = word.text.replace(UNSEEN, "").replace(LITERAL, "$")
    return replace(word, text=text, is_known=is_known)


def read_commands(text: str, given: Sequence[Word] = ()) -> Iterator[Command]:
    """Yield the commands of a script, with the variables that it sets put in; its arrays, too.

    Args:
        text: the script.
        given: variables that are set before it begins.

    Raises:
        ValueError: they have more words than launches have.
    """
    scanner, script, taken = Scanner(text), _Script(), 0
    for word in given:
        _is_declared([word], script)
    for each in scanner.commands():
        words = script.keywords(each)
        if not words or _is_declared(words, script):
            continue
        every = (one for word in words for one in script.expanded(word, scanner.arrays))
        full = list(islice(every, MOST_WORDS + 1))
        taken += len(full)
        if taken > MOST_WORDS:
            raise ValueError("more words than a launch has")
        unexported = tuple(
            _ended(Word(text=f"{name}={value.text}", line=value.line))
            for name, value in script.variables.items()
            if _OF_LAUNCHERS.fullmatch(name) and name not in script.exported
        )
        for command in _inside(full):
            yield Command(
                words=(*script.exported.values(), *command),
                is_sure=not script.depth,
                unexported=unexported,
            )


def _is_declared(words: Sequence[Word], script: _Script) -> bool:
    """Take variables that a command sets, and return whether it does nothing else."""
    is_declaration = words[0].text in _DECLARE
    for word in words[1:] if is_declaration else words:
        match = _ASSIGNED.fullmatch(word.text)
        if match is None and not is_declaration:
            return False
        if match is not None and (is_declaration or len(words) == 1):
            script.assign(match[1], word, match[2])
        if words[0].text == "export":
            script.export(match[1] if match else word.text, word)
    return is_declaration or len(words) == 1


def _inside(words: list[Word]) -> Iterator[list[Word]]:
    """Yield a command, or those of the text that it gives a shell."""
    for at, (word, flag) in enumerate(pairwise(words)):
        name = PurePosixPath(word.text).name
        is_shell = name in SHELLS and flag.text in {"-c", "-lc"}
        given = words[at + 2 : at + 3] if is_shell else words[at + 1 :] if name in _REMOTE else ()
        script = next((each for each in given if is_shell or " " in each.text), None)
        if script is not None:
            for inner in Scanner(script.text.replace(LITERAL, "$")).commands():
                unset = (_VARIABLE.sub(UNSEEN, each.text) for each in inner)
                own = [Word(text=text, line=script.line) for text in unset]
                yield list(map(_ended, [*words[:at], *own]))
            return
    yield list(map(_ended, words))
