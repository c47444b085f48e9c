"""Mixtures of experts under FSDP2: transformers' own experts, sharded over two processes."""

import sys
from pathlib import Path

import pytest
import torch
from launched import ACCUMULATED, launch_several, write
from reference import TOLERANCE, mean_distance, train
from run_specs import with_layout
from several import load
from test_divided_models import EXPERTS, SMALL, loaded
from transformers.integrations import moe

pytestmark = pytest.mark.usefixtures("preloaded")

CONFIGS = {
    kind: {"model_type": kind, **SMALL, **EXPERTS[kind]} for kind in ("mixtral", "qwen3_moe")
}
SHARDS = {
    kind: with_layout(ACCUMULATED, model_config=config, zero_stage=3)
    for kind, config in CONFIGS.items()
}


def test_shards_of_experts_train_like_one_process(tmp_path: Path) -> None:
    half = {
        f"{kind}-half": with_layout(spec, precision="bf16-mixed") for kind, spec in SHARDS.items()
    }
    runs = launch_several(tmp_path, {**SHARDS, **half}, "--no-dropout")
    for kind, config in CONFIGS.items():
        reference = train(config)
        assert runs[kind].losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
        weights = loaded(runs[kind].folder / "model")
        assert mean_distance(weights, reference.weights) < TOLERANCE
        assert runs[f"{kind}-half"].losses == pytest.approx(reference.losses, abs=0.05)


def test_autocast_reaches_the_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes: list[torch.dtype] = []

    def multiply(tokens: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        dtypes.extend((tokens.dtype, weights.dtype))
        return torch.nn.functional.grouped_mm(tokens, weights, offs=offs)

    monkeypatch.setattr(moe, "_grouped_mm", multiply)
    spec = with_layout(
        ACCUMULATED, model_config=CONFIGS["mixtral"], has_experts=True, precision="bf16-mixed"
    )
    script = load(write(tmp_path, spec, "torchrun") / "torchrun" / "train.py")
    monkeypatch.setattr(sys, "argv", ["train.py", "--init", "random"])
    args = script.parse_arguments()
    model = script.build_model(args, script.read_config(args))
    tokens = torch.zeros((1, 8), dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    assert set(dtypes) == {torch.bfloat16}
    experts = [each for name, each in model.named_parameters() if "experts" in name]
    assert all(each.grad is not None and each.grad.dtype == torch.float32 for each in experts)
