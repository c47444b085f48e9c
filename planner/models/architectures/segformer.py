"""SegFormer: stages of patches that overlap, attention to fewer keys, and a head that sees every stage."""

from dataclasses import replace

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.fields import labels, pair, sizes
from planner.models.architectures.head_classes import OF_IMAGES, task_of
from planner.models.architectures.vit import image_model

_TASKS = {**OF_IMAGES, "ForSemanticSegmentation": "semantic-segmentation"}
_IMAGE = 512
"""Pixels of a side, of which the config says nothing: what the image processors of the checkpoints make."""
_KERNEL = 9
"""Taps of the depthwise convolution of 3 by 3."""


@frozen
class _Stage:
    """Layers of one resolution."""

    index: int
    """From 1."""
    inputs: int
    """Channels of the stage before."""
    channels: int
    depth: int
    heads: int
    patch: int
    stride: int
    reduction: int
    ratio: int
    tokens: int

    @property
    def keys(self) -> int:
        return max(1, self.tokens // self.reduction**2)


def read(name: str, config: Config) -> Model:
    """Return the Model of a segformer config.json, with the head that `architectures` names.

    Where no class is named it is read as `SegformerForSemanticSegmentation`. A sequence is an image, counted in the
    patches of the first stage; its logits are as many as its pixels.

    Raises:
        InvalidInputError: the lists of the stages are not of one length.
        UnsupportedError: the class has another head.
    """
    task = task_of(config, _TASKS, "semantic-segmentation")
    height, width = pair(config, "image_size", _IMAGE)
    stages = _stages(config, height, width)
    channels = stages[-1].channels
    parts = [part for stage in stages for part in _stage(config, stage)]
    if task == "semantic-segmentation":
        parts += _decode_head(config, stages, height * width)
    if task == "image-classification":
        parts.append(encoders.classifier("classifier", channels, labels(config)))
    model = image_model(
        name,
        config,
        parts,
        hidden=stages[0].channels,
        positions=stages[0].tokens,
        is_bare=task == "none",
        has_learned_positions=False,
    )
    return replace(model, task=task)


def _stages(config: Config, height: int, width: int) -> list[_Stage]:
    keys = ("hidden_sizes", "depths", "num_attention_heads", "patch_sizes", "strides", "sr_ratios", "mlp_ratios")  # fmt: skip
    usual = (
        (32, 64, 160, 256),
        (2, 2, 2, 2),
        (1, 2, 5, 8),
        (7, 3, 3, 3),
        (4, 2, 2, 2),
        (8, 4, 2, 1),
        (4, 4, 4, 4),
    )
    lists = [sizes(config, key, each) for key, each in zip(keys, usual, strict=True)]
    if len({len(each) for each in lists}) > 1:
        raise InvalidInputError(
            f"{config.where}: {', '.join(keys)} must be of one length", field="model"
        )
    stages: list[_Stage] = []
    inputs = config.size("num_channels", 3)
    for index, row in enumerate(zip(*lists, strict=True), start=1):
        channels, depth, heads, patch, stride, reduction, ratio = row
        height, width = -(-height // stride), -(-width // stride)
        stages.append(
            _Stage(
                index=index,
                inputs=inputs,
                channels=channels,
                depth=depth,
                heads=heads,
                patch=patch,
                stride=stride,
                reduction=reduction,
                ratio=ratio,
                tokens=height * width,
            )
        )
        inputs = channels
    return stages


def _stage(config: Config, stage: _Stage) -> list[Part]:
    name = f"stage_{stage.index}"
    projection = Linear(
        name="proj",
        in_features=stage.inputs * stage.patch**2,
        out_features=stage.channels,
        has_bias=True,
    )
    embeddings = Part(
        name=f"{name}_patch_embeddings",
        tokens_per_sequence=stage.tokens,
        linears=(projection,),
        vectors={"layer_norm": 2 * stage.channels},
        kept=(
            kept.operand("proj_input", stage.inputs * stage.stride**2),
            kept.layer_norm("layer_norm", stage.channels),
        ),
    )
    last = encoders.norm_part(f"{name}_layer_norm", stage.channels, stage.tokens)
    return [embeddings, *_blocks(config, stage, name), last]


def _blocks(config: Config, stage: _Stage, name: str) -> list[Part]:
    """Return a stage's layers, and what of each sees the fewer positions of its keys as a part of its own."""
    channels, inner = stage.channels, stage.ratio * stage.channels
    dropout = config.probability("attention_probs_dropout_prob")
    layer = encoders.Layer(
        count=stage.depth,
        attention=Attention(
            num_heads=stage.heads,
            num_key_value_heads=stage.heads,
            head_dim=config.divided(
                f"channels of stage {stage.index}", channels, "num_attention_heads", stage.heads
            ),
            is_causal=False,
            **kept.scores(dropout, is_upcast=True),
            keys=stage.keys,
        ),
        hidden=channels,
        inner=inner,
        activation=config.text("hidden_act", "gelu"),
        names=encoders.Names(),
        name=f"{name}_block",
        tokens_per_sequence=stage.tokens,
    )
    plain = encoders.block(layer)
    of_keys = {layer.names.key, layer.names.value} if stage.reduction > 1 else set()
    block = Part(
        name=plain.name,
        is_block=True,
        count=stage.depth,
        tokens_per_sequence=stage.tokens,
        linears=tuple(each for each in plain.linears if each.name not in of_keys),
        vectors={**plain.vectors, "dwconv": inner * (_KERNEL + 1)},
        attention=plain.attention,
        kept=(
            *_kept(plain.kept, channels, has_own_keys=not of_keys),
            kept.operand("dwconv_input", inner),
        ),
    )
    return [block, _reduced(stage, f"{name}_keys")] if of_keys else [block]


def _kept(entries: tuple[Kept, ...], channels: int, *, has_own_keys: bool) -> tuple[Kept, ...]:
    if has_own_keys:
        return entries
    fewer = {"query_key_value": kept.operand("query", channels)}
    return tuple(fewer.get(each.name, each) for each in entries)


def _reduced(stage: _Stage, name: str) -> Part:
    """Return the convolution that leaves fewer positions, its norm, and keys and values of those."""
    channels = stage.channels
    merged = channels * stage.reduction**2
    shapes = (("sequence_reduction", merged), ("k_proj", channels), ("v_proj", channels))
    return Part(
        name=name,
        count=stage.depth,
        tokens_per_sequence=stage.keys,
        linears=tuple(
            Linear(name=each, in_features=rows, out_features=channels, has_bias=True)
            for each, rows in shapes
        ),
        vectors={"layer_norm": 2 * channels},
        kept=(
            kept.layer_norm("layer_norm", channels),
            kept.operand("key_value_input", channels, copies=2),
            kept.operand("key_value", 2 * channels),
        ),
    )


def _decode_head(config: Config, stages: list[_Stage], pixels: int) -> list[Part]:
    """Return the head: a matrix for each stage, all brought to the first one's positions and fused, and the logits.

    Logits grow to the image's pixels, where their softmax is kept, and its gradient comes beside it.
    """
    width, positions = config.size("decoder_hidden_size", 256), stages[0].tokens
    classes, dropout = labels(config), config.probability("classifier_dropout_prob", 0.1)
    projections = [
        Part(
            name=f"stage_{stage.index}_projection",
            tokens_per_sequence=stage.tokens,
            linears=(
                Linear(name="proj", in_features=stage.channels, out_features=width, has_bias=True),
            ),
            kept=(kept.operand("proj_input", stage.channels),),
        )
        for stage in stages
    ]
    fused = len(stages) * width
    head = Part(
        name="decode_head",
        tokens_per_sequence=positions,
        linears=(
            Linear(name="linear_fuse", in_features=fused, out_features=width),
            Linear(name="classifier", in_features=width, out_features=classes, has_bias=True),
        ),
        vectors={"batch_norm": 2 * width},
        kept=(
            kept.operand("linear_fuse_input", fused),
            kept.operand("batch_norm_input", width),
            kept.operand("relu_output", width),
            *kept.dropout("dropout_mask", width, dropout),
            *((kept.operand("classifier_input", width),) if dropout else ()),
        ),
    )
    logits = kept.counted("logits_and_gradients", classes, (8, 10, 4))
    return [*projections, head, Part(name="pixels", tokens_per_sequence=pixels, kept=(logits,))]
