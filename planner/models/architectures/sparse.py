"""Decoders whose attention is sparse: an indexer picks the keys that each query sees."""

from collections import Counter
from collections.abc import Mapping
from functools import partial

from planner.domain.model import Model
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import Mixer, Stack, assemble
from planner.models.architectures.decoder_family import DecoderFamily, size
from planner.models.architectures.decoder_layers import dense_mlp
from planner.models.architectures.experts import expert_mlp, routing_of
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import count, invalid, layer_kinds
from planner.models.architectures.latent import reused_keys_attention, sparse_latent_attention

_DENSE, _SPARSE = "dense", "sparse"
_FULL, _SHARED = "full", "shared"
_LETTERS = {"F": _FULL, "S": _SHARED}


def read(name: str, config: Config) -> Model:
    """Return the Model of a sparse decoder: dense MLPs first, and indexers that layers may share."""
    family = family_of(DecoderFamily, config)
    layers = size(family, config, "layers")
    counts = Counter(zip(_indexers(config, layers), _mlps(config, layers), strict=True))
    mixers: Mapping[str, Mixer] = {_FULL: sparse_latent_attention, _SHARED: reused_keys_attention}
    experts = partial(expert_mlp, routing_of(config))
    stacks = [
        Stack(
            count=counts[indexer, mlp],
            mixer=mixer,
            mlp=dense_mlp if mlp == _DENSE else experts,
            name=f"{mlp}_{indexer}_block",
        )
        for indexer, mixer in mixers.items()
        for mlp in (_DENSE, _SPARSE)
    ]
    return assemble(family, name, config, stacks)


def _mlps(config: Config, layers: int) -> tuple[str, ...]:
    """Return which layers have experts: all but the first few."""
    dense = count(config, "first_k_dense_replace", 3)
    kinds = layer_kinds(
        config, "mlp_layer_types", layers, lambda index: _DENSE if index < dense else _SPARSE
    )
    return _known(config, "mlp_layer_types", kinds, {_DENSE, _SPARSE})


def _indexers(config: Config, layers: int) -> tuple[str, ...]:
    """Return which layers pick keys of their own, and which take those of an earlier layer.

    Source: transformers 5.23, GlmMoeDsaConfig.
    """
    every = max(1, count(config, "index_topk_freq", 1))
    offset = config.size("index_skip_topk_offset", 2)
    letters = config.text("index_topk_pattern", "")
    if letters and (len(letters) != layers or not set(letters) <= set(_LETTERS)):
        raise invalid(config, "index_topk_pattern", "a letter F or S for each layer")

    def kind(index: int) -> str:
        if letters:
            return _LETTERS[letters[index]]
        return _SHARED if max(index - offset + 1, 0) % every else _FULL

    kinds = layer_kinds(config, "indexer_types", layers, kind)
    return _known(config, "indexer_types", kinds, {_FULL, _SHARED})


def _known(config: Config, key: str, kinds: tuple[str, ...], known: set[str]) -> tuple[str, ...]:
    if not known.issuperset(kinds):
        raise invalid(config, key, f"{' or '.join(sorted(known))} for each layer")
    return kinds
