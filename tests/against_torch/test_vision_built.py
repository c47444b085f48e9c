"""Models of images, and of images with text, against transformers: parameters, kept bytes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from built_models import BATCH, TOKENS, configuration, parameters_built, saved_bytes
from tiny_vision import CASES, CLIP, CONVNEXT, DINOV2, RESNET, SWIN, VIT
from transformers.models.clip.modeling_clip import CLIPEncoderLayer
from transformers.models.convnext.modeling_convnext import ConvNextStage
from transformers.models.dinov2.modeling_dinov2 import Dinov2Layer
from transformers.models.resnet.modeling_resnet import ResNetStage
from transformers.models.swin.modeling_swin import SwinLayer
from transformers.models.vit.modeling_vit import ViTLayer

from planner.domain.kept import Numerics
from planner.domain.model import Model, Part
from planner.models.architectures import read_model

DEFAULTS = {
    "vit": "ViTForImageClassification",
    "deit": "DeiTForImageClassification",
    "dinov2": "Dinov2Model",
    "swin": "SwinForImageClassification",
    "resnet": "ResNetForImageClassification",
    "convnext": "ConvNextForImageClassification",
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
}


@pytest.mark.parametrize(("class_name", "config"), CASES.values(), ids=list(CASES))
def test_the_count_is_that_of_the_model_that_transformers_builds(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.parameters == parameters_built(class_name, config)
    is_classifier = class_name.endswith("ForImageClassification")
    assert model.task == ("image-classification" if is_classifier else "none")


@pytest.mark.parametrize(("model_type", "class_name"), DEFAULTS.items(), ids=list(DEFAULTS))
def test_what_a_config_leaves_out_is_what_transformers_takes(
    model_type: str, class_name: str
) -> None:
    config = {"model_type": model_type}
    assert read_model("defaults", config).parameters == parameters_built(class_name, config)


def _expected_bytes(part: Part, implementation: str, tokens: int, keys: int) -> float:
    assert part.attention
    per_head = 4.0  # the log of each row's sum, fp32
    if implementation == "eager":
        per_head = part.attention.eager_bytes_per_score[Numerics.FP32] * keys
    kept = part.kept_bytes_per_token(Numerics.FP32) + part.attention.num_heads * per_head
    return kept * BATCH * tokens


def _hidden(tokens: int, size: int) -> torch.Tensor:
    """Return a block's input as the block before it leaves it: no leaf, so norms save it."""
    return torch.ones(BATCH, tokens, size, requires_grad=True) * 1


def _block(model: Model, name: str) -> Part:
    return next(part for part in model.blocks if part.name == name)


IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["sdpa", "eager"])


@IMPLEMENTATIONS
@pytest.mark.parametrize(
    ("build", "config"),
    [(ViTLayer, VIT), (Dinov2Layer, DINOV2), (Dinov2Layer, DINOV2 | {"use_swiglu_ffn": True})],
    ids=["vit", "dinov2", "dinov2 gated"],
)
def test_a_layer_of_patches_keeps_what_autograd_saves(
    build: Callable[[Any], torch.nn.Module], config: dict[str, Any], implementation: str
) -> None:
    layer = build(configuration(config, attn_implementation=implementation)).train()
    hidden = _hidden(TOKENS, 16)
    saved = saved_bytes(layer, lambda: layer(hidden))
    block = read_model("tiny", config).blocks[0]
    expected = _expected_bytes(block, implementation, TOKENS, TOKENS)
    assert saved == pytest.approx(expected, rel=0.001)


@IMPLEMENTATIONS
def test_a_clip_layer_keeps_what_autograd_saves(implementation: str) -> None:
    wanted = configuration(CLIP, attn_implementation=implementation).text_config
    layer = CLIPEncoderLayer(wanted).train()
    hidden = _hidden(TOKENS, 16)
    saved = saved_bytes(layer, lambda: layer(hidden, attention_mask=None))
    block = _block(read_model("tiny", CLIP), "text_block")
    expected = _expected_bytes(block, implementation, TOKENS, TOKENS)
    assert saved == pytest.approx(expected, rel=0.001)


def test_a_swin_layer_keeps_what_autograd_saves() -> None:
    """Eager, in windows of 4 x 4; SDPA also keeps the position biases it is given as a mask."""
    wanted = configuration(SWIN, attn_implementation="eager")
    layer = SwinLayer(wanted, dim=8, input_resolution=(16, 16), num_heads=2).train()
    hidden = _hidden(256, 8)
    saved = saved_bytes(layer, lambda: layer(hidden, (16, 16)))
    expected = _expected_bytes(_block(read_model("tiny", SWIN), "stage_1_block"), "eager", 256, 16)
    assert saved == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("layer_type", ["basic", "bottleneck"])
@pytest.mark.parametrize("is_early", [False, True])
def test_a_resnet_stage_keeps_what_autograd_saves(layer_type: str, *, is_early: bool) -> None:
    """Large images, beside which a batch norm's statistics are nothing."""
    config = RESNET | {
        "layer_type": layer_type,
        "downsample_in_bottleneck": is_early,
        "image_size": 512,
    }
    model = read_model("tiny", config)
    stage = ResNetStage(configuration(RESNET | {"layer_type": layer_type}), 16, 32, depth=2)
    if layer_type == "bottleneck":
        wanted = configuration(config)
        stage = ResNetStage(wanted, 16, 32, depth=2)
    pixels = torch.ones(BATCH, 16, 128, 128, requires_grad=True) * 1
    saved = saved_bytes(stage.train(), lambda: stage(pixels))
    parts = [part for part in model.parts if part.name.startswith("stage_2")]
    expected = sum(
        part.count * part.tokens(1) * part.kept_bytes_per_token(Numerics.FP32) for part in parts
    )
    last = 32 * 64 * 64 * 4  # the last activation's output, which the next stage keeps as input
    assert saved == pytest.approx(BATCH * (expected + last), rel=0.001)


def test_a_convnext_stage_keeps_what_autograd_saves() -> None:
    build: Any = ConvNextStage
    stage = build(configuration(CONVNEXT), 8, 16, depth=2).train()
    pixels = torch.ones(BATCH, 8, 16, 16, requires_grad=True) * 1
    saved = saved_bytes(stage, lambda: stage(pixels))
    model = read_model("tiny", CONVNEXT)
    parts = [part for part in model.parts if part.name.startswith("stage_2")]
    expected = sum(
        part.count * part.tokens(1) * part.kept_bytes_per_token(Numerics.FP32) for part in parts
    )
    assert saved == pytest.approx(BATCH * expected, rel=0.001)
