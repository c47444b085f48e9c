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
    "exaone4": "Exaone4",
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


TAGGERS: Mapping[str, str] = {
    name: begins for name, begins in _ENCODERS.items() if name not in {"deberta-v2", "modernbert"}
}
"""As above: encoders that classify tokens."""

_HEADS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "sequence-classification": ("ForSequenceClassification", CLASSIFIERS),
    "token-classification": ("ForTokenClassification", TAGGERS),
}


def classifying(
    config: Mapping[str, Any], task: str = "sequence-classification"
) -> Mapping[str, Any]:
    """Return the config of the same model with a head that classifies sequences, or tokens.

    Raises:
        UnsupportedError: the model is none of those whose head is known.
    """
    model_type, (ends, known) = config.get("model_type"), _HEADS[task]
    begins = known.get(model_type) if isinstance(model_type, str) else None
    if begins is None:
        raise UnsupportedError(
            f"model_type {str(model_type)[:60]!r} is planned without {task}",
            hint=f"these have it: {', '.join(known)}",
            field="recipe.task",
        )
    return {**config, "architectures": [f"{begins}{ends}"]}
