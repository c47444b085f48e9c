"""The matmuls of a block that a checkpoint of PyTorch runs again, against what the planner says it leaves off."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import transformers
from test_decoders import HIDDEN, configuration
from torch.utils.flop_counter import FlopCounterMode

from planner.models.architectures import read_model

LAYERS, TOKENS = 3, 16
MATMULS = (torch.ops.aten.mm, torch.ops.aten.addmm)
UNREAD = ("gemma", "gpt2", "gpt_neox", "granite", "llama", "opt", "phi", "qwen3", "starcoder2")
READ = ("olmo2", "exaone4")
"""A norm follows the MLP."""
DROPPED: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("gpt2", {"resid_pdrop": 0.1}),
    ("opt", {"dropout": 0.1}),
)


def matmul_flops(config: Any, *, recompute: bool) -> int:
    """Count the FLOPs of the matmuls with weights that one training step runs."""
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_config(config).train()
    if recompute:
        old_name = model.gradient_checkpointing_enable  # of transformers 5.20
        getattr(model, "activation_checkpointing_enable", old_name)()
    tokens = torch.randint(2, 100, (1, TOKENS))
    with FlopCounterMode(display=False) as counted:
        model(input_ids=tokens, labels=tokens).loss.backward()
    by_operation = counted.get_flop_counts()["Global"]
    return sum(by_operation.get(each, 0) for each in MATMULS)


@pytest.mark.parametrize(
    ("model_type", "dropouts", "is_unread"),
    [
        *((name, {}, True) for name in UNREAD),
        *((name, {}, False) for name in READ),
        *((name, dropouts, False) for name, dropouts in DROPPED),
    ],
)
def test_recompute_leaves_off_the_last_matmul_that_nothing_reads(
    model_type: str, dropouts: Mapping[str, float], *, is_unread: bool
) -> None:
    config = configuration(model_type, LAYERS, "sdpa")
    for name, value in dropouts.items():
        setattr(config, name, value)
    (block,) = read_model("tiny", {**config.to_dict(), "hidden_size": HIDDEN}).blocks
    assert block.leaves_last_unread == is_unread
    again = matmul_flops(config, recompute=True) - matmul_flops(config, recompute=False)
    repeated = block.linears[:-1] if is_unread else block.linears
    assert again == LAYERS * TOKENS * sum(layer.flops_per_token for layer in repeated)
