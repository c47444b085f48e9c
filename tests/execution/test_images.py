"""Vision transformers train like one process, on synthetic images and on files."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from launched import ACCUMULATED, STEPS, VIT, Run, launch, launch_several
from PIL import Image
from reference import (
    GLOBAL_BATCH_SIZE,
    TOLERANCE,
    Reference,
    build_optimizer,
    distance,
    learning_rate,
    update,
)
from run_specs import with_layout

pytestmark = pytest.mark.usefixtures("preloaded")

PLAN = with_layout(ACCUMULATED, model_config=VIT, task="image-classification")
LABELS = 2


@cache
def expected() -> Reference:
    """Train on synthetic images in one process."""
    config: Any = transformers.AutoConfig
    config = config.for_model(**VIT)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    torch.manual_seed(0)
    auto: Any = transformers.AutoModelForImageClassification
    model = auto.from_config(config, attn_implementation="sdpa").train()
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer, losses = build_optimizer(model), []
    for step in range(STEPS):
        indices = range(step * GLOBAL_BATCH_SIZE, (step + 1) * GLOBAL_BATCH_SIZE)
        pixels, labels = zip(*map(image, indices), strict=True)
        loss = model(pixel_values=torch.stack(pixels), labels=torch.stack(labels)).loss
        loss.backward()
        losses.append(update(model, optimizer, learning_rate(step), loss))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return Reference(initial, weights, losses)


def image(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(index)
    pixels = torch.randn((3, 16, 16), generator=generator)
    return pixels, torch.randint(LABELS, (), generator=generator)


def assert_same(run: Run) -> None:
    """The weights are compared as they load: their names in the file are older ones."""
    reference = expected()
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    auto: Any = transformers.AutoModelForImageClassification
    loaded = auto.from_pretrained(run.folder / "model")
    weights = {name: weight.detach() for name, weight in loaded.named_parameters()}
    assert distance(reference.weights, weights) <= TOLERANCE
    assert distance(reference.weights, reference.initial) > 100 * TOLERANCE


@pytest.mark.parametrize("target", ["trainer", "accelerate"])
def test_images_train_like_one_process(target: str, tmp_path: Path) -> None:
    run = launch(tmp_path, PLAN, "--no-dropout", target=target).finish()
    assert_same(run)


def test_torchrun_shards_them_too(tmp_path: Path) -> None:
    plans: Mapping[str, Any] = {str(stage): with_layout(PLAN, zero_stage=stage) for stage in (0, 3)}
    for run in launch_several(tmp_path, plans, "--no-dropout").values():
        assert_same(run)


def test_a_folder_of_files_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for number in range(6):
        folder = tmp_path / "images" / f"class {number % LABELS}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 12), (40 * number, 0, 0)).save(folder / f"{number}.png")
    processor: Any = transformers.ViTImageProcessorPil
    processor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    options = (
        "--data",
        str(tmp_path / "images"),
        "--model",
        str(tmp_path / "vit"),
        "--init",
        "random",
    )
    run = launch(tmp_path / "run", PLAN, *options, target="trainer").finish()
    assert len(run.losses) == STEPS
