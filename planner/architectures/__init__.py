"""config.json -> Model: one reader per family, in one table."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from planner.architectures import (
    bart,
    bert,
    clip,
    deberta,
    decoder,
    experts,
    falcon,
    families,
    modernbert,
    multimodal,
    resnet,
    swin,
    t5,
    vit,
    whisper,
)
from planner.architectures.config import Config
from planner.errors import InvalidInputError, UnsupportedError, did_you_mean
from planner.model import Model

Reader: TypeAlias = Callable[[str, Config], Model]

LARGEST_MODEL = 10**15
"""Parameters; a thousand times the largest published model."""

READERS: Mapping[str, Reader] = {
    **dict.fromkeys(
        (
            "albert",
            "bert",
            "camembert",
            "distilbert",
            "electra",
            "mpnet",
            "roberta",
            "xlm-roberta",
        ),
        bert.read,
    ),
    **dict.fromkeys(("bart", "mbart", "pegasus"), bart.read),
    **dict.fromkeys(("clip", "siglip"), clip.read),
    **dict.fromkeys(("deit", "dinov2", "vit"), vit.read),
    **dict.fromkeys(("mt5", "t5"), t5.read),
    "deberta-v2": deberta.read,
    "falcon": falcon.read_falcon,
    "modernbert": modernbert.read,
    "resnet": resnet.read,
    "swin": swin.read,
    "whisper": whisper.read,
    **{model_type: decoder.reader(family) for model_type, family in families.DENSE.items()},
    **experts.READERS,
    **multimodal.TEXT_READERS,
    **multimodal.READERS,
}


def read_model(name: str, config: Mapping[str, Any]) -> Model:
    """Return the Model that a config.json describes.

    Raises:
        InvalidInputError: the config has no model_type, a field that cannot be, or absurd sizes.
        UnsupportedError: no reader knows this model_type, or the model attends to an encoder.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise InvalidInputError(
            f"config.json of {name[:80]!r} has no model_type",
            hint=f"known model types: {', '.join(sorted(READERS))}",
            field="model",
        )
    reader = READERS.get(model_type)
    if reader is None:
        hint = did_you_mean(model_type, READERS) or f"known: {', '.join(sorted(READERS))}"
        raise UnsupportedError(
            f"model_type {model_type[:60]!r} is not known yet", hint=hint, field="model"
        )
    reading = Config(name, config)
    if reading.flag("add_cross_attention", default=False):
        raise UnsupportedError("cross attention is not known yet", field="model")
    model = reader(name, reading)
    if model.parameters > LARGEST_MODEL:
        raise InvalidInputError(
            f"config.json of {name[:80]!r} describes a model of {model.parameters:.1e} parameters",
            hint="is one of its sizes too large?",
            field="model",
        )
    return model
