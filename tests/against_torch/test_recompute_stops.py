"""How many matmuls of a block a checkpoint of PyTorch runs again, against what the planner says it leaves off."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import transformers
from test_decoders import HIDDEN, configuration
from torch.utils._python_dispatch import TorchDispatchMode

from planner.models.architectures import read_model

LAYERS = 3
MATMULS = ("aten::mm", "aten::addmm")
UNREAD = ("gemma", "gpt2", "gpt_neox", "granite", "llama", "opt", "phi", "qwen3", "starcoder2")
READ = ("olmo2", "exaone4")
"""A norm follows the MLP."""
DROPPED: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("gpt2", {"resid_pdrop": 0.1}),
    ("opt", {"dropout": 0.1}),
)


class _Matmuls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.name() in MATMULS
        return func(*args, **(kwargs or {}))


def matmuls(config: Any, *, recompute: bool) -> int:
    """Count the matmuls with weights of one training step."""
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_config(config).train()
    if recompute:
        old_name = model.gradient_checkpointing_enable  # of transformers 5.20
        getattr(model, "activation_checkpointing_enable", old_name)()
    tokens = torch.randint(2, 100, (1, 16))
    with _Matmuls() as counted:
        model(input_ids=tokens, labels=tokens).loss.backward()
    return counted.count


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
    again = matmuls(config, recompute=True) - matmuls(config, recompute=False)
    assert again == LAYERS * (len(block.linears) - is_unread)
