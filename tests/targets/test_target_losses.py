"""Every target honours a recipe's loss or refuses it by name."""

import json
from typing import Any

import pytest
from run_specs import script_of

from planner import answers
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

LLAMA = "meta-llama/Llama-3.1-8B"


def bundle(
    loss: str, framework: str = "torch", model: str = LLAMA, **recipe: Any
) -> dict[str, str]:
    request = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"loss": loss, "framework": framework, "sequence_length": 8192} | recipe,
        "strategy": {"family": "zero-3", "recompute": "full"},
    }
    resolved, plan = answers.suggest(parse_request(request), allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None))


def folders(files: dict[str, str]) -> set[str]:
    return {
        name.partition("/")[0] for name in files if name.endswith("train.py") or "plan.py" in name
    }


def test_the_loss_in_chunks_is_in_the_scripts_of_pytorch_accelerate_and_trainer() -> None:
    files = bundle("chunked")
    assert folders(files) >= {"torchrun", "accelerate", "trainer"}
    for name in ("torchrun", "accelerate", "trainer"):
        assert "LOSS_CHUNK_TOKENS = 1_024" in script_of(files, name)


@pytest.mark.parametrize("framework", ["torch", "deepspeed"])
def test_a_fused_loss_is_ligers_through_trainer_alone(framework: str) -> None:
    files = bundle("fused", framework)
    assert folders(files) & {"torchrun", "accelerate", "trainer", "deepspeed"} == {"trainer"}
    assert json.loads(files["trainer/training_arguments.json"])["use_liger_kernel"] is True
    assert "liger-kernel" in files["trainer/requirements.txt"]


def test_torchtitan_wraps_its_loss_only_where_the_plan_has_chunks() -> None:
    assert "loss=ChunkedLossWrapper" in bundle("chunked", "torchtitan")["torchtitan/plan.py"]
    assert "Chunked" not in bundle("standard", "torchtitan")["torchtitan/plan.py"]


@pytest.mark.parametrize(
    ("loss", "framework", "model", "target", "reason"),
    [
        ("fused", "megatron", LLAMA, "megatron", "turns Transformer Engine's fused loss down"),
        ("fused", "torch", LLAMA, "torchrun", "Liger's"),
        ("fused", "torch", "gpt2", "trainer", "no fused loss for models of type gpt2"),
        ("chunked", "deepspeed", LLAMA, "trainer", "its own forward alone"),
        ("chunked", "torch", "microsoft/phi-2", "torchrun", "not of phi"),
    ],
)
def test_what_a_target_has_not_it_refuses_by_name(
    loss: str, framework: str, model: str, target: str, reason: str
) -> None:
    request = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"loss": loss, "framework": framework, "sequence_length": 1024},
    }
    _, plan = answers.suggest(parse_request(request), allow_paths=False)
    assert reason in plan.launch.unwritten[target]
