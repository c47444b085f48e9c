"""Mixtures of experts: decoder families whose MLP is a router over many small MLPs."""

from dataclasses import replace
from functools import partial

from planner.catalog.tables import build
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Linear, Model
from planner.domain.recompute_modules import MOE, MOE_ACTIVATION, SHARED_EXPERTS
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import Stack, assemble, attention_of
from planner.models.architectures.decoder_family import DecoderFamily, flag, size
from planner.models.architectures.decoder_layers import (
    EXPERT_OUTPUT,
    MLP_INNER,
    dense_mlp,
    mlp,
)
from planner.models.architectures.family import family_of, record_of
from planner.models.architectures.fields import count, said
from planner.models.architectures.pieces import Piece, module

_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "top_k", "moe_k")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_FIRST_DENSE = ("first_k_dense_replace", "moe_layer_start_index")


@frozen
class Routing:
    """What the modelling code of a mixture fixes; sizes are those that it takes where the config has none."""

    experts: int
    per_token: int
    inner: int = 0
    """Width of an expert; 0: of the family's dense MLP."""
    has_bias: bool = False
    """On the router and the experts."""
    shared: int | None = None
    """Experts that every token meets, under one of `_SHARED`; None for a family without."""
    shared_inner: tuple[str, int] | None = None
    """Of one expert that every token meets, the config's key for its width."""
    has_shared_gate: bool = False
    """A gate of one channel decides how much of the shared expert counts."""
    first_dense: int | None = None
    """First layers that keep a dense MLP, under one of `_FIRST_DENSE`; None for a family without."""
    is_dense_by_step: bool = False
    """`decoder_sparse_step` and `mlp_only_layers` say which layers do."""
    is_balanced: bool = False
    """A parameter of each expert, without a gradient, that is moved to balance them."""
    latent_key: str = ""
    """The config's key for the channels that tokens are projected to for the experts, and back; "" for none."""


def routing_of(config: Config) -> Routing:
    """Return how a config's family routes tokens."""
    return build(Routing, record_of(config)["experts"], "experts")


def _first(config: Config, keys: tuple[str, ...], default: int) -> int:
    return config.size(said(config, keys), default)


def expert_mlp(routing: Routing, family: DecoderFamily, config: Config, hidden: int) -> Piece:
    """Return router, experts and shared expert."""
    experts = _first(config, _NUM_EXPERTS, routing.experts)
    chosen = _first(config, _PER_TOKEN, routing.per_token)
    if chosen > experts:
        raise InvalidInputError(
            f"{config.where}: a token goes to {chosen} experts, and there are {experts}",
            field="model",
        )
    inner = (
        config.size("moe_intermediate_size", routing.inner)
        if routing.inner
        else size(family, config, "inner")
    )
    latent = count(config, routing.latent_key, 0) if routing.latent_key else 0
    width = latent or hidden
    expert = mlp(replace(family, mlp_bias=routing.has_bias), config, width, inner, "expert_")
    router = Linear(
        name="router", in_features=hidden, out_features=experts, has_bias=routing.has_bias
    )
    routed = tuple(
        replace(layer, num_experts=experts, experts_per_token=chosen) for layer in expert.linears
    )
    shared = _shared_expert(routing, family, config, hidden, inner)
    around = _around_experts(family, config, hidden, latent)
    of_experts = tuple(_times(entry, chosen) for entry in expert.kept)
    piece = Piece(
        vectors={"balance": experts} if routing.is_balanced else {},
        linears=(router, *around.linears, *routed, *shared.linears),
        kept=(
            Kept(name="router_scores", bytes_per_token=(12 * experts, 12 * experts, 10 * experts)),
            *around.kept,
            *of_experts,
            _expert_output(chosen * width),
            *shared.kept,
        ),
    )
    return _with_modules(piece, hidden, of_experts, shared)


def _with_modules(piece: Piece, hidden: int, of_experts: tuple[Kept, ...], shared: Piece) -> Piece:
    """Return experts with what of them can recompute by itself: all, the activation, the shared expert.

    All of them keep the norm's output, which router and shared expert read too.
    """
    read = kept.operand("experts_input", hidden)
    read_by_shared = shared.kept[:1]
    activated = tuple(entry for entry in of_experts if entry.name == MLP_INNER)
    modules = {
        MOE: module(MOE, piece.linears, piece.kept, checkpoint=(read,)),
        MOE_ACTIVATION: module(MOE_ACTIVATION, (), activated),
    }
    if shared.linears:
        modules[SHARED_EXPERTS] = module(SHARED_EXPERTS, shared.linears, shared.kept[1:])
    return replace(piece, modules=modules, normalised=(read, *read_by_shared))


def _expert_output(size: int) -> Kept:
    """Return what scaling the experts' outputs by the router's scores keeps, for the scores' gradients.

    Fused, the scores multiply inside the activation, and outputs are summed without them.
    Source: megatron/core/transformer/moe: experts.py gives the probabilities to the activation,
    token_dispatcher.py combine_postprocess gives none to unpermute (0014f13).
    """
    return Kept(name=EXPERT_OUTPUT, bytes_per_token=(4 * size, 2 * size, 2 * size, 0))


def _around_experts(family: DecoderFamily, config: Config, hidden: int, latent: int) -> Piece:
    """Return the projections of tokens to the experts' channels and back, where these are fewer."""
    if not latent:
        return Piece(linears=(), kept=())
    has_bias = flag(config, family.mlp_bias)
    shapes = (("to_experts", hidden, latent), ("from_experts", latent, hidden))
    return Piece(
        linears=tuple(
            Linear(name=name, in_features=rows, out_features=columns, has_bias=has_bias)
            for name, rows, columns in shapes
        ),
        kept=tuple(
            kept.operand(f"{name}_input", rows, of=(name,)) for name, rows, _columns in shapes
        ),
    )


def _times(entry: Kept, chosen: int) -> Kept:
    return replace(
        entry, bytes_per_token=tuple(chosen * amount for amount in entry.bytes_per_token)
    )


def _shared_expert(
    routing: Routing, family: DecoderFamily, config: Config, hidden: int, inner: int
) -> Piece:
    if routing.shared_inner is not None:
        width = config.size(*routing.shared_inner)
    else:
        width = inner * _or_none(config, _SHARED, routing.shared)
    if not width:
        return Piece(linears=(), kept=())
    piece = mlp(family, config, hidden, width, "shared_expert_")
    gate = Linear(name="shared_expert_gate", in_features=hidden, out_features=1)
    if not routing.has_shared_gate:
        return piece
    return replace(
        piece,
        linears=(*piece.linears, gate),
        kept=(*piece.kept, kept.operand("shared_expert_output", hidden)),
    )


def _or_none(config: Config, keys: tuple[str, ...], default: int | None) -> int:
    """Return a size, of which a config or its family may have none; None: what the config says is not asked."""
    key = said(config, keys)
    given = config.values.get(key)
    is_none = default is None or given == 0 or (given is None and not default)
    return 0 if is_none else config.size(key, default)


def read(name: str, config: Config) -> Model:
    """Return the Model of a decoder-only mixture of experts."""
    family, routing = family_of(DecoderFamily, config), routing_of(config)
    layers = size(family, config, "layers")
    dense = _or_none(config, _FIRST_DENSE, routing.first_dense)
    if routing.is_dense_by_step:
        dense = _dense_by_step(config, layers)
    dense = min(layers, dense)
    experts = partial(expert_mlp, routing)
    mixer = attention_of(family)
    return assemble(
        family,
        name,
        config,
        [
            Stack(count=dense, mixer=mixer, mlp=dense_mlp, name="dense_block"),
            Stack(count=layers - dense, mixer=mixer, mlp=experts, name="expert_block"),
        ],
    )


def _dense_by_step(config: Config, layers: int) -> int:
    """Layers left dense by `decoder_sparse_step` and `mlp_only_layers`, as Qwen counts them."""
    step = config.size("decoder_sparse_step", 1)
    only = config.values.get("mlp_only_layers") or []
    named = {index for index in only if isinstance(index, int)} if isinstance(only, list) else set()
    # A layer is sparse where its number, from one, is a multiple of the step.
    skipped = sum(1 for index in named if 0 <= index < layers and (index + 1) % step == 0)
    return layers - layers // step + skipped
