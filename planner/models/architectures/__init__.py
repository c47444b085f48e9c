"""config.json -> Model: one reader per family, found by model_type and imported when needed."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from planner.core.errors import InvalidInputError, UnsupportedError, did_you_mean
from planner.domain.model import Model
from planner.models.architectures.config import Config

Reader: TypeAlias = Callable[[str, Config], Model]

LARGEST_MODEL = 10**15
"""Parameters; a thousand times the largest published model."""

_FAMILIES: Mapping[str, str] = {
    "bart": "bart mbart pegasus",
    "bert": "albert bert camembert distilbert electra mpnet roberta xlm-roberta",
    "clip": "clip siglip",
    "convnext": "convnext",
    "deberta": "deberta-v2",
    "experts": "deepseek_v2 deepseek_v3 glm4_moe gpt_oss granitemoe kimi_k2 minimax_m2 mixtral olmoe qwen2_moe qwen3_moe",
    "falcon": "falcon",
    "families": "arcee bloom cohere cohere2 exaone4 gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite helium llama mistral mpt nemotron olmo olmo2 olmo3 opt phi phi3 qwen2 qwen3 seed_oss smollm3 starcoder2",
    "hybrid": "qwen3_next",
    "modernbert": "modernbert",
    "multimodal": "gemma3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_vl qwen3_vl_text",
    "nemotron_h": "nemotron_h",
    "resnet": "resnet",
    "sparse": "deepseek_v32 glm_moe_dsa",
    "stablelm": "stablelm",
    "swin": "swin",
    "t5": "mt5 t5",
    "vit": "deit dinov2 vit",
    "whisper": "whisper",
}
"""Module -> the model types in its `READERS`. A plan needs one of them, so each is imported late."""

MODEL_TYPES: Mapping[str, str] = {
    model_type: module for module, types in _FAMILIES.items() for model_type in types.split()
}
"""model_type -> module, of every type that has a reader."""


def read_model(name: str, config: Mapping[str, Any]) -> Model:
    """Return the Model that a config.json describes.

    Raises:
        InvalidInputError: the config has no model_type, a field that cannot be, or absurd sizes.
        UnsupportedError: no reader knows this model_type, or the model attends to an encoder.
    """
    reading = Config(name, config)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        said = "a model_type that is no text" if "model_type" in config else "no model_type"
        raise InvalidInputError(
            f"{reading.where} has {said}",
            hint=f"known model types: {', '.join(sorted(MODEL_TYPES))}",
            field="model",
        )
    module = MODEL_TYPES.get(model_type)
    if module is None:
        hint = did_you_mean(model_type, MODEL_TYPES) or f"known: {', '.join(sorted(MODEL_TYPES))}"
        raise UnsupportedError(
            f"model_type {model_type[:60]!r} is not known yet", hint=hint, field="model"
        )
    if reading.flag("add_cross_attention", default=False):
        raise UnsupportedError("cross attention is not known yet", field="model")
    readers: Mapping[str, Reader] = import_module(f"planner.models.architectures.{module}").READERS
    model = readers[model_type](name, reading)
    if model.parameters > LARGEST_MODEL:
        raise InvalidInputError(
            f"{reading.where} describes a model of {model.parameters:.1e} parameters",
            hint="is one of its sizes too large?",
            field="model",
        )
    return model
