"""Heads that a user may ask for in place of the one that a config.json names."""

from collections.abc import Mapping
from typing import Any

from planner.core.errors import UnsupportedError

CLASSIFIERS: Mapping[str, str] = {
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


def classifying(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the same encoder with a head that classifies sequences.

    Raises:
        UnsupportedError: the model is none of the encoders whose head is known.
    """
    model_type = config.get("model_type")
    begins = CLASSIFIERS.get(model_type) if isinstance(model_type, str) else None
    if begins is None:
        raise UnsupportedError(
            f"model_type {str(model_type)[:60]!r} is planned without classes of sequences",
            hint=f"encoders have them: {', '.join(CLASSIFIERS)}",
            field="recipe.task",
        )
    return {**config, "architectures": [f"{begins}ForSequenceClassification"]}
