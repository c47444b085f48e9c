"""What emitted modules import: what they use, from where it is, and never in a circle."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from graphlib import TopologicalSorter

import pytest
from run_specs import divided, with_layout, written
from test_generate import ALL, CONTEXT, LLAMA, PIPELINE, SPEC, TENSOR

from planner.generate import RunSpec
from planner.generate.imports import with_imports

LONGEST = 400
"""Lines of an emitted module."""
MOST_FILES, MOST_LINES = 5, 1260
"""Modules of a target, beside the launcher, and their lines in all."""
PLANS = {
    "ddp": SPEC,
    "zero-1": with_layout(SPEC, zero_stage=1),
    "zero-3": with_layout(SPEC, zero_stage=3),
    "classifier": with_layout(SPEC, task="sequence-classification"),
    "deepspeed": with_layout(replace(SPEC, framework="deepspeed"), zero_stage=3),
    "deepspeed-pipeline": divided(replace(SPEC, framework="deepspeed"), **PIPELINE),
    "divided": divided(replace(SPEC, model_config=LLAMA), **TENSOR, **PIPELINE, **CONTEXT),
}


@pytest.mark.parametrize("spec", PLANS.values(), ids=PLANS)
def test_modules_are_short_and_import_each_other_in_one_direction(spec: RunSpec) -> None:
    for target, modules in by_target(written(spec, ALL)).items():
        imported = {name: imports_of(text) & modules.keys() for name, text in modules.items()}
        order = [*TopologicalSorter(imported).static_order()]
        assert order[-1] == "train", (target, order)
        lines = [text.count("\n") for text in modules.values()]
        assert max(lines) <= LONGEST
        assert len(modules) <= MOST_FILES
        assert sum(lines) <= MOST_LINES


def by_target(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the modules beside each train.py, by name."""
    modules: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        target, _, name = path.partition("/")
        if name.endswith(".py") and f"{target}/train.py" in files:
            modules.setdefault(target, {})[name.removesuffix(".py")] = text
    return modules


def imports_of(text: str) -> set[str]:
    found = ast.walk(ast.parse(text))
    return {node.module or "" for node in found if isinstance(node, ast.ImportFrom)}


def test_a_module_beside_is_imported_whole_where_its_name_is_used() -> None:
    own = "def f() -> int:\n    return settings.ONE + len(g())\n"
    files = {"a.py": f'"""A."""\n\n# imports\n\n\n{own}', "settings.py": G}
    assert "\n\nimport settings\nfrom settings import g\n\n" in with_imports(files)["a.py"]


def test_names_of_an_inner_scope_are_not_imported() -> None:
    own = "def f(signal: int) -> Path:\n    time = signal\n    return g(time)\n"
    files = with_imports({"a.py": f'"""A."""\n\n# imports\n\n\n{own}', "b.py": G, "c.txt": "x"})
    assert files["a.py"].startswith(
        '"""A."""\n\nfrom pathlib import Path\n\nfrom b import g\n\n\ndef f'
    )
    assert files["b.py"] == G.replace("# imports", "import importlib.util\nimport math")
    assert files["c.txt"] == "x"


G = '"""B."""\n\n# imports\n\ng = [math.pi, importlib.util]\n'


def test_a_name_that_no_module_has_is_an_error() -> None:
    with pytest.raises(LookupError, match="no module is known to have nowhere"):
        with_imports({"a.py": '"""A."""\n\n# imports\n\nb = nowhere\n'})
