"""ViT and its like (deit, dinov2): patches as tokens, pre-norm blocks, a classifier of one token."""

from collections.abc import Sequence
from dataclasses import replace

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Linear, Model, Part
from planner.models.architectures import encoders, kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels, pair
from planner.models.architectures.head_classes import OF_IMAGES, task_of


@frozen
class _Family:
    """How a family differs from ViT."""

    patch: int = 16
    special_tokens: tuple[str, ...] = ("cls_token",)
    has_pooler: bool = True
    classifier: str = "ViTForImageClassification"
    is_bare_by_default: bool = False
    is_dino: bool = False
    """The MLP's size is a ratio, both sublayers are scaled, and the classifier sees the mean too."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a vit-like config.json, with the head that `architectures` names.

    `...Model` has a pooler (dinov2's has none); where no class is named it is read as
    `...ForImageClassification`. A sequence is an image; the vocabulary is its labels.
    """
    family = family_of(_Family, config)
    hidden = config.size("hidden_size", 768)
    unsaid = "none" if family.is_bare_by_default else "image-classification"
    is_bare = task_of(config, OF_IMAGES, unsaid) == "none"
    patches = image_patches(config, family.patch)
    tokens = patches + len(family.special_tokens)
    parts = (
        _embeddings(config, family, hidden, patches),
        _block(config, family, hidden, tokens),
        encoders.norm_part("layernorm", hidden, tokens),
        *_head(config, family, hidden, is_bare=is_bare),
    )
    return image_model(name, config, parts, hidden=hidden, positions=tokens, is_bare=is_bare)


def image_model(  # noqa: PLR0913 - six facts
    name: str,
    config: Config,
    parts: Sequence[Part],
    *,
    hidden: int,
    positions: int,
    is_bare: bool,
    has_learned_positions: bool = True,
) -> Model:
    """Return a model of images: a sequence is an image, the vocabulary its labels, of which a bare model has none."""
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task="none" if is_bare else "image-classification",
        parts=tuple(parts),
        vocab_size=1 if is_bare else labels(config),
        hidden_size=hidden,
        max_position_embeddings=positions,
        reads_images=True,
        has_learned_positions=has_learned_positions,
        config=config.values,
    )


def image_patches(config: Config, patch: int) -> int:
    """Return the patches of an image, with this default for patch_size.

    Raises:
        InvalidInputError: a patch is larger than the image.
    """
    image, patches = pair(config, "image_size", 224), pair(config, "patch_size", patch)
    rows, columns = (side // step for side, step in zip(image, patches, strict=True))
    if not rows * columns:
        raise InvalidInputError(
            f"{config.where}: patch_size {patches} is larger than image_size {image}",
            field="model",
        )
    return rows * columns


def patch_projection(config: Config, hidden: int, patch: int, *, has_bias: bool = True) -> Linear:
    """Build the convolution over patches, which do not overlap, as the matrix that it is."""
    height, width = pair(config, "patch_size", patch)
    return Linear(
        name="projection",
        in_features=config.size("num_channels", 3) * height * width,
        out_features=hidden,
        has_bias=has_bias,
    )


def _embeddings(config: Config, family: _Family, hidden: int, patches: int) -> Part:
    projection = patch_projection(config, hidden, family.patch)
    tokens = family.special_tokens
    vectors = dict.fromkeys(tokens, hidden)
    if family.is_dino and config.flag("use_mask_token", default=True):
        vectors["mask_token"] = hidden
    dropout = config.probability("hidden_dropout_prob")
    return Part(
        name="embeddings",
        tokens_per_sequence=patches,
        linears=(projection,),
        tables={"position_embeddings": (patches + len(tokens)) * hidden},
        vectors=vectors,
        kept=(
            kept.operand("pixels", projection.in_features),
            *kept.dropout("dropout_mask", hidden, dropout),
        ),
    )


def _block(config: Config, family: _Family, hidden: int, tokens: int) -> Part:
    heads = config.size("num_attention_heads", 12)
    dropout = config.probability("attention_probs_dropout_prob")
    ratio = config.size("mlp_ratio", 4) if family.is_dino else 1
    layer = encoders.Layer(
        count=config.size("num_hidden_layers", 12),
        attention=encoders.bidirectional(
            heads,
            config.divided("hidden_size", hidden, "num_attention_heads", heads),
            dropout,
            is_upcast=True,
        ),
        hidden=hidden,
        inner=ratio * hidden if family.is_dino else config.size("intermediate_size", 3072),
        activation=config.text("hidden_act", "gelu"),
        names=encoders.Names(attention_norm="norm1", mlp_norm="norm2")
        if family.is_dino
        else encoders.Names(),
        dropout=0.0 if family.is_dino else config.probability("hidden_dropout_prob"),
        has_qkv_bias=config.flag("qkv_bias", default=True),
        tokens_per_sequence=tokens,
    )
    return _scaled(config, layer) if family.is_dino else encoders.block(layer)


def _scaled(config: Config, layer: encoders.Layer) -> Part:
    """Build dinov2's layer: a scale after each sublayer, and perhaps a gated MLP."""
    plain, hidden = encoders.block(layer), layer.hidden
    scales = {f"layer_scale{index}": hidden for index in (1, 2)}
    linears, mlp_kept = plain.linears, encoders.mlp_kept(layer)
    if config.flag("use_swiglu_ffn", default=False):
        inner = (layer.inner * 2 // 3 + 7) // 8 * 8
        linears = (*encoders.projections(layer), *_swiglu(hidden, inner))
        mlp_kept = _swiglu_kept(hidden, inner)
    return replace(
        plain,
        linears=linears,
        vectors={**plain.vectors, **scales},
        kept=(
            *encoders.attention_kept(layer),
            *mlp_kept,
            *(kept.operand(f"{name}_input", hidden, does=work.product(hidden)) for name in scales),
        ),
    )


def _swiglu(hidden: int, inner: int) -> tuple[Linear, ...]:
    shapes = (
        ("gate_proj", hidden, inner),
        ("up_proj", hidden, inner),
        ("down_proj", inner, hidden),
    )
    return tuple(
        Linear(name=name, in_features=rows, out_features=columns, has_bias=True)
        for name, rows, columns in shapes
    )


def _swiglu_kept(hidden: int, inner: int) -> tuple[Kept, ...]:
    return (
        kept.operand("gate_up_input", hidden, copies=2),
        *kept.activation("silu", inner),
        kept.operand("activated_gate", inner, does=work.product(inner)),
        kept.operand("up", inner, does=work.NONE),
        kept.operand("down_proj_input", inner, does=work.NONE),
        kept.layer_norm("norm2", hidden),
    )


def _head(config: Config, family: _Family, hidden: int, *, is_bare: bool) -> tuple[Part, ...]:
    if is_bare:
        pooled = config.size("pooler_output_size", hidden) if family.has_pooler else 0
        return (encoders.classifier("pooler", hidden, pooled),) if pooled else ()
    features = 2 * hidden if family.is_dino else hidden
    return (encoders.classifier("classifier", features, labels(config)),)
