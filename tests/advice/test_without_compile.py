"""A plan that has no files for torch.compile's sake is given without it, and says so."""

from typing import Any

import pytest

from planner import answers
from planner.request.schema import parse_request

LLAMA_ON_2_NODES: dict[str, Any] = {
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "cluster": {
        "gpu": "h100",
        "gpus_per_node": 8,
        "nodes": 2,
        "inter_node": {"gb_per_s_per_node": 400},
    },
    "recipe": {
        "sequence_length": 1024,
        "global_batch_size": 8,
        "precision": "bf16",
        "framework": "torch",
        "compile": True,
    },
}
"""pytorch/torchtune recipes/configs/llama3_3/70B_full_multinode.yaml: 8 sequences over 16 GPUs need TP."""


def test_divided_blocks_are_proposed_without_compile_and_said_to_be() -> None:
    resolved, plan = answers.suggest(parse_request(LLAMA_ON_2_NODES), allow_paths=False)
    assert plan.chosen.strategy.divides_model
    assert "torchrun" in plan.launch.targets
    assert not plan.job.recipe.compile
    assert not resolved.job.recipe.compile
    assert [each.text for each in resolved.assumptions if each.field == "recipe.compile"] == [
        "no torch.compile, though asked for: blocks that are divided over GPUs are not compiled"
    ]


@pytest.mark.parametrize("batch", [16, 64])
def test_what_can_be_compiled_is(batch: int) -> None:
    recipe = LLAMA_ON_2_NODES["recipe"] | {"global_batch_size": batch}
    request = parse_request({**LLAMA_ON_2_NODES, "model": "gpt2", "recipe": recipe})
    resolved, plan = answers.suggest(request, allow_paths=False)
    assert plan.job.recipe.compile
    assert not [each for each in resolved.assumptions if each.field == "recipe.compile"]
