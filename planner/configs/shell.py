"""A shell script -> its commands as words with lines; variables of its own are put in, nothing is run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from planner.core.frozen import frozen

MOST_WORDS = 20_000
_NAME = r"[A-Za-z_]\w*"
_ASSIGNED = re.compile(rf"({_NAME})\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})(?:\[[@*]\])?(?::?-([^}}]{{0,500}}))?\}})")
_SEPARATORS = frozenset(";&|()")
_OF_LAUNCHERS = re.compile(
    r"CUDA_VISIBLE_DEVICES\Z|PET_(?:NPROC_PER_NODE|NODE_RANK|RDZV_ENDPOINT|MASTER_ADDR)\Z"
)
"""Variables that a launcher reads, where they are exported."""


@frozen
class Word:
    """One word of a command."""

    text: str
    line: int
    is_quoted: bool = False
    is_known: bool = True
    """Whether all of it is written in the script."""


@dataclass(slots=True)
class _Scanner:
    """Reads words of a text that follows the shell's quoting."""

    text: str
    at: int = 0
    line: int = 1
    arrays: dict[str, list[Word]] = field(default_factory=dict)

    def commands(self) -> Iterator[list[Word]]:
        """Yield the words between separators."""
        words: list[Word] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif letter == "\n" or letter in _SEPARATORS:
                if letter == "(" and words and words[-1].text.endswith("="):
                    self._array(words.pop().text.removesuffix("="))
                    continue
                if words:
                    yield words
                words = []
                self._step()
            elif letter in " \t\r":
                self._step()
            elif letter == "#":
                self._comment()
            else:
                words.append(self._word())
        if words:
            yield words

    def _step(self) -> str:
        letter = self.text[self.at]
        self.at += 1
        self.line += letter == "\n"
        return letter

    def _comment(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _array(self, name: str) -> None:
        """Take the words between the brackets of NAME=( ... ), or of NAME+=( ... ), which keeps the earlier ones."""
        self._step()
        words: list[Word] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            letter = self.text[self.at]
            if letter in " \t\r\n\\":
                self._step()
            elif letter == "#":
                self._comment()
            elif letter in _SEPARATORS:
                self._step()
            else:
                words.append(self._word())
        self.at += 1
        earlier = self.arrays.get(name.removesuffix("+"), []) if name.endswith("+") else []
        self.arrays[name.removesuffix("+")] = [*earlier, *words]

    def _word(self) -> Word:
        line, parts, is_quoted, is_known = self.line, [], False, True
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t\r\n" or letter in _SEPARATORS:
                break
            if letter == "'":
                parts.append(self._until("'").replace("$", "\0"))
                is_quoted = True
            elif letter == '"':
                parts.append(self._until('"'))
                is_quoted = True
            elif self.text.startswith("$(", self.at) or letter == "`":
                self._substitution()
                is_known = False
            elif self.text.startswith("${", self.at):
                parts.append(self._braces())
            elif letter == "\\":
                if self.text.startswith("\\\n", self.at):
                    break
                self._step()
                parts.append(self._step() if self.at < len(self.text) else "")
            else:
                parts.append(self._step())
        return Word(text="".join(parts), line=line, is_quoted=is_quoted, is_known=is_known)

    def _until(self, quote: str) -> str:
        self._step()
        parts = []
        while self.at < len(self.text) and self.text[self.at] != quote:
            if quote == '"' and self.text.startswith("$(", self.at):
                self._substitution()
                continue
            letter = self._step()
            if letter == "\\" and quote == '"' and self.at < len(self.text):
                letter = self._step()
            parts.append(letter)
        self.at += 1
        return "".join(parts)

    def _braces(self) -> str:
        end = self.text.find("}", self.at)
        end = len(self.text) if end < 0 else end + 1
        part = self.text[self.at : end]
        self.line += part.count("\n")
        self.at = end
        return part

    def _substitution(self) -> None:
        """Pass over $( ... ) or backquotes."""
        if self.text[self.at] == "`":
            self._until("`")
            return
        self.at += 1
        depth = 0
        while self.at < len(self.text):
            letter = self._step()
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return


def read_commands(text: str) -> Iterator[list[Word]]:
    """Yield the commands of a script, with the variables that it sets put in; its arrays, too.

    What it exports for launchers stands before each command after it, as `NAME=value command` has it.
    """
    scanner = _Scanner(text)
    variables: dict[str, Word] = {}
    exported: dict[str, Word] = {}
    taken = 0
    for words in scanner.commands():
        while words and (match := _ASSIGNED.fullmatch(words[0].text)) and len(words) == 1:
            word = words.pop(0)
            value = "".join(
                each.text
                for each in _expanded(
                    Word(text=match[2], line=word.line, is_quoted=True), variables, {}
                )
            )
            variables[match[1]] = Word(text=value, line=word.line, is_known=word.is_known)
        if words and words[0].text in {"export", "declare", "local", "set"}:
            for word in words[1:]:
                if match := _ASSIGNED.fullmatch(word.text):
                    variables[match[1]] = Word(
                        text=match[2], line=word.line, is_known=word.is_known
                    )
                    if words[0].text == "export" and _OF_LAUNCHERS.match(match[1]):
                        exported[match[1]] = _with_values(word, variables)
            continue
        every = (each for word in words for each in _expanded(word, variables, scanner.arrays))
        full = list(islice(every, MOST_WORDS + 1))
        taken += len(full)
        if taken > MOST_WORDS:
            raise ValueError("more words than a launch has")
        if full:
            yield [*exported.values(), *full]


def _expanded(
    word: Word, variables: Mapping[str, Word], arrays: Mapping[str, list[Word]]
) -> Iterator[Word]:
    """Yield the words that a word stands for."""
    only = _VARIABLE.fullmatch(word.text)
    if only:
        name = only[1] or only[2]
        if name in arrays:
            for each in arrays[name]:
                yield from _expanded(each, variables, {})
            return
        if name in variables and not word.is_quoted:
            value = variables[name]
            for line, texts in enumerate(value.text.split("\n"), value.line):
                for text in texts.split():
                    yield Word(text=text, line=line, is_known=value.is_known)
            return
    yield _with_values(word, variables)


def _with_values(word: Word, variables: Mapping[str, Word]) -> Word:
    """Return a word with its variables put in; one that the script does not set leaves it unknown."""
    is_known = word.is_known
    most = 4096

    def value(match: re.Match[str]) -> str:
        nonlocal is_known
        found = variables.get(match[1] or match[2])
        if found is None and match[3] is not None:
            return match[3]
        is_known = is_known and found is not None and found.is_known
        return "" if found is None else found.text[:most]

    text = _VARIABLE.sub(value, word.text)
    is_known = is_known and "$" not in text
    return Word(
        text=text.replace("\0", "$")[:most],
        line=word.line,
        is_quoted=word.is_quoted,
        is_known=is_known,
    )
