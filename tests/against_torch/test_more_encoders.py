"""Encoders of proteins, sound and images: what transformers builds and saves, beside what is read."""

from typing import Any

import pytest
import torch
import transformers
from built_models import saved_bytes

from planner.domain.kept import Numerics
from planner.domain.model import Model
from planner.models.architectures import read_model

ESM: dict[str, Any] = {
    "vocab_size": 33,
    "pad_token_id": 1,
    "mask_token_id": 32,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 200,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
SOUND: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 200,
    "conv_dim": [32] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0,
    "apply_spec_augment": False,
    **dict.fromkeys(("hidden_dropout", "activation_dropout", "attention_dropout"), 0.0),
    **dict.fromkeys(("feat_proj_dropout", "final_dropout"), 0.0),
}
LAYERED = {"feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True}
STAGES: dict[str, Any] = {
    "hidden_sizes": [16, 32, 40, 64],
    "depths": [2, 1, 1, 1],
    "num_attention_heads": [1, 2, 5, 8],
    "decoder_hidden_size": 48,
    "num_labels": 7,
    "drop_path_rate": 0.0,
    "classifier_dropout_prob": 0.0,
}
RESNET = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [32, 64, 96, 128],
    "depths": [2, 1, 1, 2],
    "out_features": ["stage4"],
}
QUERIES: dict[str, Any] = {
    "use_timm_backbone": False,
    "backbone_config": RESNET,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 80,
    "num_queries": 20,
    "num_labels": 6,
    "dropout": 0.0,
}
BUILT: list[tuple[str, str, dict[str, Any]]] = [
    *(
        (f"Esm{head}", "esm", ESM | more)
        for head in ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model")
        for more in ({}, {"position_embedding_type": "rotary", "emb_layer_norm_before": True})
    ),
    *(
        (f"{name}{head}", name.lower(), SOUND | more)
        for name in ("Wav2Vec2", "Hubert")
        for head in ("ForCTC", "ForSequenceClassification", "Model")
        for more in ({}, LAYERED)
    ),
    ("HubertModel", "hubert", SOUND | {"feat_proj_layer_norm": False}),
    *(
        (f"Segformer{head}", "segformer", config)
        for head in ("ForSemanticSegmentation", "ForImageClassification", "Model")
        for config in ({}, STAGES)
    ),
    *((f"Detr{head}", "detr", QUERIES) for head in ("ForObjectDetection", "Model")),
]


def _built(class_name: str, model_type: str, config: dict[str, Any]) -> Any:
    wanted = transformers.AutoConfig.for_model(model_type, **config, attn_implementation="eager")
    return getattr(transformers, class_name)(wanted)


def _read(class_name: str, model_type: str, config: dict[str, Any]) -> Model:
    return read_model("tiny", {**config, "model_type": model_type, "architectures": [class_name]})


@pytest.mark.parametrize(("class_name", "model_type", "config"), BUILT)
def test_the_parameters_are_those_that_transformers_builds(
    class_name: str, model_type: str, config: dict[str, Any]
) -> None:
    with torch.device("meta"):
        built = _built(class_name, model_type, config)
    read = _read(class_name, model_type, config)
    assert read.parameters == sum(parameter.numel() for parameter in built.parameters())


def _kept(model: Model, tokens: int) -> float:
    """Return the fp32 bytes of a sequence, with scores materialised."""
    total = 0.0
    for part in model.parts:
        each = part.kept_bytes_per_token(Numerics.FP32)
        for attention, keys in part.attentions(tokens):
            each += attention.eager_bytes_per_score[0] * attention.num_heads * keys
        total += part.count * part.tokens(tokens) * each
    return total


SAVED = {
    "esm": ("EsmForMaskedLM", ESM, {"input_ids": torch.full((1, 40), 5)}, 40),
    "wav2vec2": ("Wav2Vec2ForCTC", SOUND, {"input_values": torch.rand(1, 32_000)}, 99),
    "stable": ("Wav2Vec2ForCTC", SOUND | LAYERED, {"input_values": torch.rand(1, 32_000)}, 99),
    "segformer": (
        "SegformerForSemanticSegmentation",
        STAGES | {"image_size": 256},
        {"pixel_values": torch.rand(1, 3, 256, 256)},
        4096,
    ),
    "detr": (
        "DetrForObjectDetection",
        QUERIES | {"image_size": 256},
        {"pixel_values": torch.rand(1, 3, 256, 256)},
        64,
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_forward_pass_saves_what_is_read(name: str) -> None:
    class_name, config, inputs, tokens = SAVED[name]
    model_type = {"stable": "wav2vec2"}.get(name, name)
    own = {key: value for key, value in config.items() if key != "image_size"}
    built = _built(class_name, model_type, own).train()
    for path, parameter in built.named_parameters():
        # transformers looks for these stages by timm's names, and so trains none of its own ResNet.
        parameter.requires_grad_(
            parameter.requires_grad or any(f"stages.{stage}" in path for stage in (1, 2, 3))
        )
    buffers = list(built.buffers())
    saved = saved_bytes(built, lambda: built(**inputs), *buffers)
    read = _read(class_name, model_type, config)
    pixels = sum(
        part.tokens(tokens) * part.kept_bytes_per_token(Numerics.FP32)
        for part in read.parts
        if part.name == "pixels"  # the loss's, which is not computed here
    )
    assert saved == pytest.approx(_kept(read, tokens) - pixels, rel=0.06)
