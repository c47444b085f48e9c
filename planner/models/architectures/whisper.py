"""Whisper: two convolutions over a spectrogram, then BART's layers before a decoder of text."""

from dataclasses import replace

from planner.domain.model import Linear, Model, Part
from planner.models.architectures import bart, encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.head_classes import task_of

_TASKS = {"ForConditionalGeneration": "automatic-speech-recognition", "Model": "none"}


def read(name: str, config: Config) -> Model:
    """Return the Model of a whisper config.json, with the head that `architectures` names.

    `WhisperModel` has no head; where no class is named it is read as `WhisperForConditionalGeneration`. The
    sequence is the text; the encoder always sees max_source_positions of sound. Its sines count
    as parameters, as transformers counts them; they are never trained.
    """
    hidden = config.size("d_model", 384)
    vocabulary = config.size("vocab_size", 51865)
    targets = config.size("max_target_positions", 448)
    has_head = task_of(config, _TASKS, "automatic-speech-recognition") != "none"
    is_tied = config.flag("tie_word_embeddings", default=True)
    decoder = _layer(config, "decoder")
    embeddings = Part(
        name="decoder_embeddings",
        tables={"embed_tokens": vocabulary * hidden, "embed_positions": targets * hidden},
        kept=kept.dropout("dropout_mask", hidden, config.probability("dropout")),
    )
    block, keys_and_values = _decoder_blocks(config, decoder)
    return Model(
        name=name,
        model_type="whisper",
        task="automatic-speech-recognition" if has_head else "none",
        parts=(
            *_encoder(config, hidden),
            embeddings,
            block,
            keys_and_values,
            encoders.norm_part("decoder_layer_norm", hidden),
            *((bart.head(hidden, vocabulary, is_tied=is_tied),) if has_head else ()),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=targets,
        has_learned_positions=True,
        config=config.values,
    )


def _layer(config: Config, side: str) -> encoders.Layer:
    defaults = bart.Defaults(hidden=384, layers=4, inner=1536, heads=6, dropout=0.0)
    return replace(bart.layer(config, side, defaults), has_key_bias=False)


def _encoder(config: Config, hidden: int) -> tuple[Part, ...]:
    sources = config.size("max_source_positions", 1500)
    mels = config.size("num_mel_bins", 80)
    first = Part(
        name="conv1",
        tokens_per_sequence=2 * sources,
        linears=(_convolution("conv1", mels, hidden),),
        kept=(kept.operand("conv1_input", mels), kept.operand("conv1_gelu_input", hidden)),
    )
    second = Part(
        name="conv2",
        tokens_per_sequence=sources,
        linears=(_convolution("conv2", hidden, hidden),),
        tables={"embed_positions": sources * hidden},
        kept=(
            kept.operand("conv2_input", 2 * hidden),
            kept.operand("conv2_gelu_input", hidden),
            *kept.dropout("dropout_mask", hidden, config.probability("dropout")),
        ),
    )
    layer = replace(_layer(config, "encoder"), tokens_per_sequence=sources)
    norm = encoders.norm_part("encoder_layer_norm", hidden, sources)
    output = replace(norm, kept=(*norm.kept, encoders.shared_encoder_output(hidden)))
    return first, second, encoders.block(layer), output


def _convolution(name: str, channels: int, hidden: int) -> Linear:
    """Build a convolution of width 3 as the matrix that it multiplies with."""
    return Linear(name=name, in_features=3 * channels, out_features=hidden, has_bias=True)


def _decoder_blocks(config: Config, layer: encoders.Layer) -> tuple[Part, Part]:
    """Build the decoder's layers, and their keys and values of the sound as a part of its own.

    Those matrices see the encoder's positions, not the text's.
    """
    sources = config.size("max_source_positions", 1500)
    plain = bart.decoder_block(layer)
    cross_keys = {"encoder_attn_k_proj", "encoder_attn_v_proj"}
    cross_kept = {"cross_key_value_input", "cross_key_value"}
    block = replace(
        plain,
        linears=tuple(linear for linear in plain.linears if linear.name not in cross_keys),
        kept=tuple(entry for entry in plain.kept if entry.name not in cross_kept),
        cross_attention=replace(layer.attention, is_causal=False, keys=sources),
        is_target=False,
    )
    keys_and_values = Part(
        name="cross_attention_keys_values",
        count=layer.count,
        tokens_per_sequence=sources,
        linears=tuple(linear for linear in plain.linears if linear.name in cross_keys),
        kept=tuple(entry for entry in plain.kept if entry.name in cross_kept),
    )
    return block, keys_and_values
