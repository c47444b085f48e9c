"""Python -> the arguments of its TrainingArguments and DeepSpeed dictionaries, read and never run."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from planner.configs.found import (
    ACCELERATE,
    ADAPTERS,
    DEEPSPEED,
    TRAINER,
    UNKNOWN,
    Found,
    Setting,
)
from planner.configs.tools import in_our_words
from planner.configs.tree import Tree, joined
from planner.core.python_source import PythonSource, parse_python

_MOST = 20
"""Calls, and dictionaries, of a script that are read."""
_METHODS = {
    f"{name}Config": {"Reward": "a reward model"}.get(name, name)
    for name in (
        *("DPO", "GRPO", "Reward", "KTO", "ORPO", "CPO", "RLOO", "PPO", "BCO", "XPO", "GKD"),
        *("OnlineDPO", "NashMD", "PRM", "Distillation"),
    )
}
_TRAINERS = frozenset({"SFTConfig", *_METHODS})
"""Of TRL: TrainingArguments with more fields; and what they train where that is no SFT."""
_OF_DEEPSPEED = frozenset(
    {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"}
)


_LORA = "LoraConfig"
_PARALLELISM = "ParallelismConfig"
_LOADED = "from_pretrained"
_OF_LOADED = frozenset({"dtype", "torch_dtype", "attn_implementation"})
_GONE = frozenset({"load_in_4bit", "load_in_8bit", "use_auth_token"})
"""Of from_pretrained, in earlier releases."""
_TRAINS = frozenset({"Trainer", "Seq2SeqTrainer"}) | {
    f"{name.removesuffix('Config')}Trainer" for name in _TRAINERS
}
_MENTIONS_ADAPTERS = re.compile(r"(?i)peft|lora|adapter")
_OF_ADAPTERS = frozenset({_LORA, "BitsAndBytesConfig"})


def read_python(text: str, file: str) -> tuple[Found, ...]:
    """Return what a script says to the Trainer and to DeepSpeed.

    Raises:
        SyntaxError: it is no Python.
        ValueError: it has more braces than a script.
    """
    source = PythonSource(parse_python(text))
    named = dict(_constants(source))
    found: list[Found] = []
    inside: set[ast.AST] = set()
    calls = [each for each in source.nodes if isinstance(each, ast.Call)]
    for node in islice((each for each in calls if _is_trainer(_called(each))), _MOST):
        trainer = _trainer(node, file, named)
        found.append(trainer)
        given = [keyword.value for keyword in node.keywords]
        inside.update(given)
        inside.update(
            named[each.id] for each in given if isinstance(each, ast.Name) and each.id in named
        )
        if any(key.startswith("deepspeed.") for key in trainer.settings):
            found.append(trainer.inside("deepspeed", DEEPSPEED))
    tables = (each for each in source.nodes if isinstance(each, ast.Dict))
    alone = (each for each in tables if each not in inside and _keys(each) & _OF_DEEPSPEED)
    for table in islice(alone, _MOST):
        tree = Tree(file)
        _entries(tree, "", table, named)
        found.append(tree.found(DEEPSPEED))
    if not found:
        return ()
    loaded = _loaded(calls, file, named)
    return (
        *(_spoken(each, loaded) for each in found),
        *_adapters(calls, file, named, has_adapters=bool(_MENTIONS_ADAPTERS.search(text))),
        *_divided(calls, file, named),
    )


def _spoken(found: Found, loaded: Mapping[str, Setting]) -> Found:
    """Return arguments under our names, with the model that is loaded for them."""
    if found.kind != TRAINER:
        return in_our_words(found, DEEPSPEED)
    called = found.settings["class"].text
    whole = replace(found, settings={**loaded, **found.settings})
    return in_our_words(whole, "trl" if called in _TRAINERS else TRAINER)


def _loaded(calls: Iterable[ast.Call], file: str, named: dict[str, ast.expr]) -> dict[str, Setting]:
    """Return what the first model is, and how it is loaded."""
    tree = Tree(file)
    for node in calls:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_model = isinstance(owner, ast.Name) and "Model" in owner.id
        if _called(node) == _LOADED and is_model and not tree.settings:
            if node.args:
                _add(tree, "model_name_or_path", node.args[0], node.lineno, named)
            for keyword in node.keywords:
                if keyword.arg in _OF_LOADED | _GONE:
                    key = keyword.arg if keyword.arg in _OF_LOADED else f"call.{keyword.arg}"
                    _add(tree, key, keyword.value, keyword.lineno, named)
        elif _called(node).endswith("Trainer"):
            given = (each for each in node.keywords if each.arg == "model")
            for keyword in given:
                if isinstance(keyword.value, ast.Constant):
                    _add(tree, "model_name_or_path", keyword.value, keyword.lineno, named)
    loaded = {key: replace(each, key=f"{_LOADED}.{key}") for key, each in tree.settings.items()}
    return loaded | _told_trainers(calls, file, named)


def _told_trainers(
    calls: Iterable[ast.Call], file: str, named: dict[str, ast.expr]
) -> dict[str, Setting]:
    """Return the arguments of the trainers themselves, each under `call`."""
    tree = Tree(file)
    for node in islice((each for each in calls if _called(each) in _TRAINS), _MOST):
        for keyword in node.keywords:
            if keyword.arg is not None:
                _add(tree, f"call.{keyword.arg}", keyword.value, keyword.lineno, named)
    return tree.settings


def _divided(calls: Iterable[ast.Call], file: str, named: dict[str, ast.expr]) -> Iterator[Found]:
    """Yield accelerate's ParallelismConfig as its file has it."""
    for node in islice((each for each in calls if _called(each) == _PARALLELISM), _MOST):
        tree = Tree(file)
        for keyword in node.keywords:
            if keyword.arg is not None:
                key = f"parallelism_config.parallelism_config_{keyword.arg}"
                _add(tree, key, keyword.value, keyword.lineno, named)
        yield in_our_words(tree.found(ACCELERATE, is_whole=False), ACCELERATE)


def _adapters(
    calls: Iterable[ast.Call], file: str, named: dict[str, ast.expr], *, has_adapters: bool
) -> Iterator[Found]:
    for node in islice((each for each in calls if _called(each) in _OF_ADAPTERS), _MOST):
        tree = Tree(file)
        for keyword in node.keywords:
            if keyword.arg is not None:
                _add(tree, keyword.arg, keyword.value, keyword.lineno, named)
        if _called(node) == _LORA:
            tree.add("adapters", _LORA, node.lineno)
        if has_adapters:
            tree.add("mentioned", value=True, line=node.lineno)
        yield Found(file=file, kind=ADAPTERS, settings=tree.settings)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_trainer(name: str) -> bool:
    return name.endswith("TrainingArguments") or name in _TRAINERS


def _constants(source: PythonSource) -> Iterator[tuple[str, ast.expr]]:
    """Yield what names of the module stand for, where that is said once."""
    seen: dict[str, ast.expr | None] = {}
    for node in source.nodes:
        for target, value in _assigned(node):
            seen[target] = None if target in seen else value
    yield from ((name, value) for name, value in seen.items() if value is not None)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
    elif isinstance(node, ast.AugAssign | ast.For) and isinstance(node.target, ast.Name):
        yield node.target.id, None


def _keys(node: ast.Dict) -> set[str]:
    return {
        key.value
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _trainer(node: ast.Call, file: str, named: dict[str, ast.expr]) -> Found:
    tree = Tree(file)
    for keyword in node.keywords:
        if keyword.arg is not None:
            _add(tree, keyword.arg, keyword.value, keyword.lineno, named)
    is_whole = not node.args[1:] and all(keyword.arg is not None for keyword in node.keywords)
    name = _called(node)
    tree.add("class", name, node.lineno)
    if name in _METHODS:
        tree.add("method", _METHODS[name], node.lineno)
    return tree.found(TRAINER, is_whole=is_whole)


def _add(tree: Tree, key: str, value: ast.expr, line: int, named: dict[str, ast.expr]) -> None:
    """Add a value that is written out, or the name of one."""
    if isinstance(value, ast.Name) and value.id in named:
        value = named[value.id]
    if isinstance(value, ast.Dict):
        tree.add(key, {}, line)
        _entries(tree, key, value, named)
        return
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        is_dtype = value.value.id == "torch"
        tree.add(key, value.attr if is_dtype else UNKNOWN, line)
        return
    try:
        plain = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        plain = UNKNOWN
    if plain is not None and not isinstance(plain, str | int | float | bool | list | tuple):
        plain = UNKNOWN
    tree.add(key, list(plain) if isinstance(plain, tuple) else plain, line)


def _entries(tree: Tree, key: str, node: ast.Dict, named: dict[str, ast.expr]) -> None:
    for name, value in zip(node.keys, node.values, strict=True):
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            _add(tree, joined(key, name.value), value, name.lineno, named)
