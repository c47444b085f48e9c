"""Nested settings -> one table by dotted key, with lines; of JSON, YAML and TOML."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import yaml

from planner.configs.found import UNKNOWN, Found, Setting
from planner.core.errors import InvalidInputError
from planner.core.hostile_text import check_toml, check_yaml

MOST_SETTINGS = 5_000
_MOST_BITS = 10_000
"""Of a whole number: one of more digits cannot be printed."""
_MOST_DOCUMENTS = 50
"""Of a file."""
DEEPEST = 30
"""Sections within each other; configurations have five."""
_JSON_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|\n')
_SECTIONS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}|\$[A-Za-z_]\w*|\{\{[^{}]*\}\}|<[^<>]*>|\?{3}")
"""${NAME}, $NAME, {{ name }}, <name> and ???, which another program fills in before the tool reads the file."""
_TOML_HEADER = re.compile(r"\s*\[\[?([^\]]+)\]")
_TOML_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


class Tree:
    """Settings as they are read, one after the other."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.settings: dict[str, Setting] = {}
        self.repeated: list[Setting] = []
        self._steps = 0

    def step(self, count: int = 1) -> None:
        """Count keys, or items of a list, that are looked at; an alias of YAML may lead to the same one again and again.

        Raises:
            InvalidInputError: they are too many.
        """
        self._steps += count
        if self._steps > MOST_SETTINGS:
            raise self._too_much()

    def add(self, key: str, value: Any, line: int) -> None:
        """Take a setting; the last of several of a key is the one that counts.

        Raises:
            InvalidInputError: there are too many, or too deep.
            ValueError: it is a number that cannot be printed.
        """
        if key.count(".") > DEEPEST or len(self.settings) >= MOST_SETTINGS:
            raise self._too_much()
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise ValueError(f"line {line}: {key} has thousands of digits")
        if key in self.settings:
            self.repeated.append(self.settings[key])
        self.settings[key] = Setting(key=key, value=value, line=line, file=self.file)

    def found(self, kind: str, *, is_whole: bool = True, is_command: bool = False) -> Found:
        """Return what was read as the settings of a tool; a command's words have their variables put in already."""
        return Found(
            file=self.file,
            kind=kind,
            settings=self.settings
            if is_command
            else {key: unfilled(each) for key, each in self.settings.items()},
            repeated=tuple(self.repeated),
            is_whole=is_whole,
            is_command=is_command,
        )

    def _too_much(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self.file} has too many settings, or nests them too deeply",
            hint=f"at most {MOST_SETTINGS:,}, {DEEPEST} within each other",
            field="FILE",
        )


def unfilled(setting: Setting) -> Setting:
    """Return a setting; without its value, where another program is to fill that in."""
    is_text = isinstance(setting.value, str | list)
    is_open = is_text and _PLACEHOLDER.search(str(setting.value)) is not None
    return replace(setting, value=UNKNOWN) if is_open else setting


def joined(*parts: str) -> str:
    """Return the dotted key of these."""
    return ".".join(part for part in parts if part)


def read_json_tree(text: str, file: str) -> Tree:
    """Return the settings of a JSON object.

    Raises:
        ValueError: it is no JSON.
    """
    json.loads(text)
    reader = _JsonReader(tree=Tree(file), parts=_parts(text))
    reader.value("", 0)
    return reader.tree


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Yield brackets, marks, texts and numbers, each with its line."""
    line = 1
    for match in _JSON_PART.finditer(text):
        if match[0] == "\n":
            line += 1
        else:
            yield match[0], line


@dataclass(slots=True)
class _JsonReader:
    """Adds what is known to be JSON to a tree."""

    tree: Tree
    parts: Iterator[tuple[str, int]]

    def value(self, key: str, depth: int) -> None:
        """Add the value that comes next."""
        part, line = next(self.parts)
        self._begun(part, line, key, depth)

    def _begun(self, part: str, line: int, key: str, depth: int) -> None:
        """Add the value that begins with this part."""
        if depth > DEEPEST:
            raise RecursionError
        if part == "{":
            self._object(line, key, depth)
        elif part == "[":
            self.tree.add(key, self._list(key, depth), line)
        else:
            self.tree.add(key, json.loads(part), line)

    def _object(self, line: int, key: str, depth: int) -> None:
        if key:
            self.tree.add(key, {}, line)
        for name, at in self.parts:
            if name == "}":
                break
            if name != ",":
                next(self.parts)
                part, _ = next(self.parts)
                self._begun(part, at, joined(key, json.loads(name)), depth + 1)

    def _list(self, key: str, depth: int) -> list[Any]:
        values: list[Any] = []
        for part, line in self.parts:
            if part == "]":
                break
            if part in {"{", "["}:
                self._begun(part, line, f"{key}.{len(values)}", depth + 1)
                values.append({})
            elif part != ",":
                values.append(json.loads(part))
        return values


def read_yaml_tree(text: str, file: str) -> Tree:
    """Return the settings of a YAML mapping; tags beyond those of plain data are refused.

    Raises:
        ValueError: it is longer or deeper than its parser takes.
        yaml.YAMLError: it is no YAML.
    """
    check_yaml(text)
    return _yaml_tree(yaml.compose(text, yaml.SafeLoader), file)


def read_yaml_trees(text: str, file: str) -> Iterator[Tree]:
    """Yield the settings of each document of a file that may have several.

    Raises:
        ValueError: it is longer or deeper than its parser takes.
        yaml.YAMLError: it is no YAML.
    """
    check_yaml(text)
    for node in islice(yaml.compose_all(text, yaml.SafeLoader), _MOST_DOCUMENTS):
        yield _yaml_tree(node, file)


def _yaml_tree(node: yaml.Node | None, file: str) -> Tree:
    tree = Tree(file)
    if isinstance(node, yaml.MappingNode):
        _yaml_mapping(node, tree, "", 0)
    return tree


def _yaml_mapping(node: yaml.MappingNode, tree: Tree, key: str, depth: int) -> None:
    if depth > DEEPEST:
        raise RecursionError
    for name_node, value in node.value:
        tree.step()
        name = str(name_node.value) if isinstance(name_node, yaml.ScalarNode) else ""
        _refuse_tags(value)
        line = name_node.start_mark.line + 1
        if name == "<<" and isinstance(value, yaml.MappingNode):
            _yaml_mapping(value, tree, key, depth + 1)
            continue
        path = joined(key, name)
        if isinstance(value, yaml.MappingNode):
            tree.add(path, {}, line)
            _yaml_mapping(value, tree, path, depth + 1)
        elif isinstance(value, yaml.SequenceNode):
            tree.step(len(value.value))
            tree.add(path, [_scalar(each) for each in value.value], line)
            for at, each in enumerate(value.value):
                if isinstance(each, yaml.MappingNode):
                    _yaml_mapping(each, tree, f"{path}.{at}", depth + 1)
        else:
            tree.add(path, _scalar(value), line)


def _refuse_tags(node: yaml.Node) -> None:
    """Refuse a section or a list that is to become an object of some program.

    Raises:
        ConstructorError: it is one.
    """
    if not isinstance(node, yaml.ScalarNode) and node.tag not in _SECTIONS:
        said = f"could not determine a constructor for the tag {node.tag[:60]!r}"
        raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)


def _scalar(node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        return {}
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ArithmeticError, LookupError, AttributeError, TypeError):
        said = f"{node.value[:60]!r} is not what its tag says"
        raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from None


def read_toml_tree(text: str, file: str) -> Tree:
    """Return the settings of a TOML file.

    Raises:
        ValueError: it is no TOML.
    """
    tree = Tree(file)
    check_toml(text)
    _toml_table(tomllib.loads(text), tree, "", dict(_toml_lines(text)))
    return tree


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the keys with their lines."""
    section = ""
    for line, words in enumerate(text.split("\n"), 1):
        if header := _TOML_HEADER.match(words):
            section = header[1].strip().replace('"', "")
            yield section, line
        elif key := _TOML_KEY.match(words):
            yield joined(section, key[1].strip("\"'")), line


def _toml_table(table: dict[str, Any], tree: Tree, key: str, lines: dict[str, int]) -> None:
    for name, value in table.items():
        path = joined(key, name)
        line = lines.get(path, lines.get(key, 1))
        if isinstance(value, dict):
            tree.add(path, {}, line)
            _toml_table(value, tree, path, lines)
        else:
            tree.add(path, value, line)
