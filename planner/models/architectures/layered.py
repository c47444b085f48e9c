"""Decoders whose layers differ in what mixes tokens: attention in some, a scan or a short convolution in the others."""

from collections import Counter
from collections.abc import Mapping
from functools import partial

from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.domain.model import Attention, Model
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import Mixer, Mlp, Stack, assemble
from planner.models.architectures.decoder_family import DecoderFamily, size
from planner.models.architectures.decoder_layers import dense_mlp, grouped_attention, mlp
from planner.models.architectures.experts import expert_mlp, routing_of
from planner.models.architectures.family import family_of, record_of
from planner.models.architectures.fields import count, layer_kinds, ratio
from planner.models.architectures.pieces import Piece
from planner.models.architectures.selective_scan import selective_scan
from planner.models.architectures.short_convolution import short_convolution
from planner.models.architectures.state_space import state_space

_ATTENDING = frozenset({"attention", "full_attention", "hybrid"})
_KINDS = ("layer_types", "layers_block_type")
_LISTS = ("attn_layer_indices", "full_attn_idxs")
"""The config's lists of the layers that attend, by index."""
_ATTENTION, _OTHER = "attention", "linear_attention"


@frozen
class _Mixing:
    """What a family's layers are made of."""

    mixer: str
    """Of the layers that do not attend: a name of `_MIXERS`."""
    attends: str = "never"
    """Where the config lists no layers: "never", "always", "beside" the other mixer in every layer."""
    mlp: str = "none"
    """"none", "dense", "rounded" as LFM2 rounds its width, "experts" after the first dense layers, "periodic" experts,
    "shared": one expert that every token meets, and routed ones where there are any."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a decoder whose layers differ.

    Raises:
        InvalidInputError: a size cannot be.
    """
    family = family_of(DecoderFamily, config)
    mixing = build(_Mixing, record_of(config)["mixing"], "mixing")
    layers = size(family, config, "layers")
    kinds = _kinds(config, mixing, layers)
    sparse = _sparse(config, mixing, layers)
    counts = Counter(zip(kinds, sparse, strict=True))
    stacks = [
        Stack(
            count=counts[kind, is_sparse],
            mixer=_mixer(mixing, kind),
            mlp=_mlp(mixing, config, is_sparse=is_sparse),
            name=f"{kind}_expert_block" if is_sparse else f"{kind}_block",
        )
        for kind in (_OTHER, _ATTENTION)
        for is_sparse in (False, True)
        if counts[kind, is_sparse]
    ]
    return assemble(family, name, config, stacks)


def _kinds(config: Config, mixing: _Mixing, layers: int) -> tuple[str, ...]:
    """Return whether each layer attends: as the config lists kinds or indices, or says a period."""
    listed: set[object] = set()
    for key in _LISTS:
        value = config.values.get(key)
        listed |= set(map(_index, value)) if isinstance(value, list) else set()
    period, offset = count(config, "attn_layer_period", 0), count(config, "attn_layer_offset", 0)

    def unsaid(index: int) -> str:
        if listed or period:
            is_attending = index in listed or (period > 0 and index % period == offset)
        else:
            is_attending = mixing.attends == "always"
        return _ATTENTION if is_attending else _OTHER

    key = next((each for each in _KINDS if config.values.get(each)), _KINDS[0])
    named = layer_kinds(config, key, layers, unsaid)
    return tuple(_ATTENTION if kind in _ATTENDING else _OTHER for kind in named)


def _index(value: object) -> int:
    return value if isinstance(value, int) else -1


def _sparse(config: Config, mixing: _Mixing, layers: int) -> tuple[bool, ...]:
    """Return which layers have routed experts."""
    if mixing.mlp == "experts":
        first = count(config, "num_dense_layers", 2)
        return tuple(index >= first for index in range(layers))
    period = config.size("expert_layer_period", 2)
    offset, experts = count(config, "expert_layer_offset", 1), count(config, "num_experts", 16)
    is_periodic = mixing.mlp == "periodic" and experts > 1
    return tuple(is_periodic and index % period == offset for index in range(layers))


def _mixer(mixing: _Mixing, kind: str) -> Mixer:
    other = _MIXERS[mixing.mixer]
    if mixing.attends == "beside":
        return partial(_both, other)
    return grouped_attention if kind == _ATTENTION else other


def _both(
    other: Mixer, family: DecoderFamily, config: Config, hidden: int
) -> tuple[Attention | None, Piece]:
    """Return attention and another mixer that read the same input; the sum of both goes on."""
    attention, first = grouped_attention(family, config, hidden)
    _, second = other(family, config, hidden)
    return attention, Piece(
        linears=(*first.linears, *second.linears),
        kept=(*first.kept, *second.kept),
        vectors={**first.vectors, **second.vectors},
        scan_flops_per_token=second.scan_flops_per_token,
        scan=second.scan,
    )


def _mlp(mixing: _Mixing, config: Config, *, is_sparse: bool) -> Mlp:
    if mixing.mlp == "none":
        return _nothing
    if is_sparse or (mixing.mlp == "shared" and count(config, "num_local_experts", 8)):
        return partial(expert_mlp, routing_of(config))
    return {"rounded": _rounded_mlp, "shared": _shared_mlp}.get(mixing.mlp, dense_mlp)


def _nothing(_family: DecoderFamily, _config: Config, _hidden: int) -> Piece:
    return Piece(linears=(), kept=())


def _shared_mlp(family: DecoderFamily, config: Config, hidden: int) -> Piece:
    return mlp(family, config, hidden, config.size("shared_intermediate_size", 1024))


def _rounded_mlp(family: DecoderFamily, config: Config, hidden: int) -> Piece:
    """Return LFM2's MLP: two thirds of the width that the config says, times a factor, rounded up to a multiple."""
    width = config.size("block_ff_dim", size(family, config, "inner"))
    if config.flag("block_auto_adjust_ff_dim", default=True):
        step = config.size("block_multiple_of", 256)
        factor = ratio(config, "block_ffn_dim_multiplier", 1.0)
        width = step * -(-int(factor * int(2 * width / 3)) // step)
    return mlp(family, config, hidden, max(1, width))


_MIXERS: Mapping[str, Mixer] = {
    "mamba": selective_scan,
    "jamba": partial(selective_scan, is_jamba=True),
    "mamba2": state_space,
    "short_convolution": short_convolution,
}
