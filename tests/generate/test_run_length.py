"""How long a run is, and what it starts from, is said once: every target's files say the same."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from run_specs import EVERY

from planner import answers
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

LLAMA = "meta-llama/Llama-3.1-8B"
HUNDRED = {"global_batch_size": 32, "sequence_length": 1024, "training_tokens": 100 * 32 * 1024}
LORA = {"method": "lora", "framework": "megatron"}
DEFAULTS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "torchrun": (
        {"framework": "torch"},
        "settings.py",
        r'"--max-steps", type=int, default=([0-9_]+)',
    ),
    "megatron": ({"framework": "megatron"}, "launch.sh", "--train-iters ([0-9]+)"),
    "megatron-bridge": (LORA, "finetune.py", r'"--train-iters", type=int, default=([0-9_]+)'),
    "torchtitan": ({"framework": "torchtitan"}, "plan.py", r"\bsteps=([0-9_]+)"),
}
"""What the request says, and where a target has the steps of a run that says nothing of them."""


def written(model: str, **recipe: Any) -> dict[str, str]:
    cluster = {"gpu": "h100", "gpus_per_node": 8, "nodes": 2}
    request = parse_request({"model": model, "cluster": cluster, "recipe": recipe})
    resolved, plan = answers.suggest(request, allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)


@pytest.mark.parametrize("target", DEFAULTS)
@pytest.mark.parametrize(
    ("length", "steps", "default"),
    [
        ({"training_tokens": 100 * 32 * 1024 + 1}, 101, 101),
        ({"training_samples": 6400}, 200, 200),
        ({"training_samples": 6400, "padding_share": 0.3}, 200, 200),
        ({}, 1000, 100),
    ],
)
def test_the_steps_of_a_run_are_those_of_its_tokens(
    target: str, length: dict[str, Any], steps: int, default: int
) -> None:
    recipe, file, pattern = DEFAULTS[target]
    files = written(LLAMA, global_batch_size=32, sequence_length=1024, **recipe, **length)
    (found,) = re.findall(pattern, files[f"{target}/{file}"])
    assert int(found) == default
    shown = rf"(?:--steps|--train-iters|--training.steps) {steps}\b"
    assert re.search(shown, files["README.md"])
    if settings := files.get("trainer/sft.yaml"):  # which launchers start, and leave it to
        assert (f"\nmax_steps: {steps}\n" in settings) == bool(length)
        assert "_steps" not in files["launchers/README.md"]
    else:
        assert re.search(shown, files["launchers/README.md"])
    assert f"The time is for {steps} steps " in files["launchers/slurm.sh"]


def test_tokens_as_for_pretraining_start_from_random_weights_with_their_rate() -> None:
    few, many = (
        written("gpt2", framework="torch", training_tokens=tokens)
        for tokens in (10**7, 300 * 10**9)
    )
    for files, start, rate in ((few, "pretrained", 6.3e-5), (many, "random", 6.1e-4)):
        arguments, readme = files["torchrun/settings.py"], files["README.md"]
        assert f'default={rate}, help="learning rate' in arguments
        assert f"starting from {start} weights" in readme
        assert ('"random"], default="pretrained"' in arguments) == (start == "pretrained")
    assert "--steps 572205 " in many["README.md"]


def test_random_weights_take_their_own_rate_where_trained_ones_are_the_plans() -> None:
    arguments = written("gpt2", framework="torch")["torchrun/settings.py"]
    assert "lr=0.00015" in arguments.partition('if args.init == "random":')[2]
    anew = written("gpt2", framework="torch", job="pretrain")
    assert "set_defaults" not in anew["torchrun/settings.py"]
