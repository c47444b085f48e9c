"""Models of images, and of images with text, worked by hand."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutated_configs import JSON, check_read_or_refused, check_refused, mutated
from tiny_vision import CASES, CLIP, RESNET, SWIN, TEXT, VISION, VIT

from planner.core.errors import UnsupportedError
from planner.models.architectures import read_model


def test_an_image_is_a_sequence_of_its_patches() -> None:
    model = read_model("tiny", VIT | {"num_labels": 5})
    assert (model.max_position_embeddings, model.vocab_size) == (17, 5)
    tokens = {part.name: part.tokens(999) for part in model.parts}
    assert tokens == {"embeddings": 16, "block": 17, "layernorm": 17, "classifier": 1}


def test_swins_stages_halve_the_resolution_and_double_the_channels() -> None:
    model = read_model("tiny", SWIN)
    assert [(part.count, part.tokens(999)) for part in model.blocks] == [(2, 256), (1, 64), (3, 16)]
    assert [part.attention.query_size for part in model.blocks if part.attention] == [8, 16, 32]
    assert all(part.attention and part.attention.keys == 16 for part in model.blocks)
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
        ({"model_type": "convnext"}, 4.456e9),
    ],
    ids=["vit-b-16", "swin-t", "convnext-t"],
)
def test_the_flops_of_a_transformer_are_those_that_torchvision_lists(
    config: dict[str, Any], flops: float
) -> None:
    """Swin-T's figure was read on torchvision's page; ViT-B/16's was not looked up again.

    ConvNeXt-T's is 4.5 G in Liu et al., arXiv:2201.03545, table 12, and 4.456 on torchvision's page.
    """
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
    ("config", "class_name"),
    [
        (VIT, "ViTForMaskedImageModeling"),
        (VIT | {"model_type": "deit"}, "DeiTForImageClassificationWithTeacher"),
        (SWIN, "SwinBackbone"),
        (RESNET, "ResNetForObjectDetection"),
        (CLIP, "CLIPForImageClassification"),
    ],
)
def test_a_head_that_is_not_known_is_refused_by_name(
    config: dict[str, Any], class_name: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"the head of {class_name} is not known") as caught:
        read_model("tiny", config | {"architectures": [class_name]})
    assert "Model" in caught.value.hint


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
    check_refused(config, says)


BASES = tuple(config | {"architectures": [class_name]} for class_name, config in CASES.values())


FIELDS = {key for base in BASES for key in base} - {"model_type"}


TOWER_FIELDS = sorted(TEXT.keys() | VISION.keys())


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    config=mutated(BASES, FIELDS),
    tower=st.dictionaries(st.sampled_from(TOWER_FIELDS), JSON, max_size=2),
)
def test_any_config_is_read_or_refused(config: dict[str, Any], tower: dict[str, Any]) -> None:
    if config.get("vision_config") is VISION:
        config["vision_config"] = VISION | tower
    check_read_or_refused(config)
