"""Families with a mixer, a tower or an input of their own: configs that are wrong in any way, and counts of checkpoints."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from mutated_configs import check_read_or_refused, check_refused, mutated

from planner.core.errors import PlannerError, UnsupportedError
from planner.models.architectures import read_model
from planner.request.model import load_model

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
}
VISION = {**SIZES, "image_size": 28, "patch_size": 14}
BASES: list[dict[str, Any]] = [
    SIZES | {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"]},
    SIZES | {"model_type": "jamba", "num_experts": 3, "attn_layer_period": 2},
    SIZES | {"model_type": "granitemoehybrid", "mamba_n_heads": 4, "mamba_d_head": "auto"},
    SIZES | {"model_type": "falcon_h1", "mamba_n_heads": 4, "mamba_d_ssm": 32},
    {"model_type": "mamba", "hidden_size": 24, "num_hidden_layers": 2, "state_size": 6},
    {"model_type": "llava", "text_config": SIZES, "vision_config": VISION},
    {"model_type": "mistral3", "text_config": SIZES, "vision_config": VISION},
    {**SIZES, "model_type": "qwen2_vl", "vision_config": {"depth": 2, "embed_dim": 32}},
    SIZES | {"model_type": "esm"},
    SIZES | {"model_type": "wav2vec2", "num_conv_pos_embedding_groups": 4},
    {"model_type": "segformer", "hidden_sizes": [8, 8, 8, 8], "num_attention_heads": [1, 1, 2, 2]},
    {"model_type": "detr", "d_model": 32, "backbone": "resnet50"},
    VISION | {"model_type": "siglip_vision_model"},
]
MORE = {
    *("attn_layer_indices", "full_attn_idxs", "attn_layer_offset", "block_multiple_of"),
    *("block_ffn_dim_multiplier", "mamba_expand", "time_step_rank", "vision_feature_layer"),
    *("spatial_merge_size", "fullatt_block_indexes", "window_size", "backbone_config"),
    *("conv_dim", "conv_stride", "conv_kernel", "sr_ratios", "depths", "id2label", "architectures"),
}
FIELDS = set.union(MORE, *(set(base) for base in BASES)) - {"model_type"}


@given(mutated(BASES, FIELDS))
def test_a_config_that_is_wrong_in_any_way_is_read_or_refused(config: dict[str, Any]) -> None:
    check_read_or_refused(config)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (BASES[0] | {"block_ffn_dim_multiplier": -1}, "a number above 0"),
        (BASES[5] | {"vision_config": 3}, "vision_config must be an object"),
        (BASES[9] | {"conv_stride": [5, 2]}, "must be of one length"),
        (BASES[10] | {"depths": [2, 2]}, "must be of one length"),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, Any], says: str) -> None:
    check_refused(config, says)


LFM2 = {
    "model_type": "lfm2",
    "vocab_size": 65536,
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "block_ff_dim": 12288,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
}
MAMBA = {
    "model_type": "mamba",
    "vocab_size": 50280,
    "hidden_size": 768,
    "intermediate_size": 1536,
    "num_hidden_layers": 24,
    "state_size": 16,
    "time_step_rank": 48,
}
ESM = {
    "model_type": "esm",
    "vocab_size": 33,
    "hidden_size": 1280,
    "num_hidden_layers": 33,
    "num_attention_heads": 20,
    "intermediate_size": 5120,
    "position_embedding_type": "rotary",
}
PUBLISHED = [("LiquidAI/LFM2-1.2B", LFM2, 1.17e9), ("state-spaces/mamba-130m-hf", MAMBA, 129.1e6),
             ("facebook/esm2_t33_650M_UR50D", ESM, 651.0e6)]  # fmt: skip


@pytest.mark.parametrize(("name", "config", "parameters"), PUBLISHED)
def test_a_checkpoint_has_the_parameters_that_its_page_says(
    name: str, config: dict[str, Any], parameters: float
) -> None:
    assert read_model(name, config).parameters == pytest.approx(parameters, rel=0.002)


LIKE_LLAMA = {
    "model_type": "of-tomorrow",
    "architectures": ["TomorrowForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "rms_norm_eps": 1e-6,
}


@pytest.mark.parametrize("may_build", [False, True])
def test_a_decoder_of_an_unknown_type_is_read_by_its_sizes_and_says_so(*, may_build: bool) -> None:
    model, notes = load_model(LIKE_LLAMA, allow_paths=may_build)
    assert model.parameters == 6_738_415_616
    assert any("taken to be of a model like Llama" in note for note in notes)


@pytest.mark.parametrize(
    "more",
    [
        {"architectures": ["TomorrowModel"]},
        {"num_experts": 8},
        {"kv_lora_rank": 512},
        {"vision_config": {"depth": 2}},
        {"layer_types": ["linear_attention"]},
        {"intermediate_size": None},
    ],
)
def test_what_llama_has_not_is_not_taken_for_it(more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="not known"):
        load_model({**LIKE_LLAMA, **more}, allow_paths=False)


@given(mutated([LIKE_LLAMA], LIKE_LLAMA.keys()))
def test_a_wrong_config_of_an_unknown_type_is_read_or_refused(config: dict[str, Any]) -> None:
    with suppress(PlannerError):
        load_model(config, allow_paths=False)
