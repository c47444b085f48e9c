"""What is written for a dozen plans, byte for byte: `pytest --update-golden`, and read the diff.

The first plan is held as a folder, the others as differences (differences.py says how to read one).
"""

import ast
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from differences import difference, rebuilt
from run_specs import EVERY
from script_checks import TOOLS

from planner import answers
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

GOLDEN = Path(__file__).parents[1] / "golden"
LLAMA = {
    "_name_or_path": "tiny-llama",
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
FOUR = {"gpu": "a100", "gpus_per_node": 4}
TWO_NODES = {"gpu": "h100", "gpus_per_node": 4, "nodes": 2, "inter_node": "infiniband-ndr"}
UNDIVIDED = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "context_parallel_size": 1}
BATCH = {
    "sequence_length": 512,
    "global_batch_size": 64,
    "framework": "torch",
    "loss": "standard",
    "compile": False,
}
THREE_D = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "pipeline_schedule": "1f1b",
    "context_parallel_size": 1,
    "zero_stage": 1,
}

PLANS: dict[str, dict[str, Any]] = {
    "three-dimensions": {"model": LLAMA, "cluster": TWO_NODES, "strategy": THREE_D},
    "pipeline": {
        "model": "gpt2",
        "cluster": FOUR,
        "strategy": {"pipeline_parallel_size": 4, "pipeline_schedule": "1f1b"},
    },
    "tensor-and-sequence": {
        "model": LLAMA,
        "cluster": FOUR,
        "strategy": {"tensor_parallel_size": 2, "sequence_parallel": True, "zero_stage": 2},
    },
    "megatron": {
        "model": LLAMA,
        "cluster": TWO_NODES,
        "recipe": {"framework": "megatron"},
        "strategy": THREE_D,
    },
    "zero-1": {"model": "gpt2", "cluster": FOUR, "strategy": {"zero_stage": 1, **UNDIVIDED}},
    "ddp": {"model": "gpt2", "cluster": FOUR, "strategy": {"zero_stage": 0, **UNDIVIDED}},
    "one-gpu": {"model": "gpt2", "cluster": {"gpu": "rtx-4090", "gpus_per_node": 1}},
    "local-sgd": {
        "model": "gpt2",
        "cluster": {"gpu": "rtx-3090", "gpus_per_node": 4},
        "strategy": {"synchronize_every": 8},
    },
    "zero-3-recompute": {
        "model": LLAMA,
        "cluster": FOUR,
        "strategy": {"zero_stage": 3, "recompute": "full", **UNDIVIDED},
    },
    "hsdp": {
        "model": LLAMA,
        "cluster": TWO_NODES,
        "strategy": {"zero_stage": 3, "data_parallel_shard_size": 4, **UNDIVIDED},
    },
    "context": {
        "model": LLAMA,
        "cluster": FOUR,
        "strategy": {**UNDIVIDED, "zero_stage": 3, "context_parallel_size": 2},
    },
    "qlora": {
        "model": LLAMA,
        "cluster": FOUR,
        "recipe": {"method": "qlora", "lora": {"rank": 8, "double_quantization": True}},
        "strategy": {"zero_stage": 3, **UNDIVIDED},
    },
    "bert": {
        "model": "google-bert/bert-base-uncased",
        "cluster": {"gpu": "t4", "gpus_per_node": 2},
        "strategy": {"zero_stage": 0},
    },
    "classifier": {
        "model": "FacebookAI/roberta-base",
        "cluster": {"gpu": "t4", "gpus_per_node": 2},
        "recipe": {"task": "sequence-classification"},
        "strategy": {"zero_stage": 3},
    },
}
"""Each is near to some before it; the first has the most lines that no other has."""
WHOLE = next(iter(PLANS))
SAME_FOR_ALL = {"config.json", "plan.json"}
"""The model's own, and what tests/answers checks field by field."""


def rendered(payload: Mapping[str, Any]) -> dict[str, str]:
    payload = {**payload, "recipe": {**BATCH, **payload.get("recipe", {})}}
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert {"README.md", "plan.json"} <= set(files)
    return {path: text for path, text in files.items() if Path(path).name not in SAME_FOR_ALL}


@pytest.fixture(scope="module")
def plans() -> dict[str, dict[str, str]]:
    """The files of every plan."""
    return {name: rendered(payload) for name, payload in PLANS.items()}


@pytest.fixture(scope="module")
def folder(plans: dict[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of every plan on disk, for tools to read."""
    folder = tmp_path_factory.mktemp("plans")
    for name, files in plans.items():
        write(folder, {f"{name}/{path}": text for path, text in files.items()})
    return folder


def write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def test_what_is_written_is_what_was_read(
    plans: dict[str, dict[str, str]], request: pytest.FixtureRequest
) -> None:
    expected: dict[str, str] = {}
    before: dict[str, str] = {}
    for name, files in plans.items():
        own = {f"{name}/{path}": text for path, text in files.items()}
        expected |= own if name == WHOLE else {f"{name}.diff": difference(files, before)}
        before |= own
    if request.config.getoption("--update-golden"):
        shutil.rmtree(GOLDEN)
        write(GOLDEN, expected)
    paths = [path for path in GOLDEN.rglob("*") if path.is_file()]
    held = {str(path.relative_to(GOLDEN)): path.read_text(encoding="utf-8") for path in paths}
    assert held.keys() == expected.keys()
    for path, text in expected.items():
        assert held[path] == text


def test_a_difference_loses_nothing_of_a_plan(plans: dict[str, dict[str, str]]) -> None:
    """So whatever changes in a plan changes its difference, or a file that is held before it."""
    held: dict[str, str] = {}
    for name, files in plans.items():
        if name != WHOLE:
            assert rebuilt(difference(files, held), held) == files
        held |= {f"{name}/{path}": text for path, text in files.items()}


def test_every_name_in_the_scripts_is_known(folder: Path) -> None:
    """A plan's values are numbers and texts, whatever classes they had in the planner."""
    command = [f"{TOOLS}/ruff", "check", "--isolated", "--no-cache", "--select=F", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_shell_script_passes_shellcheck(folder: Path) -> None:
    command = [f"{TOOLS}/shellcheck", *map(str, folder.rglob("*.sh"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def every_document(text: str) -> list[Any]:
    """Return what a file of YAML holds, one object a document."""
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize(
    ("suffix", "parse"), [(".py", ast.parse), (".json", json.loads), (".yaml", every_document)]
)
def test_every_file_is_of_its_language(
    plans: dict[str, dict[str, str]], suffix: str, parse: Callable[[str], object]
) -> None:
    texts = [
        text for files in plans.values() for path, text in files.items() if path.endswith(suffix)
    ]
    assert texts
    assert all(parse(text) for text in texts)
