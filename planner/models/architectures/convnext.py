"""ConvNeXt: stages of depthwise convolutions, each with an MLP; a token is a position of the first stage."""

from planner.core.errors import InvalidInputError
from planner.domain.model import Linear, Model, Part
from planner.models.architectures import encoders, kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.fields import labels, pair, sizes
from planner.models.architectures.head_classes import OF_IMAGES, task_of
from planner.models.architectures.vit import image_model, image_patches, patch_projection

_KERNEL = 7 * 7
"""Positions that a depthwise convolution sums for each channel."""
_EXPANSION = 4
_PATCH = 4


def read(name: str, config: Config) -> Model:
    """Return the Model of a convnext config.json, with the head that `architectures` names.

    `ConvNextModel` has no head; unnamed it is read as `ConvNextForImageClassification`. A
    sequence is an image, counted in the positions of the first stage; the vocabulary is its labels.

    Raises:
        InvalidInputError: depths and hidden_sizes are not of one length.
    """
    depths = sizes(config, "depths", (3, 3, 9, 3))
    widths = sizes(config, "hidden_sizes", (96, 192, 384, 768))
    if len(depths) != len(widths):
        raise InvalidInputError(
            f"{config.where}: depths has {len(depths)} stages, hidden_sizes {len(widths)}",
            field="model",
        )
    positions = image_patches(config, _PATCH)
    image, patch = pair(config, "image_size", 224), pair(config, "patch_size", _PATCH)
    rows, columns = image[0] // patch[0], image[1] // patch[1]
    parts = [_embeddings(config, widths[0], positions)]
    before = widths[0]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), start=1):
        if stage > 1:
            parts.append(encoders.norm_part(f"stage_{stage}_norm", before, rows * columns))
            rows, columns = max(1, rows // 2), max(1, columns // 2)
            parts.append(_downsample(stage, before, width, rows * columns))
        parts.append(_block(config, stage, width, depth, rows * columns))
        before = width
    is_bare = task_of(config, OF_IMAGES, "image-classification") == "none"
    parts.append(encoders.norm_part("layernorm", before, 1))
    if not is_bare:
        parts.append(encoders.classifier("classifier", before, labels(config)))
    return image_model(
        name,
        config,
        parts,
        hidden=widths[0],
        positions=positions,
        is_bare=is_bare,
    )


def _embeddings(config: Config, channels: int, positions: int) -> Part:
    projection = patch_projection(config, channels, _PATCH)
    return Part(
        name="embeddings",
        tokens_per_sequence=positions,
        linears=(projection,),
        vectors={"norm": 2 * channels},
        kept=(
            kept.operand("pixels", projection.in_features),
            kept.layer_norm("norm", channels),
        ),
    )


def _downsample(stage: int, before: int, channels: int, positions: int) -> Part:
    """Build the convolution that halves both sides: each position reads four, normed."""
    read_at_once = 4 * before
    convolution = Linear(
        name="downsampling", in_features=read_at_once, out_features=channels, has_bias=True
    )
    return Part(
        name=f"stage_{stage}_downsampling",
        tokens_per_sequence=positions,
        linears=(convolution,),
        kept=(kept.operand("downsampling_input", read_at_once),),
    )


def _block(config: Config, stage: int, channels: int, depth: int, positions: int) -> Part:
    """Build a stage's layers.

    A depthwise convolution is a matmul of its kernel for each channel.
    Leaves out: that it reaches less of a GPU's peak than a matmul; stochastic depth.
    """
    inner = _EXPANSION * channels
    shapes = (
        ("dwconv", _KERNEL, channels),
        ("pwconv1", channels, inner),
        ("pwconv2", inner, channels),
    )
    is_scaled = config.values.get("layer_scale_init_value", 1e-6) != 0
    return Part(
        name=f"stage_{stage}_block",
        is_block=True,
        count=depth,
        tokens_per_sequence=positions,
        linears=tuple(
            Linear(
                name=name,
                in_features=rows,
                out_features=columns,
                has_bias=True,
                input_copies=_KERNEL if rows == _KERNEL else 1.0,
            )
            for name, rows, columns in shapes
        ),
        vectors={"norm": 2 * channels, **({"layer_scale": channels} if is_scaled else {})},
        kept=(
            kept.operand("dwconv_input", channels),
            kept.layer_norm("norm", channels),
            kept.operand("pwconv1_input", channels),
            *kept.activation(config.text("hidden_act", "gelu"), inner),
            kept.operand("pwconv2_input", inner, does=work.NONE),
            *(
                (kept.operand("layer_scale_input", channels, does=work.product(channels)),)
                if is_scaled
                else ()
            ),
        ),
    )
