"""Vision-language models: a text model with a tower of images, one image per sequence, and what joins them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from planner.catalog.records import model_types
from planner.catalog.records import read as record
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Linear, Model, Part
from planner.models.architectures import kept, read_model
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.norms import Norm
from planner.models.architectures.towers import Seen, tower

Projector: TypeAlias = Callable[[Config, Config, Seen, int], tuple[Part, ...]]
"""Builds what hands patches to the text: of the whole config, the tower's, the tower, and the text's hidden size."""


_TOWER, _BOTH = "towers", "multimodal"
"""Readers of one half alone, and of two."""


@frozen
class _Family:
    text: str
    """The model_type of the text's half, where the config names none that is known."""
    tower: str
    """The model_type of the tower, where the config names none that is known."""
    projector: str
    is_tied: bool = False
    """Where the config does not say."""
    has_newline: bool = False
    """A learned token ends each row of an image."""
    ties_by_text: bool = False
    """What the config does not say of the tie, its text's half says."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a vision-language config: the tower's parts, the projector's and the text's.

    Qwen2-VL's older configs have the text's fields beside the tower's.
    """
    family = family_of(_Family, config)
    text = read_model(name, _text(config, family))
    vision = Config(
        name, _named(_section(config, "vision_config", {}), family.tower, is_tower=True)
    )
    seen = tower(vision)
    join = _PROJECTORS[family.projector](config, vision, seen, text.hidden_size)
    newline = {"image_newline": text.hidden_size} if family.has_newline else {}
    row = (Part(name="image_newline", tokens_per_sequence=1, vectors=newline),) if newline else ()
    return replace(
        text,
        model_type=config.text("model_type", ""),
        parts=(*seen.parts, *join, *row, *text.parts),
    )


def _text(config: Config, family: _Family) -> Mapping[str, Any]:
    section = _named(_section(config, "text_config", config.values), family.text, is_tower=False)
    unsaid = section.get("tie_word_embeddings") if family.ties_by_text else family.is_tied
    tie = config.values.get("tie_word_embeddings")
    return {**section, "tie_word_embeddings": unsaid if tie is None else tie, "architectures": None}


def _named(section: Mapping[str, Any], model_type: str, *, is_tower: bool) -> Mapping[str, Any]:
    """Return half of a config with its own model_type, or this one where that is no reader's of such a half."""
    own = section.get("model_type")
    reader = (
        record("families", str(own))["reader"]
        if isinstance(own, str) and own in model_types()
        else ""
    )
    fits = reader == _TOWER if is_tower else reader not in {"", _TOWER, _BOTH}
    return section if fits else {**section, "model_type": model_type}


def _section(config: Config, key: str, otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    section = config.values.get(key)
    if section is None:
        return otherwise
    if not isinstance(section, Mapping):
        raise InvalidInputError(f"{config.where}: {key} must be an object", field="model")
    return section


def _joined(tokens: int, shapes: tuple[tuple[str, int, int], ...], *, has_bias: bool) -> Part:
    """Return a projector of matrices, each of which keeps its input; between two there is an activation that keeps its own."""
    linears = tuple(
        Linear(name=name, in_features=rows, out_features=columns, has_bias=has_bias)
        for name, rows, columns in shapes
    )
    inputs = (kept.operand(f"{name}_input", rows) for name, rows, _ in shapes)
    between = (kept.operand(f"{name}_activation", columns) for name, _, columns in shapes[:-1])
    return Part(
        name="vision_projector",
        tokens_per_sequence=max(1, tokens),
        linears=linears,
        kept=(*inputs, *between),
    )


def _mlp(config: Config, _vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    """Return LLaVA's two matrices."""
    layers = config.values.get("vision_feature_layer")
    width = seen.width * (len(layers) if isinstance(layers, list) and layers else 1)
    has_bias = config.flag("multimodal_projector_bias", default=True)
    shapes = (("linear_1", width, text), ("linear_2", text, text))
    return (_joined(seen.tokens, shapes, has_bias=has_bias),)


def _merged_mlp(config: Config, _vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    """Return Mistral's: patches are normed, and four of them merged to one token."""
    merged = config.size("spatial_merge_size", 2) ** 2
    norm = Part(
        name="projector_norm",
        tokens_per_sequence=seen.tokens,
        vectors={"norm": seen.width},
        kept=(kept.rms_norm("norm", seen.width),),
    )
    merging = (("merging_layer", seen.width * merged, seen.width),)
    shapes = (("linear_1", seen.width, text), ("linear_2", text, text))
    has_bias = config.flag("multimodal_projector_bias", default=False)
    return (
        norm,
        replace(_joined(seen.tokens // merged, merging, has_bias=False), name="vision_merger"),
        _joined(seen.tokens // merged, shapes, has_bias=has_bias),
    )


def _matrix(config: Config, _vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    """Return PaliGemma's single matrix."""
    size = config.size("projection_dim", text)
    return (_joined(seen.tokens, (("linear", seen.width, size),), has_bias=True),)


def _shuffled(config: Config, _vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    """Return Idefics 3's: the channels of a square of patches become one token's."""
    square = config.size("scale_factor", 2) ** 2
    shapes = (("proj", seen.width * square, text),)
    return (_joined(seen.tokens // square, shapes, has_bias=False),)


def _normed_mlp(_config: Config, _vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    """Return InternVL's: four patches become one token, which is normed."""
    width = 4 * seen.width
    join = _joined(
        seen.tokens // 4, (("linear_1", width, text), ("linear_2", text, text)), has_bias=True
    )
    norm = kept.layer_norm("layer_norm", width)
    return (replace(join, vectors={"layer_norm": 2 * width}, kept=(norm, *join.kept)),)


def _pooled(config: Config, _vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    """Return Gemma 3's projector of pooled patches."""
    return (
        Part(
            name="vision_projector",
            tokens_per_sequence=config.size("mm_tokens_per_image", 256),
            linears=(Linear(name="projection", in_features=seen.width, out_features=text),),
            vectors={"soft_embedding_norm": seen.width},
            kept=(
                kept.rms_norm("soft_embedding_norm", seen.width),
                kept.operand("input", seen.width),
            ),
        ),
    )


def _qwen(vision: Config, seen: Seen, *, norm: Norm, output: int) -> tuple[Part, tuple[Part, ...]]:
    """Return Qwen's merger, which norms each patch, and those of deeper layers, which norm the merged ones."""
    merged = seen.width * vision.size("spatial_merge_size", 2) ** 2
    shapes = (("fc1", merged, merged), ("fc2", merged, output))
    join = _joined(seen.tokens * seen.width // merged, shapes, has_bias=True)
    each = norm.parameters_per_channel
    merger = replace(
        join,
        name="vision_merger",
        vectors={"norm": each * seen.width},
        kept=(norm.kept("norm", merged), *join.kept),
    )
    deep = vision.values.get("deepstack_visual_indexes")
    count = len(deep) if isinstance(deep, list) else 0
    deeper = replace(merger, name="deepstack_merger", count=count, vectors={"norm": each * merged})
    return merger, ((deeper,) if count else ())


def _qwen2(_config: Config, vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    return _qwen(vision, seen, norm=Norm.LAYER, output=vision.size("hidden_size", text))[:1]


def _qwen2_5(_config: Config, vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    output = vision.size("out_hidden_size", text)
    return _qwen(vision, seen, norm=Norm.RMS, output=output)[:1]


def _qwen3(_config: Config, vision: Config, seen: Seen, text: int) -> tuple[Part, ...]:
    output = vision.size("out_hidden_size", text)
    merger, deeper = _qwen(vision, seen, norm=Norm.LAYER, output=output)
    return (merger, *deeper)


_PROJECTORS: Mapping[str, Projector] = {
    "mlp": _mlp,
    "merged_mlp": _merged_mlp,
    "matrix": _matrix,
    "shuffled": _shuffled,
    "normed_mlp": _normed_mlp,
    "pooled": _pooled,
    "qwen2": _qwen2,
    "qwen2_5": _qwen2_5,
    "qwen3": _qwen3,
}
