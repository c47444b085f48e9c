"""wav2vec 2.0 and HuBERT: convolutions over a waveform, then bert's layers over frames of sound."""

from math import prod

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels, sizes
from planner.models.architectures.head_classes import task_of

_TASKS = {
    "ForCTC": "automatic-speech-recognition",
    "ForSequenceClassification": "sequence-classification",
    "Model": "none",
}
_LONGEST_FRAMES = 1500
"""Half a minute of sound; the layers themselves know no limit."""


@frozen
class _Family:
    """How a family differs from wav2vec 2.0."""

    has_optional_norm: bool = False
    """`feat_proj_layer_norm` may leave out the norm before the projection."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a wav2vec2-like config.json, with the head that `architectures` names.

    Where no class is named it is read as `...ForCTC`. A sequence is sound, counted in the frames that the
    convolutions leave of it: 50 a second. Leaves out: that layers are dropped at random (`layerdrop`), and adapters.

    Raises:
        InvalidInputError: the lists of the convolutions are not of one length.
        UnsupportedError: the class has another head.
    """
    family = family_of(_Family, config)
    hidden = config.size("hidden_size", 768)
    task = task_of(config, _TASKS, "automatic-speech-recognition")
    vocabulary = config.size("vocab_size", 32)
    layer = _layer(config, hidden)
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task,
        parts=(
            *_convolutions(config),
            _projection(config, family, hidden),
            _positions(config, hidden),
            encoders.block(layer),
            encoders.norm_part("layer_norm", hidden),
            *_head(config, task, hidden, vocabulary),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=_LONGEST_FRAMES,
        config=config.values,
    )


def _convolutions(config: Config) -> tuple[Part, ...]:
    """Return the convolutions, each of which sees as many positions of a frame as those after it leave out."""
    channels = sizes(config, "conv_dim", (512,) * 7)
    strides = sizes(config, "conv_stride", (5, 2, 2, 2, 2, 2, 2))
    kernels = sizes(config, "conv_kernel", (10, 3, 3, 3, 3, 2, 2))
    if not len(channels) == len(strides) == len(kernels):
        raise InvalidInputError(
            f"{config.where}: conv_dim, conv_stride and conv_kernel must be of one length",
            field="model",
        )
    has_bias = config.flag("conv_bias", default=False)
    norms = len(channels) if config.text("feat_extract_norm", "group") == "layer" else 1
    function = config.text("feat_extract_activation", "gelu")
    parts = []
    for index, (inputs, outputs) in enumerate(zip((1, *channels), channels, strict=False)):
        name, stride = f"conv_{index + 1}", strides[index]
        norm = (kept.layer_norm(f"{name}_norm", outputs),) if index < norms else ()
        parts.append(
            Part(
                name=name,
                share_of_tokens=float(prod(strides[index + 1 :])),
                linears=(
                    Linear(
                        name=name,
                        in_features=inputs * kernels[index],
                        out_features=outputs,
                        has_bias=has_bias,
                    ),
                ),
                vectors={f"{name}_norm": 2 * outputs} if norm else {},
                kept=(
                    kept.operand(f"{name}_input", stride * inputs),
                    *norm,
                    *kept.activation(function, outputs),
                ),
            )
        )
    return tuple(parts)


def _projection(config: Config, family: _Family, hidden: int) -> Part:
    width = sizes(config, "conv_dim", (512,) * 7)[-1]
    has_norm = not family.has_optional_norm or config.flag("feat_proj_layer_norm", default=True)
    norm: tuple[Kept, ...] = (kept.layer_norm("norm", width),) if has_norm else ()
    matrix = Linear(name="projection", in_features=width, out_features=hidden, has_bias=True)
    return Part(
        name="feature_projection",
        linears=(matrix,),
        vectors={"norm": 2 * width if has_norm else 0, "masked_spec_embed": hidden},
        kept=(
            *norm,
            kept.operand("projection_input", width),
            *kept.dropout("dropout_mask", hidden, config.probability("feat_proj_dropout")),
        ),
    )


def _positions(config: Config, hidden: int) -> Part:
    """Return the grouped convolution that tells positions, whose weight is a direction and a length for each tap."""
    taps = config.size("num_conv_pos_embeddings", 128)
    groups = config.size("num_conv_pos_embedding_groups", 16)
    width = config.divided("hidden_size", hidden, "num_conv_pos_embedding_groups", groups)
    matrix = Linear(
        name="pos_conv_embed", in_features=width * taps, out_features=hidden, has_bias=True
    )
    return Part(
        name="positions",
        linears=(matrix,),
        vectors={"pos_conv_length": taps},
        kept=(
            kept.operand("pos_conv_input", hidden),
            kept.operand("pos_conv_activation", hidden),
            *kept.dropout("dropout_mask", hidden, config.probability("hidden_dropout", 0.1)),
        ),
    )


def _layer(config: Config, hidden: int) -> encoders.Layer:
    heads = config.size("num_attention_heads", 12)
    dropped = config.probability("attention_dropout", 0.1)
    return encoders.Layer(
        count=config.size("num_hidden_layers", 12),
        attention=encoders.bidirectional(
            heads,
            config.divided("hidden_size", hidden, "num_attention_heads", heads),
            dropped,
            is_upcast=False,
        ),
        hidden=hidden,
        inner=config.size("intermediate_size", 3072),
        activation=config.text("hidden_act", "gelu"),
        names=encoders.Names(output="out_proj"),
        dropout=config.probability("hidden_dropout", 0.1),
        activation_dropout=config.probability("activation_dropout", 0.1),
    )


def _head(config: Config, task: str, hidden: int, vocabulary: int) -> tuple[Part, ...]:
    if task == "none":
        return ()
    if task == "automatic-speech-recognition":
        dropped = config.probability("final_dropout", 0.1)
        return (encoders.token_head(hidden, vocabulary, dropped),)
    width = config.size("classifier_proj_size", 256)
    is_weighted = config.flag("use_weighted_layer_sum", default=False)
    layers = config.size("num_hidden_layers", 12) + 1
    projector = Linear(name="projector", in_features=hidden, out_features=width, has_bias=True)
    return (
        Part(
            name="projector",
            linears=(projector,),
            vectors={"layer_weights": layers} if is_weighted else {},
            kept=(kept.operand("projector_input", hidden),),
        ),
        encoders.classifier("classifier", width, labels(config)),
    )
