"""The imports of emitted modules, by the names that each uses: none is missing, none is left over."""

import builtins
import re
import symtable
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen

IMPORTS = "# imports"
"""The line that a template of a module has in their place."""

_LINE_LENGTH = 100
_WHOLE = "the module itself"


@frozen
class _Known:
    source: str
    packages: tuple[str, ...]
    aliases: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]


@cache
def _known() -> _Known:
    return build(_Known, read("scripts", "imports"), "scripts/imports")


@cache
def _owners() -> Mapping[str, str]:
    return {name: module for module, names in _known().names.items() for name in names}


def with_imports(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a folder, in which each module imports what it uses.

    That is of Python's library, of the packages above, or of the modules beside it.
    """
    modules = {
        name.removesuffix(".py"): text
        for name, text in files.items()
        if name.endswith(".py") and f"\n{IMPORTS}\n" in text
    }
    owners = dict.fromkeys(modules, _WHOLE)
    owners |= {name: module for module, text in modules.items() for name in _names(text)[0]}
    written = {
        f"{module}.py": text.replace(f"\n{IMPORTS}\n", f"\n{_imports(text, owners)}\n")
        for module, text in modules.items()
    }
    return {**files, **written}


@lru_cache(maxsize=256)
def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a module defines, and those that it reads and does not define."""
    table = symtable.symtable(text, "module", "exec")
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    used = _used(table) - defined - {*dir(builtins), "__file__"}
    return frozenset(defined), frozenset(used)


def _used(table: symtable.SymbolTable) -> set[str]:
    is_module = table.get_type() == "module"
    here = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (is_module or symbol.is_global())
    }
    return here.union(*map(_used, table.get_children()))


def _imports(text: str, owners: Mapping[str, str]) -> str:
    _, used = _names(text)
    sections: dict[int, list[tuple[bool, str, str]]] = {0: [], 1: [], 2: []}
    named: dict[tuple[int, str], list[str]] = {}
    for name in used:
        if owners.get(name) == _WHOLE:
            sections[2].append((True, name, f"import {name}"))
        elif name in owners:
            named.setdefault((2, owners[name]), []).append(name)
        elif name in _owners():
            module = _owners()[name]
            named.setdefault((_section(module), module), []).append(name)
        elif name in _known().aliases:
            module = _known().aliases[name]
            sections[1].append((True, module, f"import {module} as {name}"))
        elif name in _known().packages or name in sys.stdlib_module_names:
            for module in _parts(name, text):
                sections[_section(name)].append((True, module, f"import {module}"))
        else:
            raise LookupError(f"no module is known to have {name}")
    for (section, module), names in named.items():
        sections[section].append((False, module, _from(module, names)))
    return "\n\n".join(
        "\n".join(line for _, _, line in sorted(lines, key=lambda each: (not each[0], each[1])))
        for _, lines in sorted(sections.items())
        if lines
    )


def _section(module: str) -> int:
    return 0 if module.partition(".")[0] in sys.stdlib_module_names else 1


def _parts(name: str, text: str) -> Iterable[str]:
    """Return what to import of a module: importlib's own modules each have to be named."""
    if name != "importlib":
        return [name]
    return sorted({f"importlib.{part}" for part in re.findall(r"\bimportlib\.(\w+)", text)})


def _from(module: str, names: Sequence[str]) -> str:
    ordered = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name.lower()))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= _LINE_LENGTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in ordered), ")"])
