"""Vision transformers and ConvNeXt train like one process, on synthetic images and on files."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from launched import ACCUMULATED, STEPS, VIT, launch, write
from PIL import Image
from reference import Reference, assert_loads_alike, train_samples
from run_specs import with_layout
from several import load

pytestmark = pytest.mark.usefixtures("preloaded")

CONVNEXT = {
    "model_type": "convnext",
    "architectures": ["ConvNextForImageClassification"],
    "hidden_sizes": [16, 32],
    "depths": [1, 2],
    "num_stages": 2,
    "image_size": 16,
    "layer_scale_init_value": 1.0,
}
PLAN = with_layout(ACCUMULATED, model_config=VIT, task="image-classification")
OF_STAGES = with_layout(PLAN, model_config=CONVNEXT, attention="eager")
PLANS = {"vit": PLAN, "convnext": OF_STAGES}
LABELS = 2
AUTO: Any = transformers.AutoModelForImageClassification


@cache
def expected(kind: str) -> Reference:
    """Train on synthetic images in one process."""
    auto: Any = transformers.AutoConfig
    config = auto.for_model(**PLANS[kind].model_config)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return train_samples(AUTO, config, image, PLANS[kind].attention)


def image(index: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(index)
    pixels = torch.randn((3, 16, 16), generator=generator)
    return {"pixel_values": pixels, "labels": torch.randint(LABELS, (), generator=generator)}


@pytest.mark.parametrize("kind", PLANS)
def test_images_train_like_one_process(kind: str, tmp_path: Path) -> None:
    run = launch(tmp_path, PLANS[kind], "--no-dropout", target="accelerate").finish()
    assert_loads_alike(run, AUTO, expected(kind))


def test_accelerate_shards_the_layers_of_stages(tmp_path: Path) -> None:
    shards = with_layout(OF_STAGES, zero_stage=3)
    run = launch(tmp_path, shards, "--no-dropout", target="accelerate").finish()
    assert_loads_alike(run, AUTO, expected("convnext"))


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
    run = launch(tmp_path / "run", PLAN, *options, target="accelerate").finish()
    assert len(run.losses) == STEPS


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a/0.png", "an image: cannot identify image file .*0.png"),
        ("0.png", "every image needs its class: a folder for each"),
        ("", "images is no folder"),
    ],
)
def test_pictures_that_cannot_be_used_are_refused_in_a_line(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    script = load(write(tmp_path, PLAN, "accelerate") / "accelerate" / "train.py")
    folder = tmp_path / "images"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"no picture")
    if name.startswith("a/"):
        (folder / "b").mkdir()
        Image.new("RGB", (20, 12)).save(folder / "b" / "1.png")
    processor: Any = transformers.ViTImageProcessorPil
    processor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "vit")
    monkeypatch.setattr(
        "sys.argv", ["train.py", "--data", str(folder), "--model", str(tmp_path / "vit")]
    )
    auto: Any = transformers.AutoConfig

    def read() -> Any:
        samples, _ = script.read_samples(script.parse_arguments(), auto.for_model(**VIT))
        return samples[0], samples[1]

    with pytest.raises(SystemExit, match=says):
        read()
