"""What Megatron-LM's arguments say of a model, and models that they do not say in full."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.domain.model import Linear, Model
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import DecoderFamily, Flag, flag
from planner.models.architectures.family import family_of

_ROPES = ("default", "linear", "llama3", "yarn")
_OF_ROPE = (
    "factor",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
)
_LLAMA3 = {
    "factor": 8,
    "low_freq_factor": 1,
    "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}
"""What its rope scaling of Llama 3 fixes: pretrain_gpt.py does not hand --rope-scaling-factor on.

Source: training/argument_utils.py gpt_config_from_args; core/models/common/embeddings/rotary_pos_embedding.py.
"""
_LATENT_YARN = {"beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096}
"""Of MLATransformerConfig, which no arguments set."""
_GELU = ("gelu_new", "gelu_pytorch_tanh")
"""As Megatron fuses it with a bias, by tanh."""
GATED, PLAIN = ("silu", "swish"), (*_GELU, "gelu", "relu2")
"""Activations that it has arguments for, with a gate and without."""
_SHOWN_TYPES = 6


@frozen
class Router:
    """How a mixture's tokens choose experts."""

    scores: str = "softmax"
    normalises: Flag = True
    """Whether the chosen experts' scores are made to sum to one."""
    balancing: str = "aux_loss"
    coefficient: tuple[str, float] = ("", 0.0)
    """The config's key of the loss that balances experts, and what holds without it."""
    scale: tuple[str, float] | None = None
    """The config's key of what the chosen scores are multiplied by."""
    groups: tuple[str, int] | None = None
    chosen_groups: tuple[str, int] | None = None


@frozen
class MegatronModel:
    """What a model type's arguments say beside its sizes, norms, biases and activation.

    A config's key stands with the value that transformers takes where it is missing.
    """

    norm_epsilon: tuple[str, float] = ("rms_norm_eps", 1e-6)
    rotary_base: float = 10_000.0
    """Of a config without `rope_theta`."""
    rotary_share: tuple[str, float] = ("partial_rotary_factor", 1.0)
    """Of a head's channels."""
    rotary_layers: str = ""
    """The config's key for which layers have rotary embeddings at all; "" where all have."""
    rotary_interval: tuple[str, int] = ("", 0)
    """Every so many layers one has none, where that key is missing."""
    is_parallel: Flag = False
    """Attention and MLP of a block read the same hidden states."""
    has_window: bool = False
    """`sliding_window` of its config is used."""
    window_flag: str = ""
    """The key without which it is not."""
    first_window_layer: tuple[str, int] = ("", 0)
    activation: str = ""
    """Where the config's name for it means another function."""
    clamp: tuple[str, float] | None = None
    """Of what enters the activation."""
    options: Mapping[str, str | float | bool] = field(default_factory=dict)
    """Arguments that all such models have."""
    router: Router | None = None


@frozen
class _Record:
    source: str
    models: Mapping[str, MegatronModel]


@cache
def megatron_models() -> Mapping[str, MegatronModel]:
    """Return the models by `model_type`."""
    return build(_Record, read("scripts", "megatron"), "scripts/megatron").models


@frozen
class Reading:
    """A model, and where to read what its sizes leave out."""

    model: Model
    known: MegatronModel
    family: DecoderFamily
    config: Config

    @property
    def linears(self) -> dict[str, Linear]:
        """Return the matrices of the trunk's blocks by name."""
        return {each.name: each for part in self.model.blocks for each in part.linears}

    @property
    def is_latent(self) -> bool:
        """Return whether keys and values grow out of a latent vector."""
        return self.family.has_latent_attention

    @property
    def is_parallel(self) -> bool:
        """Return whether attention and MLP of a block read the same hidden states."""
        return flag(self.config, self.known.is_parallel)

    @property
    def shares_norm(self) -> bool:
        """Return whether they read them through one norm."""
        norms = [name for name in self.model.blocks[0].vectors if name.endswith("layernorm")]
        return self.is_parallel and len(norms) == 1

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Return whether there are biases on queries, keys and values, on attention's output, and in the MLP."""
        linears = self.linears
        groups = (
            ("q_proj", "qkv_proj", "kv_a_proj_with_mqa"),
            ("o_proj",),
            ("down_proj", "fc_out", "expert_down_proj"),
        )
        first, second, third = (
            next((linears[name].has_bias for name in names if name in linears), False)
            for names in groups
        )
        return first, second, third

    @property
    def activation(self) -> str:
        """Return the name of the MLP's function."""
        own = self.config.text("activation", self.family.activation)
        named = self.config.text("hidden_act", self.config.text("activation_function", own))
        return self.known.activation or named

    @property
    def is_tied(self) -> bool:
        """Return whether the head's weight is that of the embeddings."""
        return any(each.is_tied for part in self.model.others for each in part.linears)

    @property
    def layers(self) -> int:
        """Return the number of blocks."""
        return sum(part.count for part in self.model.blocks)

    @property
    def rope(self) -> dict[str, Any]:
        """Return what the config says of rotary embeddings."""
        return {"rope_theta": self.known.rotary_base, **rope(self.config.values)}

    def windows(self, sequence_length: int) -> tuple[int, ...]:
        """Return the tokens that each layer attends to, 0 where it sees all of the sequence."""
        values, known = self.config.values, self.known
        is_used = not known.window_flag or self.config.flag(known.window_flag, default=False)
        window = values.get("sliding_window", self.family.default_window)
        is_short = isinstance(window, int) and 0 < window < sequence_length
        if not (known.has_window and is_used and is_short):
            return (0,) * self.layers
        return tuple(int(window) if each else 0 for each in self._has_window())

    def _has_window(self) -> list[bool]:
        kinds, period = self.config.values.get("layer_types"), self.family.sliding_period
        if isinstance(kinds, list) and len(kinds) == self.layers:
            return [kind == "sliding_attention" for kind in kinds]
        key, default = self.known.first_window_layer
        first = self.config.values.get(key, default)
        first = first if isinstance(first, int) else default
        return [
            index >= first and not (period and (index + 1) % period == 0)
            for index in range(self.layers)
        ]

    def has_rotary(self) -> tuple[bool, ...]:
        """Return which layers have rotary embeddings."""
        said, (key, default) = (
            self.config.values.get(self.known.rotary_layers),
            self.known.rotary_interval,
        )
        if isinstance(said, list) and len(said) == self.layers:
            return tuple(bool(each) for each in said)
        every = self.config.size(key, default) if default else 0
        return tuple(not every or (index + 1) % every != 0 for index in range(self.layers))

    def has_experts(self) -> tuple[bool, ...]:
        """Return which layers are mixtures of experts."""
        values = self.config.values
        if "router" not in self.linears:
            return (False,) * self.layers
        dense = sum(part.count for part in self.model.blocks if part.name == "dense_block")
        step, only = self.config.size("decoder_sparse_step", 1), values.get("mlp_only_layers")
        listed = only if isinstance(only, list) else []
        named = {index for index in listed if isinstance(index, int)}
        if step > 1 or named:
            return tuple(
                (index + 1) % step == 0 and index not in named for index in range(self.layers)
            )
        return (False,) * dense + (True,) * (self.layers - dense)


def rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a config.json says of its rotary embedding, under the names of transformers 5."""
    base = config.get("rope_theta") or config.get("rotary_emb_base")
    found: dict[str, Any] = {"rope_theta": base} if base else {}
    for name in ("rope_scaling", "rope_parameters"):
        said = config.get(name)
        found |= said if isinstance(said, Mapping) else {}
    return found | {"rope_type": found.get("rope_type", found.get("type", "default"))}


def reading(model: Model) -> Reading | None:
    """Return how to read a model; None of a type whose arguments nobody has said."""
    known, config = megatron_models().get(model.model_type), Config(model.name, model.config)
    if known is None:
        return None
    return Reading(model=model, known=known, family=family_of(DecoderFamily, config), config=config)


def unsaid(model: Model) -> str:
    """Return what of a model Megatron-LM's arguments do not say; "" where they say all of it."""
    found = reading(model)
    if found is None:
        named, more = list(megatron_models())[:_SHOWN_TYPES], len(megatron_models()) - _SHOWN_TYPES
        kinds = f"{', '.join(named)} and {more} more types"
        return f"its arguments are known for models of type {kinds}, not {model.model_type[:40]}"
    checks = (_numbers, _blocks, _positions, _router)
    reasons = (each for check in checks for each in check(found))
    return next((reason for is_true, reason in reasons if is_true), "")


def _numbers(found: Reading) -> Iterator[tuple[bool, str]]:
    known, values = found.known, found.config.values
    router = known.router or Router()
    keys = (
        known.norm_epsilon,
        known.rotary_share,
        known.clamp,
        router.coefficient,
        router.scale,
        router.groups,
        router.chosen_groups,
    )
    said = {key[0]: values.get(key[0]) for key in keys if key is not None}
    said |= {name: found.rope.get(name) for name in _OF_ROPE}
    for name, value in {**said, "initializer_range": values.get("initializer_range")}.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        yield value is not None and not is_number, f"{name} of its config.json is no number"


def _blocks(found: Reading) -> Iterator[tuple[bool, str]]:
    inputs, output, mlp = found.biases
    gated, name = found.family.is_gated, found.activation
    is_alike = output == mlp and inputs >= output
    yield not is_alike, "its arguments have biases everywhere, of queries, keys and values, or none"
    is_said = name == found.known.activation or name in (GATED if gated else PLAIN)
    kind = "with a gate" if gated else "without a gate"
    yield not is_said, f"an MLP {kind} whose function is {name[:40]} has no arguments"
    is_fused = name not in _GELU or mlp or gated
    yield not is_fused, "gelu by tanh goes with biases alone"
    yield found.is_latent and inputs, "its latent attention has no biases"


def _positions(found: Reading) -> Iterator[tuple[bool, str]]:
    said, values = found.rope, found.config.values
    kind = str(said["rope_type"])
    yield bool(values.get("alibi")), "positions by ALiBi have no argument"
    is_number = isinstance(said["rope_theta"], int | float)
    yield kind not in _ROPES or not is_number, "its kind of rotary embedding has other arguments"
    fixed = {"llama3": _LLAMA3, "yarn": _LATENT_YARN if found.is_latent else {}}.get(kind, {})
    differs = [name for name, value in fixed.items() if said.get(name, value) != value]
    yield bool(differs), f"no arguments say {', '.join(differs)} of its rotary embedding"
    factor = said.get("factor", 1.0)
    is_whole = isinstance(factor, int | float) and (kind != "linear" or float(factor).is_integer())
    yield not is_whole, "its rotary embedding is stretched by whole numbers"
    yield found.is_latent and kind == "linear", "its kind of rotary embedding has other arguments"


def _router(found: Reading) -> Iterator[tuple[bool, str]]:
    router = found.known.router
    if router is None:
        return
    is_sigmoid = router.scores == "sigmoid"
    normalises = found.config.flag("norm_topk_prob", default=True)
    yield is_sigmoid and not normalises, "it makes scores of a sigmoid sum to one"
