"""Qwen3-Next and Qwen3.5: most layers mix tokens by a gated delta rule, every n-th by attention."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from planner.domain.model import Attention, Model
from planner.models.architectures import kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import Mixer, Mlp, Stack, assemble
from planner.models.architectures.decoder_family import DecoderFamily, size
from planner.models.architectures.decoder_layers import attention_piece, dense_mlp, scores
from planner.models.architectures.delta_rule import delta_rule
from planner.models.architectures.experts import expert_mlp, routing_of
from planner.models.architectures.family import family_of, record_of
from planner.models.architectures.fields import invalid, layer_kinds
from planner.models.architectures.pieces import Piece

_INTERVAL = 4
_LINEAR, _FULL = "linear_attention", "full_attention"


def gated_attention(family: DecoderFamily, config: Config, hidden: int) -> tuple[Attention, Piece]:
    """Return attention whose output is scaled by a gate that grows beside the queries.

    Kept besides: the gate, the output in the order of tokens, and their product. Turning a share of the
    channels leaves queries, and so the output, in the order of heads.
    """
    attention = scores(family, config, hidden)
    piece = attention_piece(family, config, attention, hidden)
    query, *others = piece.linears
    widened = replace(query, out_features=2 * query.out_features)
    does = work.product(attention.query_size)
    gate = kept.operand("output_gate", 3 * attention.query_size, does=does)
    return attention, replace(piece, linears=(widened, *others), kept=(*piece.kept, gate))


def read(name: str, config: Config) -> Model:
    """Return the Model of a qwen3_5 text or a qwen3_next config: each layer of the latter has one of two MLPs."""
    family, record = family_of(DecoderFamily, config), record_of(config)
    layers = size(family, config, "layers")
    kinds = _mixers(config, layers)
    experts = partial(expert_mlp, routing_of(config)) if "experts" in record else dense_mlp
    if config.values["model_type"] == "qwen3_next":
        return assemble(family, name, config, _next_stacks(config, kinds, experts))
    linear = Stack(
        count=kinds.count(_LINEAR), mixer=delta_rule, mlp=experts, name=f"{_LINEAR}_block"
    )
    attending = Stack(count=kinds.count(_FULL), mixer=gated_attention, mlp=experts)
    return assemble(family, name, config, [linear, attending])


def _next_stacks(config: Config, kinds: tuple[str, ...], experts: Mlp) -> list[Stack]:
    step = config.size("decoder_sparse_step", 1)
    only = config.values.get("mlp_only_layers") or []
    dense = {index for index in only if isinstance(index, int)} if isinstance(only, list) else set()
    are_dense = [index in dense or (index + 1) % step > 0 for index in range(len(kinds))]
    counts = Counter(zip(kinds, are_dense, strict=True))
    mixers: Mapping[str, Mixer] = {
        _LINEAR: partial(delta_rule, is_joint=True),
        _FULL: gated_attention,
    }
    return [
        Stack(
            count=counts[kind, is_dense],
            mixer=mixer,
            mlp=dense_mlp if is_dense else experts,
            name=f"{kind}_dense_block" if is_dense else f"{kind}_block",
        )
        for kind, mixer in mixers.items()
        for is_dense in (True, False)
    ]


def _mixers(config: Config, layers: int) -> tuple[str, ...]:
    """Return what mixes the tokens of each layer.

    Raises:
        InvalidInputError: a kind that the models do not have.
    """
    interval = config.size("full_attention_interval", _INTERVAL)
    kinds = layer_kinds(
        config, "layer_types", layers, lambda index: _LINEAR if (index + 1) % interval else _FULL
    )
    if not {_LINEAR, _FULL}.issuperset(kinds):
        raise invalid(config, "layer_types", f"{_LINEAR} or {_FULL} for each layer")
    return kinds
