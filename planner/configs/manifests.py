"""Kubernetes manifests -> what their containers start, with the variables and the GPUs that they give it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from planner.configs.found import LAUNCH, Found, Setting
from planner.configs.launch import read_launches
from planner.configs.tree import Tree, read_yaml_trees, unfilled

KUBERNETES = "Kubernetes"
_SIGNS = tuple(re.compile(rf"(?m)^{key}:") for key in ("apiVersion", "kind"))
_CONTAINER = re.compile(r"(.*ontainers\.\d{1,4})\.(?:command|args)")
_ENTRY = re.compile(r"(.*)\.entrypoint")
"""Of Ray's jobs."""
_SHELLS = frozenset({"bash", "sh"})
_OPERATORS = frozenset({"PyTorchJob", "TrainJob"})
"""Their operator sets PET_* for torchrun: processes, nodes and where these meet."""
_SET = ("PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_RDZV_ENDPOINT")
_ESCAPED = re.compile(r'["`\\]')
"""What means something between double quotes, besides $."""
_GPUS = "resources.limits.nvidia.com/gpu"
_REPLICAS = re.compile(r"spec\.pytorchReplicaSpecs\.\w+\.replicas|spec\.trainer\.numNodes")


def is_manifest(text: str) -> bool:
    """Return whether a YAML file is Kubernetes'."""
    return all(sign.search(text) for sign in _SIGNS)


def read_manifest(text: str, file: str) -> tuple[Found, ...]:
    """Return what the containers of a manifest start; the manifest itself where that is nothing known.

    Raises:
        ValueError: it, or a script in it, is longer or deeper than such are.
        yaml.YAMLError: it is no YAML.
    """
    trees = tuple(read_yaml_trees(text, file))
    found = tuple(each for tree in trees for each in _started(tree))
    return found or tuple(tree.found(KUBERNETES) for tree in trees if tree.settings)


def _started(tree: Tree) -> Iterator[Found]:
    kind = tree.settings.get("kind")
    is_operated = kind is not None and kind.text in _OPERATORS
    for place, script, line in _scripts(tree):
        around = dict(_around(tree, place, line))
        if is_operated:
            nodes = [each for key, each in tree.settings.items() if _REPLICAS.fullmatch(key)]
            if nodes and all(each.whole for each in nodes):
                count = sum(each.whole or 0 for each in nodes)
                for name in ("slurm.nodes", "nnodes") if "torchrun" in script else ("slurm.nodes",):
                    around[name] = replace(nodes[-1], key=name, value=count)
            for name in _SET:
                around.setdefault(
                    f"environment.{name}", Setting(key=name, value="", line=line, file=tree.file)
                )
        for each in read_launches(script, tree.file):
            own = {key: replace(one, line=line) for key, one in each.settings.items()}
            yield replace(each, settings={**around, **own} if each.kind == LAUNCH else own)


def _scripts(tree: Tree) -> Iterator[tuple[str, str, int]]:
    """Yield where a container, or a job of Ray, stands, what it runs, and its line."""
    settings = tree.settings
    for place in dict.fromkeys(
        match[1] for key in settings if (match := _CONTAINER.fullmatch(key))
    ):
        given = [
            settings[key] for name in ("command", "args") if (key := f"{place}.{name}") in settings
        ]
        words = [
            str(word)
            for one in given
            for word in (one.value if isinstance(one.value, list) else [])
        ]
        is_shell = bool(words) and PurePosixPath(words[0]).name in _SHELLS
        script = words[-1] if is_shell and len(words) > 1 else " ".join(map(_quoted, words))
        yield place, script, given[-1].line
    for key, setting in settings.items():
        if _ENTRY.fullmatch(key) and setting.text:
            yield key.rpartition(".")[0], setting.text, setting.line


def _quoted(word: str) -> str:
    """Return a word as a shell has it; a $ in it stays open: envsubst, or Kubernetes, puts a value in."""
    if "$" not in word:
        return shlex.quote(word)
    return '"' + _ESCAPED.sub(r"\\\g<0>", word) + '"'


def _around(tree: Tree, place: str, line: int) -> Iterator[tuple[str, Setting]]:
    """Yield what a container gives its command: that each replica runs it, its GPUs and variables."""
    yield "starter", Setting(key="starter", value=KUBERNETES, line=line, file=tree.file)
    gpus = tree.settings.get(f"{place}.{_GPUS}")
    if gpus is not None:
        yield "slurm.gpus_per_node", gpus
    names = (
        key for key in tree.settings if key.startswith(f"{place}.env.") and key.endswith(".name")
    )
    for key in names:
        value = tree.settings.get(f"{key.removesuffix('name')}value")
        if value is not None:
            named = f"environment.{tree.settings[key].text[:60]}"
            yield named, replace(unfilled(value), key=named)
