"""Every target honours a recipe's loss or refuses it by name."""

from typing import Any

import pytest
import yaml
from run_specs import EVERY, script_of

from planner import answers
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

LLAMA = "meta-llama/Llama-3.1-8B"


def bundle(
    loss: str, framework: str = "torch", model: str = LLAMA, **recipe: Any
) -> dict[str, str]:
    request = {
        "model": model,
        "cluster": {"gpu": "h200", "gpus_per_node": 8},
        "recipe": {"loss": loss, "framework": framework, "sequence_length": 8192} | recipe,
        "strategy": {"family": "zero-3", "recompute": "full"},
    }
    resolved, plan = answers.suggest(parse_request(request), allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)


def folders(files: dict[str, str]) -> set[str]:
    return {name.partition("/")[0] for name in files if name.endswith(("/train.py", "/plan.py"))}


def test_the_loss_in_chunks_is_in_the_script_of_pytorch() -> None:
    files = bundle("chunked")
    assert folders(files) >= {"torchrun", "trainer"}
    assert "LOSS_CHUNK_TOKENS = 1_024" in script_of(files, "torchrun")


@pytest.mark.parametrize("framework", ["torch", "deepspeed"])
def test_a_fused_loss_is_ligers_in_every_script(framework: str) -> None:
    files = bundle("fused", framework)
    assert folders(files) == {"trainer"} | ({"torchrun"} if framework == "torch" else set())
    settings = yaml.safe_load(files["trainer/sft.yaml"])
    assert settings["use_liger_kernel"] is True
    assert settings["liger_kernel_config"]["fused_linear_cross_entropy"] is False  # TRL has its own
    if framework == "torch":
        assert "fuse_loss(model, args)" in script_of(files, "torchrun")
    for name in folders(files):
        assert "liger-kernel" in files[f"{name}/requirements.txt"]


@pytest.mark.parametrize("loss", ["standard", "chunked", "fused"])
@pytest.mark.parametrize("framework", ["torch", "deepspeed"])
@pytest.mark.parametrize("kind", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"])
def test_every_loss_is_written_beside_compiled_blocks(loss: str, framework: str, kind: str) -> None:
    files = bundle(loss, framework, kind, compile=True)
    own = {"torchrun"} if framework == "torch" else set()
    assert folders(files) == {"trainer"} | own


def test_torchtitan_wraps_its_loss_only_where_the_plan_has_chunks() -> None:
    assert "loss=ChunkedLossWrapper" in bundle("chunked", "torchtitan")["torchtitan/plan.py"]
    assert "Chunked" not in bundle("standard", "torchtitan")["torchtitan/plan.py"]


@pytest.mark.parametrize(
    ("loss", "framework", "model", "target", "reason"),
    [
        ("fused", "megatron", LLAMA, "megatron", "turns Transformer Engine's fused loss down"),
        ("fused", "torch", "gpt2", "trainer", "no fused loss for models of type gpt2"),
        ("fused", "torch", "ibm-granite/granite-3.1-2b-base", "torchrun", "of type granite"),
        ("chunked", "torch", "google-bert/bert-base-uncased", "torchrun", "of type bert"),
    ],
)
def test_what_a_target_has_not_it_refuses_by_name(
    loss: str, framework: str, model: str, target: str, reason: str
) -> None:
    request = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {
            "loss": loss,
            "framework": framework,
            "sequence_length": 512,
            "job": "pretrain",
        },
    }
    _, plan = answers.suggest(parse_request(request), allow_paths=False)
    assert reason in plan.launch.unwritten[target]
