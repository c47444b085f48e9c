"""What is written for a dozen plans, byte for byte: `pytest --update-golden`, and read the diff."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import GOLDEN

from planner import answers
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

TOOLS = Path(sys.executable).parent
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
WHOLE = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "context_parallel_size": 1}
BATCH = {"sequence_length": 512, "global_batch_size": 64}
THREE_D = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "pipeline_schedule": "1f1b",
    "context_parallel_size": 1,
    "zero_stage": 1,
}

PLANS: dict[str, dict[str, Any]] = {
    "one-gpu": {"model": "gpt2", "cluster": {"gpu": "rtx-4090", "gpus_per_node": 1}},
    "ddp": {"model": "gpt2", "cluster": FOUR, "strategy": {"zero_stage": 0, **WHOLE}},
    "zero-1": {"model": "gpt2", "cluster": FOUR, "strategy": {"zero_stage": 1, **WHOLE}},
    "zero-3-recompute": {
        "model": LLAMA,
        "cluster": FOUR,
        "strategy": {"zero_stage": 3, "recompute": "full", **WHOLE},
    },
    "hsdp": {
        "model": LLAMA,
        "cluster": TWO_NODES,
        "strategy": {"zero_stage": 3, "data_parallel_shard_size": 4, **WHOLE},
    },
    "context": {
        "model": LLAMA,
        "cluster": FOUR,
        "strategy": {**WHOLE, "zero_stage": 3, "context_parallel_size": 2},
    },
    "local-sgd": {
        "model": "gpt2",
        "cluster": {"gpu": "rtx-3090", "gpus_per_node": 4},
        "strategy": {"synchronize_every": 8},
    },
    "tensor-and-sequence": {
        "model": LLAMA,
        "cluster": FOUR,
        "strategy": {"tensor_parallel_size": 2, "sequence_parallel": True, "zero_stage": 2},
    },
    "pipeline": {
        "model": "gpt2",
        "cluster": FOUR,
        "strategy": {"pipeline_parallel_size": 4, "pipeline_schedule": "1f1b"},
    },
    "three-dimensions": {"model": LLAMA, "cluster": TWO_NODES, "strategy": THREE_D},
    "deepspeed-offload": {
        "model": LLAMA,
        "cluster": FOUR,
        "recipe": {"framework": "deepspeed"},
        "strategy": {"zero_stage": 3, "offload": "optimizer", **WHOLE},
    },
    "deepspeed-pipeline": {
        "model": "gpt2",
        "cluster": FOUR,
        "recipe": {"framework": "deepspeed", "precision": "fp32"},
        "strategy": {
            "pipeline_parallel_size": 2,
            "tensor_parallel_size": 1,
            "context_parallel_size": 1,
            "zero_stage": 0,
            "recompute": "full",
        },
    },
    "megatron": {
        "model": LLAMA,
        "cluster": TWO_NODES,
        "recipe": {"framework": "megatron"},
        "strategy": THREE_D,
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
SAME_FOR_ALL = {"config.json", "plan.json"}
"""The model's own, and what test_wire.py checks field by field."""


@pytest.mark.parametrize("name", PLANS)
def test_what_is_written_is_what_was_read(name: str, golden: Callable[[str, str], None]) -> None:
    payload = {**PLANS[name], "recipe": {**BATCH, **PLANS[name].get("recipe", {})}}
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None))
    assert {"README.md", "plan.json"} <= set(files)
    own = {path: text for path, text in files.items() if Path(path).name not in SAME_FOR_ALL}
    for path, text in own.items():
        golden(f"{name}/{path}", text)
    kept = {path for path in (GOLDEN / name).rglob("*") if path.is_file()}
    assert kept == {GOLDEN / name / path for path in own}


def test_every_name_in_the_scripts_is_known() -> None:
    """A plan's values are numbers and texts, whatever classes they had in the planner."""
    command = [f"{TOOLS}/ruff", "check", "--isolated", "--no-cache", "--select=F", str(GOLDEN)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
