"""Nemotron-H: each layer is one of Mamba-2, attention, an MLP or experts, with a norm before it."""

from collections.abc import Mapping
from dataclasses import replace

from planner.domain.model import Model
from planner.models.architectures.config import MOST_LAYERS, Config
from planner.models.architectures.decoder import Mixer, Mlp, Stack, assemble
from planner.models.architectures.decoder_family import DecoderFamily
from planner.models.architectures.decoder_layers import dense_mlp, grouped_attention
from planner.models.architectures.experts import expert_mlp, routing_of
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import invalid, layer_kinds
from planner.models.architectures.pieces import Piece
from planner.models.architectures.state_space import state_space

_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_OLD_NAMES = {"mamba": "linear_attention", "attention": "full_attention"}
_DEFAULT = ("linear_attention", "moe", "full_attention", "mlp")


def read(name: str, config: Config) -> Model:
    """Return the Model of a nemotron_h config.json; layers that predict more tokens are not built.

    Raises:
        InvalidInputError: the pattern of layers holds something that is none of the four.
    """
    # The modelling code knows no window.
    own = {"hidden_act": config.text("mlp_hidden_act", "relu2"), "sliding_window": None}
    reading = Config(name, {**config.values, **own})
    kinds = _kinds(reading)
    stacks = [
        Stack(count=kinds.count(kind), mixer=mixer, mlp=mlp, name=f"{kind}_block")
        for kind, (mixer, mlp) in _LAYERS.items()
    ]
    return replace(
        assemble(family_of(DecoderFamily, config), name, reading, stacks), config=config.values
    )


def _kinds(config: Config) -> tuple[str, ...]:
    listed = config.values.get("layers_block_type")
    letters = config.text("hybrid_override_pattern", "")
    if len(letters) > MOST_LAYERS or not set(letters) <= set(_LETTERS):
        raise invalid(config, "hybrid_override_pattern", f"of the letters {''.join(_LETTERS)}")
    kinds = tuple(_LETTERS[letter] for letter in letters) or _DEFAULT
    if isinstance(listed, list) and listed:
        named = layer_kinds(config, "layers_block_type", len(listed), str)
        kinds = tuple(_OLD_NAMES.get(kind, kind) for kind in named)
    if not set(kinds) <= set(_LAYERS):
        raise invalid(config, "layers_block_type", f"a list of {', '.join(_LAYERS)}")
    return kinds


def _nothing(_family: DecoderFamily, _config: Config, _hidden: int) -> Piece:
    return Piece(linears=(), kept=())


def _no_mixer(_family: DecoderFamily, _config: Config, _hidden: int) -> tuple[None, Piece]:
    return None, Piece(linears=(), kept=())


def _experts(family: DecoderFamily, config: Config, hidden: int) -> Piece:
    return expert_mlp(routing_of(config), family, config, hidden)


_LAYERS: Mapping[str, tuple[Mixer, Mlp]] = {
    "linear_attention": (state_space, _nothing),
    "full_attention": (grouped_attention, _nothing),
    "mlp": (_no_mixer, dense_mlp),
    "moe": (_no_mixer, _experts),
}
