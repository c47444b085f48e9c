"""Vision-language models: a text model with a vision tower, one image per sequence."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeAlias

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of, record_of

Tower: TypeAlias = Callable[[Config, Config, int], tuple[Part, ...]]
"""Builds the parts of a tower from its config, the whole one, and the text's hidden size."""


@frozen
class _Family:
    text: str
    """The model_type of the text's half."""
    tower: str


def read(name: str, config: Config) -> Model:
    """Return the Model of a vision-language config: the text's parts and the tower's."""
    family = family_of(_Family, config)
    values = {**_section(config, "text_config"), "model_type": family.text}
    if "tie_word_embeddings" in config.values:
        values = {**values, "tie_word_embeddings": config.values["tie_word_embeddings"]}
    text = Config(name, values)
    reader = import_module(f"planner.models.architectures.{record_of(text)['reader']}")
    model: Model = reader.read(name, text)
    vision = Config(name, _section(config, "vision_config"))
    return replace(
        model,
        model_type=config.text("model_type", ""),
        parts=(*_TOWERS[family.tower](vision, config, model.hidden_size), *model.parts),
        config=config.values,
    )


def _section(config: Config, key: str) -> Mapping[str, Any]:
    section = config.values.get(key)
    if not isinstance(section, Mapping):
        raise InvalidInputError(f"{config.where} has no {key}", field="model")
    return section


def _linear(name: str, rows: int, columns: int) -> Linear:
    return Linear(name=name, in_features=rows, out_features=columns, has_bias=True)


def _block(vision: Config, tokens: int, *, heads_key: str, depth_key: str, is_fused: bool) -> Part:
    """Return a tower's pre-norm encoder blocks over image patches."""
    hidden, heads = vision.size("hidden_size", 1152), vision.size(heads_key, 16)
    head_dim = vision.divided("hidden_size", hidden, heads_key, heads)
    inner = vision.size("intermediate_size", 4304)
    matrices = ("qkv",) if is_fused else ("q_proj", "k_proj", "v_proj")
    width = 3 * hidden // len(matrices)
    return Part(
        name="vision_block",
        is_block=True,
        count=vision.size(depth_key, 27),
        tokens_per_sequence=tokens,
        linears=(
            *(_linear(matrix, hidden, width) for matrix in matrices),
            _linear("proj", hidden, hidden),
            _linear("fc1", hidden, inner),
            _linear("fc2", inner, hidden),
        ),
        vectors={"norm1": 2 * hidden, "norm2": 2 * hidden},
        attention=Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            head_dim=head_dim,
            is_causal=False,
            **kept.scores(0.0, is_upcast=True),
        ),
        kept=(
            kept.layer_norm("norm1", hidden),
            kept.operand("qkv_input", hidden, copies=len(matrices)),
            kept.operand("query_key_value", 3 * hidden, does=work.rotated(2 * hidden)),
            kept.operand("attention_output", hidden, does=work.NONE),
            kept.layer_norm("norm2", hidden),
            kept.operand("fc1_input", hidden),
            *kept.activation("gelu_pytorch_tanh", inner),
            kept.operand("fc2_input", inner, does=work.NONE),
        ),
    )


def siglip_tower(vision: Config, config: Config, text_hidden: int) -> tuple[Part, ...]:
    """Return SigLIP's encoder and Gemma 3's projector of pooled patches."""
    hidden = vision.size("hidden_size", 1152)
    patch = vision.size("patch_size", 14)
    side = vision.size("image_size", 896) // patch
    tokens = max(1, side * side)
    pixels = vision.size("num_channels", 3) * patch * patch
    embeddings = Part(
        name="vision_embeddings",
        tokens_per_sequence=tokens,
        linears=(_linear("patch_embedding", pixels, hidden),),
        tables={"position_embedding": tokens * hidden},
    )
    projector = Part(
        name="vision_projector",
        tokens_per_sequence=config.size("mm_tokens_per_image", 256),
        linears=(Linear(name="projection", in_features=hidden, out_features=text_hidden),),
        vectors={"post_layernorm": 2 * hidden, "soft_embedding_norm": hidden},
        kept=(kept.rms_norm("soft_embedding_norm", hidden), kept.operand("input", hidden)),
    )
    block = _block(
        vision,
        tokens,
        heads_key="num_attention_heads",
        depth_key="num_hidden_layers",
        is_fused=False,
    )
    return embeddings, block, projector


def qwen_tower(vision: Config, _config: Config, text_hidden: int) -> tuple[Part, ...]:
    """Return Qwen's vision encoder and the mergers that hand its patches to the text."""
    hidden = vision.size("hidden_size", 1152)
    tokens = vision.size("num_position_embeddings", 2304)
    patch = vision.size("patch_size", 16)
    pixels = vision.size("in_channels", 3) * vision.size("temporal_patch_size", 2) * patch**2
    merged = hidden * vision.size("spatial_merge_size", 2) ** 2
    output = vision.size("out_hidden_size", text_hidden)
    deep = vision.values.get("deepstack_visual_indexes") or []
    embeddings = Part(
        name="vision_embeddings",
        tokens_per_sequence=tokens,
        linears=(_linear("patch_embed", pixels, hidden),),
        tables={"pos_embed": tokens * hidden},
    )
    merger = Part(
        name="vision_merger",
        tokens_per_sequence=max(1, tokens * hidden // merged),
        linears=(_linear("fc1", merged, merged), _linear("fc2", merged, output)),
        vectors={"norm": 2 * hidden},
        kept=(
            kept.layer_norm("norm", merged),
            kept.operand("fc1_input", merged),
            kept.operand("fc2_input", 2 * merged),
        ),
    )
    count = len(deep) if isinstance(deep, list) else 0
    deepstack = replace(merger, name="deepstack_merger", count=count, vectors={"norm": 2 * merged})
    block = _block(vision, tokens, heads_key="num_heads", depth_key="depth", is_fused=True)
    return (embeddings, block, merger, *((deepstack,) if count else ()))


_TOWERS: Mapping[str, Tower] = {"siglip": siglip_tower, "qwen": qwen_tower}
