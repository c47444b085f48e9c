"""CLIP and SigLIP: a tower of text and a tower of images, compared by one token of each."""

from planner.core.frozen import frozen
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import nested
from planner.models.architectures.head_classes import task_of
from planner.models.architectures.vit import image_patches, patch_projection

_NAMES = encoders.Names(output="out_proj", attention_norm="layer_norm1", mlp_norm="layer_norm2")


@frozen
class _Family:
    """What transformers takes where the config is silent, and how the towers are built."""

    vocabulary: int
    positions: int
    text_hidden: int
    text_inner: int
    text_heads: int
    patch: int
    function: str
    is_clip: bool
    """Causal text, a class token, and projections; SigLIP pools by attention instead."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a clip or siglip config.json, both towers of it.

    A sequence is a text with its image. Its loss compares whole batches, not words.
    """
    family = family_of(_Family, config)
    text, vision = nested(config, "text_config"), nested(config, "vision_config")
    text_hidden = text.size("hidden_size", family.text_hidden)
    vision_hidden = vision.size("hidden_size", 768)
    patches = image_patches(vision, family.patch)
    head = _projections if family.is_clip else _pooling
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task_of(config, {"Model": "none"}, "none"),
        parts=(
            _text_embeddings(text, family, text_hidden),
            _text_block(text, family, text_hidden),
            encoders.norm_part("final_layer_norm", text_hidden),
            *_vision(vision, family, vision_hidden, patches),
            *head(config, text_hidden, vision_hidden),
        ),
        vocab_size=text.size("vocab_size", family.vocabulary),
        hidden_size=max(text_hidden, vision_hidden),
        max_position_embeddings=text.size("max_position_embeddings", family.positions),
        has_learned_positions=True,
        config=config.values,
    )


def _text_embeddings(text: Config, family: _Family, hidden: int) -> Part:
    positions = text.size("max_position_embeddings", family.positions)
    return Part(
        name="text_embeddings",
        tables={
            "token_embedding": text.size("vocab_size", family.vocabulary) * hidden,
            "position_embedding": positions * hidden,
        },
    )


def _text_block(text: Config, family: _Family, hidden: int) -> Part:
    heads = text.size("num_attention_heads", family.text_heads)
    return encoders.block(
        encoders.Layer(
            name="text_block",
            count=text.size("num_hidden_layers", 12),
            attention=_attention(text, hidden, heads, is_causal=family.is_clip),
            hidden=hidden,
            inner=text.size("intermediate_size", family.text_inner),
            activation=text.text("hidden_act", family.function),
            names=_NAMES,
        )
    )


def _attention(tower: Config, hidden: int, heads: int, *, is_causal: bool) -> Attention:
    return Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=tower.divided("hidden_size", hidden, "num_attention_heads", heads),
        is_causal=is_causal,
        **kept.scores(tower.probability("attention_dropout"), is_upcast=True),
    )


def _vision(vision: Config, family: _Family, hidden: int, patches: int) -> tuple[Part, ...]:
    tokens = patches + (1 if family.is_clip else 0)
    heads = vision.size("num_attention_heads", 12)
    projection = patch_projection(vision, hidden, family.patch, has_bias=not family.is_clip)
    embeddings = Part(
        name="vision_embeddings",
        tokens_per_sequence=patches,
        linears=(projection,),
        tables={"position_embedding": tokens * hidden},
        vectors={"class_embedding": hidden} if family.is_clip else {},
        kept=(kept.operand("pixels", projection.in_features),),
    )
    block = encoders.block(
        encoders.Layer(
            name="vision_block",
            count=vision.size("num_hidden_layers", 12),
            attention=_attention(vision, hidden, heads, is_causal=False),
            hidden=hidden,
            inner=vision.size("intermediate_size", 3072),
            activation=vision.text("hidden_act", family.function),
            names=_NAMES,
            tokens_per_sequence=tokens,
        )
    )
    if family.is_clip:
        before = encoders.norm_part("pre_layrnorm", hidden, tokens)
        return embeddings, before, block, encoders.norm_part("post_layernorm", hidden, 1)
    return embeddings, block, encoders.norm_part("post_layernorm", hidden, tokens)


def _projections(config: Config, text_hidden: int, vision_hidden: int) -> tuple[Part, ...]:
    """Build CLIP's head: one token of each tower, projected to a common size."""
    size = config.size("projection_dim", 512)
    return (
        encoders.classifier("text_projection", text_hidden, size, has_bias=False),
        encoders.classifier("visual_projection", vision_hidden, size, has_bias=False),
        Part(name="head", tokens_per_sequence=1, vectors={"logit_scale": 1}),
    )


def _pooling(config: Config, text_hidden: int, vision_hidden: int) -> tuple[Part, ...]:
    """Build SigLIP's head: the last token of the text, a learned query over the image's tokens.

    Leaves out: what the pooling keeps, for it is less than a hundredth of one layer.
    """
    text = nested(config, "text_config")
    pooled = encoders.classifier(
        "text_head", text_hidden, text.size("projection_size", text_hidden)
    )
    scale = Part(name="head", tokens_per_sequence=1, vectors={"logit_scale": 1, "logit_bias": 1})
    vision = nested(config, "vision_config")
    if not vision.flag("vision_use_head", default=True):
        return pooled, scale
    inner = vision.size("intermediate_size", 3072)
    shapes = (
        ("in_proj", vision_hidden, 3 * vision_hidden),
        ("out_proj", vision_hidden, vision_hidden),
        ("fc1", vision_hidden, inner),
        ("fc2", inner, vision_hidden),
    )
    attention_pooling = Part(
        name="vision_head",
        tokens_per_sequence=1,
        linears=tuple(
            Linear(name=name, in_features=rows, out_features=columns, has_bias=True)
            for name, rows, columns in shapes
        ),
        vectors={"probe": vision_hidden, "layernorm": 2 * vision_hidden},
    )
    return pooled, attention_pooling, scale
