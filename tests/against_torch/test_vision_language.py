"""Vision-language models and their towers: what transformers builds and keeps, beside what is read."""

from typing import Any

import pytest
import torch
import transformers
from built_models import saved_bytes

from planner.domain.kept import Numerics
from planner.models.architectures import read_model

TEXT: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "head_dim": 16,
    "pad_token_id": 0,
}
VISION: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
}
QWEN: dict[str, Any] = {"depth": 3, "num_heads": 4, "patch_size": 14}
ROTARY = {"mrope_section": [2, 3, 3], "rope_type": "default", "rope_theta": 1e4}
QWEN_TEXT = TEXT | {"rope_parameters": ROTARY}
TINY: dict[str, dict[str, Any]] = {
    "llava": {
        "text_config": TEXT | {"model_type": "llama"},
        "vision_config": VISION | {"model_type": "clip_vision_model"},
    },
    "llava_next": {
        "text_config": TEXT | {"model_type": "mistral"},
        "vision_config": VISION | {"model_type": "siglip_vision_model", "vision_use_head": True},
        "multimodal_projector_bias": False,
    },
    "llava_onevision": {
        "text_config": TEXT | {"model_type": "qwen2"},
        "vision_config": VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
    },
    "paligemma": {
        "text_config": TEXT | {"model_type": "gemma2"},
        "vision_config": VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        "projection_dim": 64,
    },
    "idefics3": {
        "text_config": TEXT | {"model_type": "llama"},
        "vision_config": VISION,
        "scale_factor": 4,
    },
    "smolvlm": {"text_config": TEXT | {"model_type": "llama"}, "vision_config": VISION},
    "internvl": {
        "text_config": TEXT | {"model_type": "qwen3"},
        "vision_config": VISION | {"image_size": [56, 56], "patch_size": [14, 14]},
    },
    "mistral3": {
        "text_config": TEXT | {"model_type": "ministral3"},
        "vision_config": VISION | {"model_type": "pixtral"},
        "tie_word_embeddings": False,
    },
    "qwen2_vl": {
        "text_config": QWEN_TEXT,
        "vision_config": QWEN | {"embed_dim": 48, "hidden_size": 64, "mlp_ratio": 2},
    },
    "qwen2_5_vl": {
        "text_config": QWEN_TEXT,
        "vision_config": QWEN
        | {"hidden_size": 48, "out_hidden_size": 64, "intermediate_size": 84}
        | {"fullatt_block_indexes": [2]},
    },
    "qwen3_vl": {
        "text_config": QWEN_TEXT,
        "vision_config": QWEN
        | {"hidden_size": 48, "out_hidden_size": 64, "intermediate_size": 84}
        | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
    },
    "qwen3_vl_moe": {
        "text_config": QWEN_TEXT
        | {"num_local_experts": 5, "num_experts": 5, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 40},
        "vision_config": QWEN
        | {"hidden_size": 48, "out_hidden_size": 64, "intermediate_size": 84}
        | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
    },
    "gemma3": {
        "text_config": TEXT,
        "vision_config": VISION | {"vision_use_head": False},
        "mm_tokens_per_image": 4,
    },
}


def _built(model_type: str, config: dict[str, Any]) -> torch.nn.Module:
    wanted = transformers.AutoConfig.for_model(model_type, **config)
    auto: Any = transformers.AutoModelForImageTextToText
    with torch.device("meta"):
        model: torch.nn.Module = auto.from_config(wanted)
    return model


def _parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("model_type", TINY)
def test_both_halves_have_the_parameters_that_transformers_builds(model_type: str) -> None:
    config = TINY[model_type]
    model = read_model("tiny", {"model_type": model_type, **config})
    assert model.task == "causal-lm"
    assert model.parameters == _parameters(_built(model_type, config))


BARE = sorted(TINY.keys() - {"paligemma", "gemma3", "qwen2_vl", "qwen2_5_vl", "mistral3"})
"""Those whose defaults are models that were published: of the others the towers' are."""


@pytest.mark.parametrize("model_type", BARE)
def test_what_a_config_leaves_out_is_as_transformers_takes_it(model_type: str) -> None:
    wanted = transformers.AutoConfig.for_model(model_type).to_dict()
    model = read_model("bare", wanted)
    assert model.parameters == _parameters(_built(model_type, {}))


def test_older_configs_of_qwen2_vl_have_the_texts_fields_beside_the_towers() -> None:
    nested = {"model_type": "qwen2_vl", **TINY["qwen2_vl"]}
    flat = {**TEXT, "model_type": "qwen2_vl", "vision_config": nested["vision_config"]}
    assert read_model("flat", flat).parameters == read_model("nested", nested).parameters


TOWERS = {
    "llava": ("vision_tower.encoder.layers", "vision_block"),
    "llava_onevision": ("vision_tower.encoder.layers", "vision_block"),
    "internvl": ("vision_tower.encoder.layer", "vision_block"),
    "mistral3": ("vision_tower.transformer.layers", "vision_block"),
}
TOKENS = 17


@pytest.mark.parametrize("numerics", [Numerics.FP32, Numerics.HALF])
@pytest.mark.parametrize("model_type", TOWERS)
def test_a_towers_layer_keeps_what_is_read(model_type: str, numerics: Numerics) -> None:
    path, name = TOWERS[model_type]
    dtype = torch.float32 if numerics is Numerics.FP32 else torch.bfloat16
    config = TINY[model_type]
    wanted = transformers.AutoConfig.for_model(model_type, **config)
    auto: Any = transformers.AutoModelForImageTextToText
    model = auto.from_config(wanted, dtype=dtype, attn_implementation="eager").train()
    layer = dict(model.model.named_modules())[path][0]
    state = torch.zeros(2, TOKENS, VISION["hidden_size"], dtype=dtype, requires_grad=True)
    angles = torch.zeros(TOKENS, 12, dtype=dtype)
    more: dict[str, Any] = (
        {"position_embeddings": (angles, angles)} if model_type == "mistral3" else {}
    )
    if model_type != "internvl":
        more["attention_mask"] = None
    saved = saved_bytes(layer, lambda: layer(state, **more), angles)
    read = read_model("tiny", {"model_type": model_type, **config})
    part = next(part for part in read.parts if part.name == name)
    assert part.attention
    per_score = part.attention.eager_bytes_per_score[numerics]
    kept = part.kept_bytes_per_token(numerics) + per_score * part.attention.num_heads * TOKENS
    assert saved == pytest.approx(kept * 2 * TOKENS, rel=0.02)
