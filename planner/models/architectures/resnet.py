"""ResNet: stages of convolutions and batch norms; a token is an output position of a convolution."""

from dataclasses import dataclass

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Linear, Model, Part
from planner.models.architectures import encoders, kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.fields import labels, pair, sizes
from planner.models.architectures.head_classes import OF_IMAGES, task_of
from planner.models.architectures.vit import image_model

_REDUCTION = 4
"""A bottleneck works on a quarter of its output's channels."""


@frozen
class _Convolution:
    """A convolution without bias, and the batch norm after it."""

    name: str
    channels: int
    out_channels: int
    kernel: int
    stride: int = 1

    @property
    def linear(self) -> Linear:
        return Linear(
            name=self.name,
            in_features=self.channels * self.kernel**2,
            out_features=self.out_channels,
            input_copies=max(1.0, (self.kernel / self.stride) ** 2),
        )

    def kept(self, *, is_input_shared: bool = False, is_last: bool = False) -> tuple[Kept, ...]:
        """Return what both keep per output position: their inputs.

        The activation between two convolutions keeps its output, which is the next one's input.
        """
        own = kept.operand(f"{self.name}_input", self.channels * self.stride**2, does=work.NONE)
        does = work.batch_norm(self.out_channels, is_shortcut=is_input_shared, is_last=is_last)
        norm = kept.operand(f"{self.name}_norm_input", self.out_channels, does=does)
        return (norm,) if is_input_shared else (own, norm)


def read(name: str, config: Config) -> Model:
    """Return the Model of a resnet config.json, with the head that `architectures` names.

    `ResNetModel` has no head; unnamed it is read as `ResNetForImageClassification`. A sequence
    is an image, counted in the positions of the first stage; the vocabulary is its labels. The
    config names no image_size: 224 unless it does.

    Raises:
        InvalidInputError: depths and hidden_sizes are not of one length, or the layer_type is
            unknown.
    """
    widths = sizes(config, "hidden_sizes", (256, 512, 1024, 2048))
    depths = sizes(config, "depths", (3, 4, 6, 3))
    if len(depths) != len(widths) or _layer_type(config) not in {"basic", "bottleneck"}:
        raise InvalidInputError(
            f"{config.where}: depths and hidden_sizes must be of one length, and"
            " layer_type basic or bottleneck",
            field="model",
        )
    height, width = pair(config, "image_size", 224)
    rows, columns = _halved(height), _halved(width)
    parts = [_stem(config, rows * columns)]
    rows, columns = _halved(rows), _halved(columns)
    first_positions = rows * columns
    channels = config.size("embedding_size", 64)
    for stage, (out_channels, depth) in enumerate(zip(widths, depths, strict=True), start=1):
        before = rows * columns
        is_halved = stage > 1 or config.flag("downsample_in_first_stage", default=False)
        if is_halved:
            rows, columns = _halved(rows), _halved(columns)
        stride = 2 if is_halved else 1
        shape = _Stage(stage, channels, out_channels, depth, stride, before, rows * columns)
        parts.extend(_stage(config, shape))
        channels = out_channels
    is_bare = task_of(config, OF_IMAGES, "image-classification") == "none"
    last = kept.operand("last_activation", channels, does=work.NONE)
    parts.append(Part(name="pooling", tokens_per_sequence=rows * columns, kept=(last,)))
    if not is_bare:
        parts.append(encoders.classifier("classifier", channels, labels(config)))
    return image_model(
        name,
        config,
        parts,
        hidden=widths[0],
        positions=first_positions,
        is_bare=is_bare,
        has_learned_positions=False,
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    index: int
    channels: int
    out_channels: int
    depth: int
    stride: int
    positions_before: int
    positions: int


def _halved(side: int) -> int:
    return -(-side // 2)


def _layer_type(config: Config) -> str:
    return config.text("layer_type", "bottleneck")


def _part(name: str, positions: int, convolutions: tuple[_Convolution, ...], count: int) -> Part:
    last = max(each.name for each in convolutions if each.name != "shortcut")
    return Part(
        name=name,
        is_block=True,
        count=count,
        tokens_per_sequence=positions,
        linears=tuple(convolution.linear for convolution in convolutions),
        vectors={
            f"{convolution.name}_norm": 2 * convolution.out_channels for convolution in convolutions
        },
        kept=tuple(
            entry
            for convolution in convolutions
            for entry in convolution.kept(
                is_input_shared=convolution.name == "shortcut", is_last=convolution.name == last
            )
        ),
    )


def _stem(config: Config, positions: int) -> Part:
    """Build the first convolution; the max pooling after it keeps its input and 8-byte indices."""
    channels = config.size("embedding_size", 64)
    first = _Convolution(
        name="embedder",
        channels=config.size("num_channels", 3),
        out_channels=channels,
        kernel=7,
        stride=2,
    )
    indices = 8 * channels / 4
    return Part(
        name="embeddings",
        tokens_per_sequence=positions,
        linears=(first.linear,),
        vectors={"embedder_norm": 2 * channels},
        kept=(
            *first.kept(),
            kept.operand("pooler_input", channels, does=work.kernel(channels)),
            Kept(name="pooler_indices", bytes_per_token=(indices, indices, indices)),
        ),
    )


def _stage(config: Config, stage: _Stage) -> list[Part]:
    """Build a stage: its first layer, which may halve the resolution, and the others.

    A bottleneck's first convolution still works at the old resolution, so where that is another
    one it is a part of its own.
    """
    layers = _layer(config, stage.channels, stage.out_channels, stage.stride)
    name = f"stage_{stage.index}"
    parts = []
    is_early = layers[0].stride == 1 and stage.stride > 1
    if is_early:
        entry = Part(
            name=f"{name}_entry",
            tokens_per_sequence=stage.positions_before,
            linears=(layers[0].linear,),
            vectors={f"{layers[0].name}_norm": 2 * layers[0].out_channels},
            kept=layers[0].kept(),
        )
        parts.append(entry)
        layers = layers[1:]
    if stage.channels != stage.out_channels or stage.stride > 1:
        shortcut = _Convolution(
            name="shortcut",
            channels=stage.channels,
            out_channels=stage.out_channels,
            kernel=1,
            stride=stage.stride,
        )
        layers = (*layers, shortcut)
    parts.append(_part(f"{name}_first_block", stage.positions, layers, 1))
    if stage.depth > 1:
        others = _layer(config, stage.out_channels, stage.out_channels, 1)
        parts.append(_part(f"{name}_block", stage.positions, others, stage.depth - 1))
    return parts


def _layer(
    config: Config, channels: int, out_channels: int, stride: int
) -> tuple[_Convolution, ...]:
    is_early = config.flag("downsample_in_bottleneck", default=False)
    first, second = (stride, 1) if is_early else (1, stride)
    inner = max(1, out_channels // _REDUCTION)
    shapes: tuple[tuple[int, int, int, int], ...] = (
        (channels, inner, 1, first),
        (inner, inner, 3, second),
        (inner, out_channels, 1, 1),
    )
    if _layer_type(config) == "basic":
        shapes = ((channels, out_channels, 3, stride), (out_channels, out_channels, 3, 1))
    return tuple(
        _Convolution(
            name=f"convolution_{index}",
            channels=before,
            out_channels=after,
            kernel=kernel,
            stride=step,
        )
        for index, (before, after, kernel, step) in enumerate(shapes, start=1)
    )
