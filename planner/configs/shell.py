"""A shell script -> its commands as words with lines, as they are written."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.core.frozen import frozen

LITERAL, UNSEEN = "\0", "\1"
"""What stands in a word for a $ that is none of a variable, and for what only the run knows."""
_SEPARATORS = frozenset(";&|()")


@frozen
class Word:
    """One word of a command."""

    text: str
    line: int
    is_quoted: bool = False
    is_known: bool = True
    """Whether all of it is written in the script."""


@dataclass(slots=True)
class Scanner:
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
        line, parts, is_quoted = self.line, list[str](), False
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t\r\n" or letter in _SEPARATORS:
                break
            if letter == "'":
                parts.append(self._until("'").replace("$", LITERAL))
                is_quoted = True
            elif letter == '"':
                parts.append(self._until('"'))
                is_quoted = True
            elif self.text.startswith("$(", self.at) or letter == "`":
                self._substitution()
                parts.append(UNSEEN)
            elif self.text.startswith("${", self.at):
                parts.append(self._braces())
            elif letter == "\\":
                if self.text.startswith("\\\n", self.at):
                    break
                self._step()
                parts.append(self._step() if self.at < len(self.text) else "")
            else:
                parts.append(self._step())
        return Word(text="".join(parts), line=line, is_quoted=is_quoted)

    def _until(self, quote: str) -> str:
        self._step()
        parts = []
        while self.at < len(self.text) and self.text[self.at] != quote:
            if quote == '"' and self.text.startswith("$(", self.at):
                self._substitution()
                parts.append(UNSEEN)
                continue
            if quote == '"' and self.text.startswith("${", self.at):
                parts.append(self._braces())
                continue
            letter = self._step()
            if letter == "\\" and quote == '"' and self.at < len(self.text):
                letter = self._step().removesuffix("\n").replace("$", LITERAL)
            parts.append(letter)
        self.at += 1
        return "".join(parts)

    def _braces(self) -> str:
        """Return ${ ... }, with those inside it."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            letter = self._step()
            depth += (letter == "{") - (letter == "}")
            if depth == 0 and letter == "}":
                break
        return self.text[start : self.at]

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
