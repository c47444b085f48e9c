"""Halves of a block, and what of a block recompute="selective" can repeat by itself.

Source: Megatron-LM d98e8a6, megatron/core/transformer: transformer_layer.py, multi_latent_attention.py, mlp.py,
moe/moe_layer.py and moe/experts.py; core/tensor_parallel/random.py CheckpointWithoutOutput.
"""

from collections.abc import Mapping
from dataclasses import field, replace

from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Linear, Module, Part, Scan
from planner.domain.recompute_modules import LAYER_NORM, MLP


@frozen
class Piece:
    """Half of a block: attention, or the MLP."""

    linears: tuple[Linear, ...]
    kept: tuple[Kept, ...]
    vectors: Mapping[str, int] = field(default_factory=dict)
    scan_flops_per_token: float = 0.0
    scan: Scan = Scan()
    modules: Mapping[str, Module] = field(default_factory=dict)
    """See `planner.domain.model.Part`."""
    normalised: tuple[Kept, ...] = ()
    """What it keeps of the output of the norm before it, where that is a kernel of its own; else that norm is
    a part of the first matmul, and nothing recomputes it alone."""


def module(
    name: str,
    linears: tuple[Linear, ...],
    kept: tuple[Kept, ...],
    *,
    checkpoint: tuple[Kept, ...] = (),
) -> Module:
    """Return a module that repeats these matmuls, and frees what it leaves but its checkpoint."""
    repeated = Part(name=name, is_block=True, linears=linears, kept=kept)
    return Module(repeated=repeated, freed=kept, checkpoint=checkpoint)


def with_mlp(piece: Piece) -> Piece:
    """Return a dense MLP that can recompute whole; what its norm reads is its checkpoint.

    Leaves out: the norm, which runs again as a part of the first matmul.
    """
    return replace(piece, modules={MLP: module(MLP, piece.linears, piece.kept)})


def block_modules(norms: tuple[Kept, ...], mixer: Piece, mlp: Piece) -> dict[str, Module]:
    """Return what of a block can recompute by itself: of its halves, and the norms that stand alone.

    Args:
        norms: what the block's norms keep, attention's first and the MLP's last.
        mixer: what mixes tokens.
        mlp: what follows it.
    """
    found = {**mixer.modules, **mlp.modules}
    alone = [(norms[at], half) for at, half in ((0, mixer), (-1, mlp)) if half.normalised]
    if alone:
        again = Part(name=LAYER_NORM, is_block=True, kept=tuple(norm for norm, _ in alone))
        outputs = tuple(entry for _, half in alone for entry in half.normalised)
        found[LAYER_NORM] = Module(repeated=again, freed=outputs)
    return found
