"""What the class that a config.json names is trained for; a head that a reader does not model is refused by name."""

import re
from collections.abc import Mapping

from planner.core.errors import UnsupportedError
from planner.models.architectures.config import Config

_END = re.compile(r"(For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|EncoderModel|Backbone|Model)$")
"""What follows a family's own name in the names of transformers' classes."""

MASKED_LM: Mapping[str, str] = {"ForMaskedLM": "masked-lm", "Model": "none"}
OF_TEXTS: Mapping[str, str] = {
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
"""Heads of few logits that most encoders have: of a sequence, of every token, where an answer begins and ends, of each
choice, which is a sequence of its own."""
OF_IMAGES: Mapping[str, str] = {"ForImageClassification": "image-classification", "Model": "none"}
OF_DECODERS: Mapping[str, str] = {
    "ForCausalLM": "causal-lm",
    "LMHeadModel": "causal-lm",
    "Model": "causal-lm",
    "ForConditionalGeneration": "causal-lm",
    **{end: task for end, task in OF_TEXTS.items() if end != "ForMultipleChoice"},
}
OF_SEQ2SEQ: Mapping[str, str] = {
    "ForConditionalGeneration": "seq2seq-lm",
    "Model": "none",
    **{end: task for end, task in OF_TEXTS.items() if end != "ForMultipleChoice"},
}


def task_of(config: Config, tasks: Mapping[str, str], unsaid: str) -> str:
    """Return what the class under `architectures` is trained for.

    Args:
        config: whose class is read.
        tasks: of each head that the reader models, by how the names of its classes end.
        unsaid: where the config names no class, or one that is not called as transformers calls its own.

    Raises:
        UnsupportedError: the class has another head.
    """
    name = config.head_class()
    end = _END.search(name)
    if end is None:
        return unsaid
    if end[0] not in tasks:
        model_type = config.text("model_type", "")[:40]
        raise UnsupportedError(
            f"{config.where}: the head of {name[:60]} is not known",
            hint=f"of {model_type} these are: {', '.join(sorted(tasks))}",
            field="model",
        )
    return tasks[end[0]]
