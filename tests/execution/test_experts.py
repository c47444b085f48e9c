"""Mixtures of experts under FSDP2: transformers' own experts, sharded over two processes."""

from pathlib import Path

import pytest
from launched import ACCUMULATED, launch, launch_several
from reference import TOLERANCE, mean_distance, train
from run_specs import with_layout
from test_divided_models import EXPERTS, SMALL, loaded

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


def test_accelerate_shards_experts(tmp_path: Path) -> None:
    run = launch(tmp_path, SHARDS["mixtral"], "--no-dropout", target="accelerate").finish()
    assert run.losses == pytest.approx(train(CONFIGS["mixtral"]).losses, abs=TOLERANCE, rel=0)
