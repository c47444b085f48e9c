"""Models of images, and of images with text, against transformers: parameters, kept bytes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.models.clip.modeling_clip import CLIPEncoderLayer
from transformers.models.dinov2.modeling_dinov2 import Dinov2Layer
from transformers.models.resnet.modeling_resnet import ResNetStage
from transformers.models.swin.modeling_swin import SwinLayer
from transformers.models.vit.modeling_vit import ViTLayer

from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.domain.model import Model, Numerics, Part
from planner.models.architectures import LARGEST_MODEL, read_model

VIT = {
    "model_type": "vit",
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
DEIT = VIT | {"model_type": "deit"}
DINOV2 = VIT | {"model_type": "dinov2", "mlp_ratio": 2}
SWIN = {
    "model_type": "swin",
    "embed_dim": 8,
    "depths": [2, 1, 3],
    "num_heads": [2, 2, 4],
    "window_size": 4,
    "image_size": 64,
    "patch_size": 4,
}
RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [16, 32, 64],
    "depths": [1, 2, 3],
}
TOWER = {
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TEXT = TOWER | {
    "vocab_size": 100,
    "max_position_embeddings": 12,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
VISION = TOWER | {"hidden_size": 24, "image_size": 32, "patch_size": 8}
CLIP = {
    "model_type": "clip",
    "projection_dim": 20,
    "text_config": TEXT,
    "vision_config": VISION,
}
SIGLIP = {"model_type": "siglip", "text_config": TEXT, "vision_config": VISION}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", VIT),
    "vit of five labels": ("ViTForImageClassification", VIT | {"num_labels": 5}),
    "vit of named labels": (
        "ViTForImageClassification",
        VIT | {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}},
    ),
    "vit alone": ("ViTModel", VIT),
    "vit alone, pooled to another size": ("ViTModel", VIT | {"pooler_output_size": 12}),
    "vit without biases": ("ViTForImageClassification", VIT | {"qkv_bias": False}),
    "vit of oblong images": (
        "ViTForImageClassification",
        VIT | {"image_size": [32, 64], "patch_size": [8, 16], "num_channels": 1},
    ),
    "deit": ("DeiTForImageClassification", DEIT),
    "deit alone": ("DeiTModel", DEIT),
    "dinov2": ("Dinov2Model", DINOV2),
    "dinov2 with a classifier": ("Dinov2ForImageClassification", DINOV2),
    "dinov2 gated": ("Dinov2Model", DINOV2 | {"use_swiglu_ffn": True}),
    "dinov2 without a mask": ("Dinov2Model", DINOV2 | {"use_mask_token": False}),
    "swin": ("SwinForImageClassification", SWIN),
    "swin alone": ("SwinModel", SWIN),
    "swin with positions": ("SwinForImageClassification", SWIN | {"use_absolute_embeddings": True}),
    "swin with a window larger than a stage": (
        "SwinForImageClassification",
        SWIN | {"window_size": 7, "mlp_ratio": 2.5, "qkv_bias": False},
    ),
    "resnet": ("ResNetForImageClassification", RESNET),
    "resnet alone": ("ResNetModel", RESNET),
    "resnet of basic layers": ("ResNetForImageClassification", RESNET | {"layer_type": "basic"}),
    "resnet that halves early": (
        "ResNetForImageClassification",
        RESNET | {"downsample_in_first_stage": True, "downsample_in_bottleneck": True},
    ),
    "resnet of one width": (
        "ResNetForImageClassification",
        RESNET | {"hidden_sizes": [8, 8], "depths": [2, 2], "layer_type": "basic"},
    ),
    "clip": ("CLIPModel", CLIP),
    "siglip": ("SiglipModel", SIGLIP),
    "siglip without pooling": (
        "SiglipModel",
        SIGLIP | {"vision_config": VISION | {"vision_use_head": False}},
    ),
}
DEFAULTS = {
    "vit": "ViTForImageClassification",
    "deit": "DeiTForImageClassification",
    "dinov2": "Dinov2Model",
    "swin": "SwinForImageClassification",
    "resnet": "ResNetForImageClassification",
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
}


def _configuration(config: Mapping[str, Any], **more: Any) -> Any:
    fields = {key: value for key, value in config.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(config["model_type"], **fields, **more)


def _built(class_name: str, config: Mapping[str, Any]) -> int:
    with torch.device("meta"):
        model = getattr(transformers, class_name)(_configuration(config))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("class_name", "config"), CASES.values(), ids=list(CASES))
def test_the_count_is_that_of_the_model_that_transformers_builds(
    class_name: str, config: dict[str, Any]
) -> None:
    model = read_model("tiny", config | {"architectures": [class_name]})
    assert model.parameters == _built(class_name, config)
    is_classifier = class_name.endswith("ForImageClassification")
    assert model.task == ("image-classification" if is_classifier else "none")


@pytest.mark.parametrize(("model_type", "class_name"), DEFAULTS.items(), ids=list(DEFAULTS))
def test_what_a_config_leaves_out_is_what_transformers_takes(
    model_type: str, class_name: str
) -> None:
    config = {"model_type": model_type}
    assert read_model("defaults", config).parameters == _built(class_name, config)


def test_an_image_is_a_sequence_of_its_patches() -> None:
    model = read_model("tiny", VIT | {"num_labels": 5})
    assert (model.max_position_embeddings, model.vocab_size) == (17, 5)
    tokens = {part.name: part.tokens(999) for part in model.parts}
    assert tokens == {"embeddings": 16, "block": 17, "layernorm": 17, "classifier": 1}


def test_swins_stages_halve_the_resolution_and_double_the_channels() -> None:
    model = read_model("tiny", SWIN)
    assert [(part.count, part.tokens(999)) for part in model.blocks] == [(2, 256), (1, 64), (3, 16)]
    assert [part.attention.query_size for part in model.blocks if part.attention] == [8, 16, 32]
    assert all(part.attention and part.attention.window == 16 for part in model.blocks)
    assert model.max_position_embeddings == 256


@pytest.mark.parametrize(
    ("config", "flops"),
    [
        ({"hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 4, 6, 3]}, 4.089e9),
        ({"hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 8, 36, 3]}, 11.514e9),
        (
            {
                "hidden_sizes": [64, 128, 256, 512],
                "depths": [2, 2, 2, 2],
                "layer_type": "basic",
            },
            1.814e9,
        ),
    ],
    ids=["resnet-50", "resnet-152", "resnet-18"],
)
def test_the_flops_of_a_resnet_are_those_that_torchvision_lists(
    config: dict[str, Any], flops: float
) -> None:
    """Its GFLOPS are multiplications with their additions, two FLOPs each.

    ResNet-18's figure was read on torchvision's page; the other two were not looked up again.
    """
    model = read_model("resnet", {"model_type": "resnet", "num_labels": 1000} | config)
    positions = model.max_position_embeddings
    assert positions == 56 * 56
    assert model.flops_per_token(positions) * positions / 2 == pytest.approx(flops, rel=0.001)


@pytest.mark.parametrize(
    ("config", "flops"),
    [
        ({"model_type": "vit"}, 17.564e9),
        ({"model_type": "swin"}, 4.491e9),
    ],
    ids=["vit-b-16", "swin-t"],
)
def test_the_flops_of_a_transformer_are_those_that_torchvision_lists(
    config: dict[str, Any], flops: float
) -> None:
    """Swin-T's figure was read on torchvision's page; ViT-B/16's was not looked up again."""
    model = read_model("vision", config | {"num_labels": 1000})
    tokens = model.max_position_embeddings
    assert model.flops_per_token(tokens) * tokens / 2 == pytest.approx(flops, rel=0.01)


def test_clips_towers_see_texts_and_images() -> None:
    model = read_model("tiny", CLIP)
    assert {part.name: part.tokens(7) for part in model.blocks} == {
        "text_block": 7,
        "vision_block": 17,
    }
    causal = [part.attention.is_causal for part in model.blocks if part.attention]
    assert causal == [True, False]
    assert (model.max_position_embeddings, model.vocab_size) == (12, 100)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (VIT | {"image_size": [32, 32, 32]}, "image_size must be a size, or height and width"),
        (VIT | {"image_size": [32, "32"]}, "image_size is '32'"),
        (VIT | {"patch_size": 64}, "larger than image_size"),
        (VIT | {"id2label": ["a"]}, "id2label must be an object"),
        (VIT | {"num_labels": 0}, "num_labels is 0"),
        (SWIN | {"depths": [2, 2]}, "depths has 2 stages, num_heads 3"),
        (SWIN | {"depths": []}, "depths must be a list"),
        (SWIN | {"depths": 2}, "depths must be a list"),
        (SWIN | {"depths": [1] * 1000}, "depths must be a list"),
        (SWIN | {"num_heads": [3, 3, 3]}, "not a multiple"),
        (SWIN | {"mlp_ratio": -1}, "mlp_ratio must be"),
        (SWIN | {"mlp_ratio": float("nan")}, "mlp_ratio must be"),
        (RESNET | {"layer_type": "wide"}, "layer_type basic or bottleneck"),
        (RESNET | {"depths": [1]}, "one length"),
        (CLIP | {"vision_config": 7}, "vision_config must be an object"),
        (CLIP | {"text_config": TEXT | {"num_attention_heads": 3}}, "not a multiple"),
    ],
)
def test_a_bad_config_says_which_field_and_what_it_must_be(
    config: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        read_model("x" * 10_000, config)
    assert caught.value.field == "model"
    assert len(caught.value.message) < 300


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 64)
    | st.floats()
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
BASES = tuple(config | {"architectures": [class_name]} for class_name, config in CASES.values())
FIELDS = sorted({key for base in BASES for key in base} - {"model_type"})
TOWER_FIELDS = sorted(TEXT.keys() | VISION.keys())


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from(BASES),
    changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
    dropped=st.sets(st.sampled_from(FIELDS), max_size=3),
    tower=st.dictionaries(st.sampled_from(TOWER_FIELDS), JSON, max_size=2),
)
def test_any_config_is_read_or_refused(
    base: dict[str, Any], changes: dict[str, Any], dropped: set[str], tower: dict[str, Any]
) -> None:
    config = {key: value for key, value in base.items() if key not in dropped} | changes
    if config.get("vision_config") is VISION:
        config["vision_config"] = VISION | tower
    try:
        model = read_model("mutated", config)
    except PlannerError as error:
        refusal = error
    else:
        assert 0 < model.parameters <= LARGEST_MODEL
        assert model.blocks
        return
    assert isinstance(refusal, InvalidInputError | UnsupportedError)
    assert refusal.field == "model"
    assert len(refusal.message) < 400


BATCH, TOKENS = 2, 24
"""Images, and tokens of each."""


def _saved_bytes(block: torch.nn.Module, forward: Callable[[], object]) -> int:
    """Run a block and count the bytes that autograd saves, its parameters left out."""
    known = {tensor.untyped_storage().data_ptr() for tensor in block.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    assert result is not None
    return sum(saved.values())


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
    layer = build(_configuration(config, attn_implementation=implementation)).train()
    hidden = _hidden(TOKENS, 16)
    saved = _saved_bytes(layer, lambda: layer(hidden))
    block = read_model("tiny", config).blocks[0]
    expected = _expected_bytes(block, implementation, TOKENS, TOKENS)
    assert saved == pytest.approx(expected, rel=0.001)


@IMPLEMENTATIONS
def test_a_clip_layer_keeps_what_autograd_saves(implementation: str) -> None:
    wanted = _configuration(CLIP, attn_implementation=implementation).text_config
    layer = CLIPEncoderLayer(wanted).train()
    hidden = _hidden(TOKENS, 16)
    saved = _saved_bytes(layer, lambda: layer(hidden, attention_mask=None))
    block = _block(read_model("tiny", CLIP), "text_block")
    expected = _expected_bytes(block, implementation, TOKENS, TOKENS)
    assert saved == pytest.approx(expected, rel=0.001)


def test_a_swin_layer_keeps_what_autograd_saves() -> None:
    """Eager, in windows of 4 x 4; SDPA also keeps the position biases it is given as a mask."""
    wanted = _configuration(SWIN, attn_implementation="eager")
    layer = SwinLayer(wanted, dim=8, input_resolution=(16, 16), num_heads=2).train()
    hidden = _hidden(256, 8)
    saved = _saved_bytes(layer, lambda: layer(hidden, (16, 16)))
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
    stage = ResNetStage(_configuration(RESNET | {"layer_type": layer_type}), 16, 32, depth=2)
    if layer_type == "bottleneck":
        wanted = _configuration(config)
        stage = ResNetStage(wanted, 16, 32, depth=2)
    pixels = torch.ones(BATCH, 16, 128, 128, requires_grad=True) * 1
    saved = _saved_bytes(stage.train(), lambda: stage(pixels))
    parts = [part for part in model.parts if part.name.startswith("stage_2")]
    expected = sum(
        part.count * part.tokens(1) * part.kept_bytes_per_token(Numerics.FP32) for part in parts
    )
    last = 32 * 64 * 64 * 4  # the last activation's output, which the next stage keeps as input
    assert saved == pytest.approx(BATCH * (expected + last), rel=0.001)
