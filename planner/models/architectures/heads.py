"""Heads that a user may ask for in place of the one that a config.json names."""

from collections.abc import Mapping
from typing import Any

from planner.core.errors import UnsupportedError

_ENCODERS: Mapping[str, str] = {
    "albert": "Albert",
    "bert": "Bert",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
"""model_type -> how transformers' class names begin, of encoders that can classify sequences."""

DECODERS: Mapping[str, str] = {
    "arcee": "Arcee",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3_text": "Gemma3Text",
    "gpt2": "GPT2",
    "gpt_neox": "GPTNeoX",
    "helium": "Helium",
    "llama": "Llama",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "nemotron": "Nemotron",
    "phi": "Phi",
    "phi3": "Phi3",
    "qwen2": "Qwen2",
    "qwen2_moe": "Qwen2Moe",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
    "seed_oss": "SeedOss",
    "smollm3": "SmolLM3",
    "starcoder2": "Starcoder2",
}
"""As of encoders: decoders that classify a sequence by its last token."""

CLASSIFIERS: Mapping[str, str] = {**_ENCODERS, **DECODERS}


def classifying(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the same model with a head that classifies sequences.

    Raises:
        UnsupportedError: the model is none of those whose head is known.
    """
    model_type = config.get("model_type")
    begins = CLASSIFIERS.get(model_type) if isinstance(model_type, str) else None
    if begins is None:
        raise UnsupportedError(
            f"model_type {str(model_type)[:60]!r} is planned without classes of sequences",
            hint=f"these have them: {', '.join(CLASSIFIERS)}",
            field="recipe.task",
        )
    return {**config, "architectures": [f"{begins}ForSequenceClassification"]}
