"""Mixtures of experts: decoder families whose MLP is a router over many small MLPs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Attention, Kept, Linear, Model
from planner.domain.recompute_modules import MOE, MOE_ACTIVATION, SHARED_EXPERTS
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import Mixer, Stack, assemble
from planner.models.architectures.decoder_family import DecoderFamily, flag, size
from planner.models.architectures.decoder_layers import (
    MLP_INNER,
    dense_mlp,
    grouped_attention,
    mlp,
)
from planner.models.architectures.families import LLAMA, MISTRAL, QWEN2, QWEN3
from planner.models.architectures.latent import latent_attention
from planner.models.architectures.pieces import Piece, module

_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "top_k")


@frozen
class Routing:
    """What the modelling code of a mixture fixes."""

    defaults: Mapping[str, int]
    """"experts", "per_token", and "inner" where experts are not as wide as a dense MLP."""
    has_bias: bool = False
    """On the router and the experts."""
    shared_inner: Callable[[Config, int], int] = lambda _config, _inner: 0
    """Width of the expert that every token meets, given that of the others; 0 without one."""
    has_shared_gate: bool = False
    """A gate of one channel decides how much of the shared expert counts."""
    num_dense: Callable[[Config, int], int] = lambda _config, _layers: 0
    """Of that many layers, how many keep a dense MLP."""
    mixer: Mixer = grouped_attention
    latent: Callable[[Config], int] = lambda _config: 0
    """Channels that tokens are projected to for the experts, and back; 0 for none."""


def _first(config: Config, keys: tuple[str, ...], default: int) -> int:
    key = next((key for key in keys if config.values.get(key) is not None), keys[0])
    return config.size(key, default)


def expert_mlp(routing: Routing, family: DecoderFamily, config: Config, hidden: int) -> Piece:
    """Return router, experts and shared expert."""
    experts = _first(config, _NUM_EXPERTS, routing.defaults["experts"])
    chosen = _first(config, _PER_TOKEN, routing.defaults["per_token"])
    if chosen > experts:
        raise InvalidInputError(
            f"{config.where}: a token goes to {chosen} experts, and there are {experts}",
            field="model",
        )
    inner = (
        config.size("moe_intermediate_size", routing.defaults["inner"])
        if "inner" in routing.defaults
        else size(family, config, "inner")
    )
    latent = routing.latent(config)
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
    return Kept(name="expert_output", bytes_per_token=(4 * size, 2 * size, 2 * size, 0))


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
    width = routing.shared_inner(config, inner)
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


def read(family: DecoderFamily, routing: Routing, name: str, config: Config) -> Model:
    """Return the Model of a decoder-only mixture of experts."""
    layers = size(family, config, "layers")
    dense = min(layers, routing.num_dense(config, layers))
    experts = partial(expert_mlp, routing)
    return assemble(
        family,
        name,
        config,
        [
            Stack(count=dense, mixer=routing.mixer, mlp=dense_mlp, name="dense_block"),
            Stack(count=layers - dense, mixer=routing.mixer, mlp=experts, name="expert_block"),
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


def _dense_first(default: int) -> Callable[[Config, int], int]:
    def count(config: Config, _layers: int) -> int:
        if config.values.get("first_k_dense_replace") == 0:
            return 0
        return config.size("first_k_dense_replace", default) if default else _given(config)

    return count


def _given(config: Config) -> int:
    key = "first_k_dense_replace"
    return config.size(key) if config.values.get(key) is not None else 0


def _shared_size(config: Config, _inner: int) -> int:
    return config.size("shared_expert_intermediate_size", 5632)


def _shared_count(default: int) -> Callable[[Config, int], int]:
    def width(config: Config, inner: int) -> int:
        if config.values.get("n_shared_experts") == 0:
            return 0
        return inner * config.size("n_shared_experts", default)

    return width


def _sinks(_config: Config, attention: Attention) -> Mapping[str, int]:
    return {"sinks": attention.num_heads}


_DEEPSEEK = {"vocabulary": 129280, "hidden": 7168, "layers": 61, "heads": 128, "inner": 18432}
_DEEPSEEK_V2 = {"vocabulary": 102400, "hidden": 4096, "layers": 32, "heads": 32, "inner": 11008}
DEEPSEEK_ROUTING = Routing(
    defaults={"experts": 256, "per_token": 8, "inner": 2048},
    shared_inner=_shared_count(1),
    num_dense=_dense_first(3),
    mixer=latent_attention,
)

MIXTURES: Mapping[str, tuple[DecoderFamily, Routing]] = {
    "deepseek_v2": (
        DecoderFamily(defaults={**_DEEPSEEK_V2, "positions": 2048}),
        replace(
            DEEPSEEK_ROUTING,
            defaults={"experts": 64, "per_token": 6, "inner": 1407},
            shared_inner=_shared_count(2),
            num_dense=_dense_first(0),
        ),
    ),
    "deepseek_v3": (DecoderFamily(defaults={**_DEEPSEEK, "positions": 4096}), DEEPSEEK_ROUTING),
    "glm4_moe": (
        DecoderFamily(
            defaults={
                "vocabulary": 151552,
                "hidden": 4096,
                "layers": 46,
                "heads": 96,
                "groups": 8,
                "inner": 10944,
                "positions": 131072,
            },
            qkv_bias=("attention_bias", False),
            query_key_norm="head",
            query_key_norm_flag="use_qk_norm",
        ),
        Routing(
            defaults={"experts": 128, "per_token": 8, "inner": 1408},
            shared_inner=_shared_count(1),
            num_dense=_dense_first(1),
        ),
    ),
    "gpt_oss": (
        DecoderFamily(
            defaults={
                "vocabulary": 201088,
                "hidden": 2880,
                "layers": 36,
                "heads": 64,
                "groups": 8,
                "head_dim": 64,
                "inner": 2880,
                "positions": 131072,
            },
            qkv_bias=("attention_bias", True),
            output_bias=("attention_bias", True),
            is_fused=False,
            extra_block_vectors=_sinks,
            sliding_period=2,
        ),
        Routing(defaults={"experts": 128, "per_token": 4}, has_bias=True),
    ),
    "granitemoe": (
        replace(LLAMA, mlp_bias=False),
        Routing(defaults={"experts": 8, "per_token": 2}),
    ),
    "kimi_k2": (DecoderFamily(defaults={**_DEEPSEEK, "positions": 4096}), DEEPSEEK_ROUTING),
    "minimax_m2": (
        DecoderFamily(
            defaults={
                "vocabulary": 200064,
                "hidden": 3072,
                "layers": 62,
                "heads": 48,
                "groups": 8,
                "head_dim": 128,
                "inner": 1536,
                "positions": 196608,
            },
            query_key_norm="all",
        ),
        Routing(defaults={"experts": 256, "per_token": 8}),
    ),
    "mixtral": (MISTRAL, Routing(defaults={"experts": 8, "per_token": 2})),
    "olmoe": (
        DecoderFamily(
            defaults={
                "vocabulary": 50304,
                "hidden": 2048,
                "layers": 16,
                "heads": 16,
                "inner": 2048,
                "positions": 4096,
            },
            qkv_bias=("attention_bias", False),
            output_bias=("attention_bias", False),
            query_key_norm="all",
        ),
        Routing(defaults={"experts": 64, "per_token": 8}),
    ),
    "qwen2_moe": (
        replace(
            QWEN2,
            defaults={
                "vocabulary": 151936,
                "hidden": 2048,
                "layers": 24,
                "heads": 16,
                "groups": 16,
                "inner": 5632,
                "positions": 32768,
            },
        ),
        Routing(
            defaults={"experts": 60, "per_token": 4, "inner": 1408},
            shared_inner=_shared_size,
            has_shared_gate=True,
            num_dense=_dense_by_step,
        ),
    ),
    "qwen3_moe": (
        replace(
            QWEN3,
            defaults={
                "vocabulary": 151936,
                "hidden": 2048,
                "layers": 24,
                "heads": 32,
                "groups": 4,
                "inner": 6144,
                "positions": 32768,
            },
        ),
        Routing(defaults={"experts": 128, "per_token": 8, "inner": 768}, num_dense=_dense_by_step),
    ),
}

READERS: Mapping[str, Callable[[str, Config], Model]] = {
    model_type: partial(read, family, routing) for model_type, (family, routing) in MIXTURES.items()
}
