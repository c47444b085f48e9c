"""Towers of images: what a vision-language model, or a model of its own, makes patches of."""

from collections.abc import Mapping
from dataclasses import replace

from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import pair, ratio, said
from planner.models.architectures.norms import Norm
from planner.models.architectures.vit import image_model

_KEYS: Mapping[str, tuple[str, ...]] = {
    "width": ("embed_dim", "hidden_size"),
    "layers": ("num_hidden_layers", "depth"),
    "heads": ("num_attention_heads", "num_heads"),
    "channels": ("num_channels", "in_channels"),
}
"""The names that families give to the same size."""


@frozen
class Tower:
    """What the modelling code of a tower fixes, and the sizes that it takes where the config has none."""

    width: int
    layers: int
    heads: int
    inner: int
    patch: int
    image: int = 0
    """Pixels of a side; 0 where images keep their own size."""
    patches: int = 0
    """Of one image, assumed where images keep their own size."""
    frames: int = 1
    """That a patch goes through: an image alone is repeated."""
    norm: Norm = Norm.LAYER
    activation: str = "gelu"
    has_class_token: bool = False
    has_patch_bias: bool = True
    has_table: bool = True
    """Of positions."""
    has_first_norm: bool = False
    has_last_norm: bool = False
    is_fused: bool = False
    """One matrix for query, key and value."""
    is_gated: bool = False
    has_qkv_bias: bool = True
    has_output_bias: bool = True
    has_mlp_bias: bool = True
    has_scales: bool = False
    """A learned scale of each channel after attention and MLP."""
    upcasts_softmax: bool = True
    has_pooling: bool = False
    """A learned query attends to the patches, where the config does not say."""


@frozen
class Seen:
    """A tower that was read: its parts, and what it hands on."""

    parts: tuple[Part, ...]
    tokens: int
    width: int


def read(name: str, config: Config) -> Model:
    """Return the Model of a tower alone: no head, an image for a sequence."""
    seen = tower(config)
    return image_model(
        name, config, seen.parts, hidden=seen.width, positions=seen.tokens, is_bare=True
    )


def tower(config: Config) -> Seen:
    """Return the tower that a config describes."""
    family = family_of(Tower, config)
    width = _size(config, "width", family.width)
    patch = pair(config, "patch_size", family.patch)
    tokens = _patches(config, family, patch)
    pixels = _size(config, "channels", 3) * patch[0] * patch[1]
    frames = config.size("temporal_patch_size", family.frames) if family.frames > 1 else 1
    rows = tokens + (1 if family.has_class_token else 0)
    projection = Linear(
        name="patch_embedding",
        in_features=frames * pixels,
        out_features=width,
        has_bias=family.has_patch_bias,
    )
    embeddings = Part(
        name="vision_embeddings",
        tokens_per_sequence=tokens,
        linears=(projection,),
        tables={"position_embedding": rows * width} if family.has_table else {},
        vectors={"class_embedding": width} if family.has_class_token else {},
        kept=(kept.operand("pixels", projection.in_features),),
    )
    first = _norm(family, "first_norm", width, rows) if family.has_first_norm else ()
    last = _norm(family, "last_norm", width, rows) if family.has_last_norm else ()
    blocks = _blocks(config, family, width, rows)
    pooling = _pooling(config, family, width)
    return Seen(parts=(embeddings, *first, *blocks, *last, *pooling), tokens=tokens, width=width)


def _size(config: Config, name: str, default: int) -> int:
    return config.size(said(config, _KEYS[name]), default)


def _patches(config: Config, family: Tower, patch: tuple[int, int]) -> int:
    if not family.image:
        return config.size("num_position_embeddings", family.patches)
    image = pair(config, "image_size", family.image)
    return max(1, (image[0] // patch[0]) * (image[1] // patch[1]))


def _norm(family: Tower, name: str, width: int, tokens: int) -> tuple[Part, ...]:
    vectors = {name: family.norm.parameters_per_channel * width}
    norm = family.norm.kept(name, width)
    return (Part(name=name, tokens_per_sequence=tokens, vectors=vectors, kept=(norm,)),)


def _blocks(config: Config, family: Tower, width: int, tokens: int) -> tuple[Part, ...]:
    """Return the layers; where most look at a window of patches alone, those and the others."""
    heads = _size(config, "heads", family.heads)
    attention = encoders.bidirectional(
        heads,
        config.divided("hidden_size", width, "num_attention_heads", heads),
        config.probability("attention_dropout"),
        is_upcast=family.upcasts_softmax,
    )
    block = _block(config, family, width, tokens, attention)
    whole = config.values.get("fullatt_block_indexes")
    if not isinstance(whole, list):
        return (block,)
    side = config.size("window_size", 112) // pair(config, "patch_size", family.patch)[0]
    windowed = replace(
        block,
        name="vision_window_block",
        count=max(0, block.count - len(whole)),
        attention=replace(attention, keys=max(1, side * side)),
    )
    attending = replace(block, count=min(block.count, len(whole)))
    return tuple(part for part in (windowed, attending) if part.count)


def _block(config: Config, family: Tower, width: int, tokens: int, attention: Attention) -> Part:
    inner = config.size(
        "intermediate_size", int(width * ratio(config, "mlp_ratio", family.inner / family.width))
    )
    mlp, mlp_kept = _mlp(config, family, width, inner)
    matrices = ("qkv",) if family.is_fused else ("q_proj", "k_proj", "v_proj")
    has_bias = config.flag("attention_bias", default=family.has_qkv_bias)
    norms = dict.fromkeys(("norm1", "norm2"), family.norm.parameters_per_channel * width)
    scales = dict.fromkeys(("scale1", "scale2"), width) if family.has_scales else {}
    return Part(
        name="vision_block",
        is_block=True,
        count=_size(config, "layers", family.layers),
        tokens_per_sequence=tokens,
        linears=(
            *(_linear(each, width, 3 * width // len(matrices), has_bias) for each in matrices),
            _linear("proj", width, width, family.has_output_bias),
            *mlp,
        ),
        vectors={**norms, **scales},
        attention=attention,
        kept=(
            family.norm.kept("norm1", width),
            kept.operand("qkv_input", width, copies=len(matrices)),
            kept.operand("query_key_value", 3 * width),
            kept.operand("attention_output", width),
            *(kept.operand(f"{scale}_input", width) for scale in scales),
            family.norm.kept("norm2", width),
            *mlp_kept,
        ),
    )


def _linear(name: str, rows: int, columns: int, has_bias: bool) -> Linear:  # noqa: FBT001 - a matrix's four facts
    return Linear(name=name, in_features=rows, out_features=columns, has_bias=has_bias)


def _mlp(
    config: Config, family: Tower, width: int, inner: int
) -> tuple[tuple[Linear, ...], tuple[Kept, ...]]:
    function = config.text("hidden_act", family.activation)
    ups = ("gate_proj", "up_proj") if family.is_gated else ("fc1",)
    linears = (
        *(_linear(up, width, inner, family.has_mlp_bias) for up in ups),
        _linear("down_proj", inner, width, family.has_mlp_bias),
    )
    return linears, (
        kept.operand("mlp_input", width, copies=len(ups)),
        *encoders.activation(function, inner, 0.0),
        *(kept.gate(inner) if family.is_gated else ()),
        kept.operand("mlp_inner", inner),
    )


def _pooling(config: Config, family: Tower, width: int) -> tuple[Part, ...]:
    """Return SigLIP's pooling by a learned query, which keeps next to nothing."""
    if not family.has_pooling or not config.flag("vision_use_head", default=True):
        return ()
    inner = config.size("intermediate_size", family.inner)
    shapes = (
        ("in_proj", width, 3 * width),
        ("out_proj", width, width),
        ("fc1", width, inner),
        ("fc2", inner, width),
    )
    linears = tuple(_linear(name, rows, columns, has_bias=True) for name, rows, columns in shapes)
    vectors = {"probe": width, "layernorm": 2 * width}
    return (Part(name="vision_head", tokens_per_sequence=1, linears=linears, vectors=vectors),)
