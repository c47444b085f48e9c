"""Swin: four stages of windowed attention, each with half the resolution and twice the channels."""

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.fields import labels, pair, ratio, sizes
from planner.models.architectures.head_classes import OF_IMAGES, task_of
from planner.models.architectures.vit import image_model, image_patches, patch_projection


@frozen
class _Stage:
    """Layers of one resolution."""

    index: int
    """From 1."""
    channels: int
    depth: int
    heads: int
    tokens: int


def read(name: str, config: Config) -> Model:
    """Return the Model of a swin config.json, with the head that `architectures` names.

    `SwinModel` has no head; unnamed it is read as `SwinForImageClassification`. A sequence is
    an image, counted in the patches of the first stage; the vocabulary is its labels.

    Raises:
        InvalidInputError: depths and num_heads are not of one length, or stages run out of pixels.
    """
    depths = sizes(config, "depths", (2, 2, 6, 2))
    heads = sizes(config, "num_heads", (3, 6, 12, 24))
    if len(depths) != len(heads):
        raise InvalidInputError(
            f"{config.where}: depths has {len(depths)} stages, num_heads {len(heads)}",
            field="model",
        )
    channels = config.size("embed_dim", 96)
    patches = image_patches(config, 4)
    is_bare = task_of(config, OF_IMAGES, "image-classification") == "none"
    image, patch = pair(config, "image_size", 224), pair(config, "patch_size", 4)
    rows, columns = image[0] // patch[0], image[1] // patch[1]
    parts = [_embeddings(config, channels, patches)]
    for stage, (depth, stage_heads) in enumerate(zip(depths, heads, strict=True), start=1):
        shape = _Stage(
            index=stage,
            channels=channels,
            depth=depth,
            heads=stage_heads,
            tokens=rows * columns,
        )
        parts.append(_block(config, shape))
        if stage < len(depths):
            rows, columns = -(-rows // 2), -(-columns // 2)
            parts.append(_downsample(stage, channels, rows * columns))
            channels *= 2
    parts.append(encoders.norm_part("layernorm", channels, rows * columns))
    if not is_bare:
        parts.append(encoders.classifier("classifier", channels, labels(config)))
    return image_model(
        name,
        config,
        parts,
        hidden=config.size("embed_dim", 96),
        positions=patches,
        is_bare=is_bare,
    )


def _embeddings(config: Config, channels: int, patches: int) -> Part:
    projection = patch_projection(config, channels, 4)
    has_positions = config.flag("use_absolute_embeddings", default=False)
    dropout = config.probability("hidden_dropout_prob")
    return Part(
        name="embeddings",
        tokens_per_sequence=patches,
        linears=(projection,),
        tables={"position_embeddings": patches * channels} if has_positions else {},
        vectors={"norm": 2 * channels},
        kept=(
            kept.operand("pixels", projection.in_features),
            kept.layer_norm("norm", channels),
            *kept.dropout("dropout_mask", channels, dropout),
        ),
    )


def _block(config: Config, stage: _Stage) -> Part:
    """Build a stage's layers.

    Leaves out: the padding of images that are no multiple of the window, the mask of shifted
    windows.
    """
    window = config.size("window_size", 7)
    dropout = config.probability("attention_probs_dropout_prob")
    layer = encoders.Layer(
        name=f"stage_{stage.index}_block",
        count=stage.depth,
        attention=Attention(
            num_heads=stage.heads,
            num_key_value_heads=stage.heads,
            head_dim=config.divided(
                f"channels of stage {stage.index}", stage.channels, "num_heads", stage.heads
            ),
            is_causal=False,
            **kept.scores(dropout, is_upcast=True),
            keys=min(window**2, stage.tokens),
        ),
        hidden=stage.channels,
        inner=max(1, int(ratio(config, "mlp_ratio", 4.0) * stage.channels)),
        activation=config.text("hidden_act", "gelu"),
        names=encoders.Names(),
        mlp_dropout=config.probability("hidden_dropout_prob"),
        has_qkv_bias=config.flag("qkv_bias", default=True),
        tokens_per_sequence=stage.tokens,
    )
    plain = encoders.block(layer)
    return Part(
        name=plain.name,
        is_block=True,
        count=plain.count,
        tokens_per_sequence=stage.tokens,
        linears=plain.linears,
        tables={"relative_position_bias": (2 * window - 1) ** 2 * stage.heads},
        vectors=plain.vectors,
        attention=plain.attention,
        kept=plain.kept,
    )


def _downsample(stage: int, channels: int, tokens: int) -> Part:
    """Build the merging of four patches into one of twice the channels."""
    reduction = Linear(name="reduction", in_features=4 * channels, out_features=2 * channels)
    return Part(
        name=f"stage_{stage}_downsample",
        tokens_per_sequence=tokens,
        linears=(reduction,),
        vectors={"norm": 2 * 4 * channels},
        kept=(
            kept.layer_norm("norm", 4 * channels),
            kept.operand("reduction_input", 4 * channels),
        ),
    )
