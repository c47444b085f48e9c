"""DETR: a ResNet whose norms are frozen, an encoder over its last positions, and a decoder of queries."""

from collections.abc import Mapping
from dataclasses import replace

from planner.core.errors import UnsupportedError
from planner.domain.model import Linear, Model, Part
from planner.models.architectures import encoders, kept, resnet
from planner.models.architectures.bart import decoder_block
from planner.models.architectures.config import Config
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import task_of

_TASKS = {"ForObjectDetection": "object-detection", "Model": "none"}
_IMAGE = (800, 1333)
"""Pixels of an image, of which the config says nothing: DetrImageProcessor's shortest and longest side."""
_DEPTHS: Mapping[str, tuple[int, ...]] = {
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
"""Of the backbones by timm's names."""
_CORNERS = 4


def read(name: str, config: Config) -> Model:
    """Return the Model of a detr config.json, with the head that `architectures` names.

    Where no class is named it is read as `DetrForObjectDetection`. A sequence is an image; its tokens are the
    positions that the backbone leaves.

    Raises:
        InvalidInputError: a size cannot be.
        UnsupportedError: the class has another head, or the backbone is no ResNet.
    """
    task = task_of(config, _TASKS, "object-detection")
    hidden = config.size("d_model", 256)
    queries = config.size("num_queries", 100)
    backbone = _backbone(name, config)
    positions = next(part.tokens(1) for part in backbone.parts if part.name == "pooling")
    channels = max(layer.out_features for layer in backbone.parts[-2].linears)
    sides = [_layer(config, side, hidden) for side in ("encoder", "decoder")]
    encoder = encoders.block(replace(sides[0], tokens_per_sequence=positions))
    parts = (
        *(_frozen(part) for part in backbone.parts if part.name != "pooling"),
        _projection(channels, hidden, positions),
        encoder,
        *_decoder(sides[1], queries, positions),
        *(_heads(config, hidden, queries) if task != "none" else ()),
    )
    return replace(
        backbone,
        model_type="detr",
        task=task,
        parts=parts,
        vocab_size=labels(config, 91),
        hidden_size=hidden,
        max_position_embeddings=positions,
        config=config.values,
    )


def _backbone(name: str, config: Config) -> Model:
    said = config.values.get("backbone_config")
    values = dict(said) if isinstance(said, Mapping) else {}
    called = config.text("backbone", "") or str(values.get("backbone") or "resnet50")
    own = values.get("model_type")
    if own not in (None, "resnet", "timm_backbone") or (own != "resnet" and called not in _DEPTHS):
        raise UnsupportedError(
            f"{config.where}: the backbone {str(own or called)[:60]!r} is not known",
            hint=f"known: resnet, and {', '.join(_DEPTHS)}",
            field="model",
        )
    if own != "resnet":
        values = {"depths": _DEPTHS[called]}
    image = config.values.get("image_size") or list(_IMAGE)
    return resnet.read(
        name, Config(name, {**values, "architectures": ["ResNetModel"], "image_size": image})
    )


def _frozen(part: Part) -> Part:
    """Return a part of the backbone: its norms are buffers, which keep nothing, and before the second stage nothing trains.

    Source: transformers 5.23, DetrConvEncoder with a backbone of timm. Leaves out: that the weights of the first
    stage, a hundredth of all, have no gradients.
    """
    is_first = part.name == "embeddings" or part.name.startswith("stage_1_")
    trained = () if is_first else part.kept
    kept_ones = tuple(each for each in trained if not each.name.endswith("_norm_input"))
    return replace(part, vectors={}, kept=kept_ones)


def _projection(channels: int, hidden: int, positions: int) -> Part:
    matrix = Linear(
        name="input_projection", in_features=channels, out_features=hidden, has_bias=True
    )
    return Part(
        name="input_projection",
        tokens_per_sequence=positions,
        linears=(matrix,),
        kept=(kept.operand("input_projection_input", channels),),
    )


def _layer(config: Config, side: str, hidden: int) -> encoders.Layer:
    heads_key = f"{side}_attention_heads"
    heads = config.size(heads_key, 8)
    return encoders.Layer(
        name=f"{side}_block",
        count=config.size(f"{side}_layers", 6),
        attention=encoders.bidirectional(
            heads,
            config.divided("d_model", hidden, heads_key, heads),
            config.probability("attention_dropout"),
            is_upcast=True,
        ),
        hidden=hidden,
        inner=config.size(f"{side}_ffn_dim", 2048),
        activation=config.text("activation_function", "relu"),
        names=encoders.Names(),
        dropout=config.probability("dropout", 0.1),
        activation_dropout=config.probability("activation_dropout"),
    )


def _decoder(layer: encoders.Layer, queries: int, positions: int) -> tuple[Part, ...]:
    """Return the decoder's layers over the queries, whose cross-attention's keys are the image's positions."""
    hidden = layer.hidden
    table = {"query_position_embeddings": queries * hidden}
    plain = decoder_block(replace(layer, tokens_per_sequence=queries))
    share = positions / queries
    block = replace(
        plain,
        is_target=False,
        linears=tuple(
            replace(each, per_token=share) if each.reads_source else each for each in plain.linears
        ),
        cross_attention=replace(layer.attention, keys=positions),
        kept=tuple(
            replace(each, bytes_per_token=tuple(share * size for size in each.bytes_per_token))
            if each.reads_source
            else each
            for each in plain.kept
        ),
    )
    embeddings = Part(name="queries", tokens_per_sequence=queries, tables=table)
    return embeddings, block, encoders.norm_part("layernorm", hidden, queries)


def _heads(config: Config, hidden: int, queries: int) -> tuple[Part, ...]:
    """Return the classes of each query, none of them among these, and the corners of its box."""
    shapes = (
        ("class_labels_classifier", hidden, labels(config) + 1),
        ("bbox_1", hidden, hidden),
        ("bbox_2", hidden, hidden),
        ("bbox_3", hidden, _CORNERS),
    )
    linears = tuple(
        Linear(name=name, in_features=rows, out_features=columns, has_bias=True)
        for name, rows, columns in shapes
    )
    inputs = tuple(kept.operand(f"{each.name}_input", hidden) for each in linears)
    return (Part(name="head", tokens_per_sequence=queries, linears=linears, kept=inputs),)
