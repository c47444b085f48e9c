"""What PyTorch's operations keep for backward, in bytes per token.

Each entry gives the bytes under fp32, autocast, half and fused numerics (see
`planner.domain.kept.Numerics`; without a fourth entry, fused is as half).
Derived operation by operation from the autograd formulas of PyTorch and the modelling code of
transformers 5.23, and checked against the allocations of real models under fake tensors. What torch.compile leaves is
what AOTAutograd's min-cut partition saves of the same models: operands of matmuls once, what matmuls hand to elementwise
work, masks, and the state that a norm reads; all else backward computes again.
"""

from dataclasses import replace
from typing import TypedDict

from planner.domain.kept import GATED, Kept, Share
from planner.domain.work import Work
from planner.models.architectures import work

SPELLED_OUT_GELU = "spelled_out_gelu"
"""x / 2 * (1 + erf(x / sqrt(2))) in Python: keeps both factors and what erf reads."""

STATISTICS = 8
"""Mean and reciprocal deviation of a layer norm, fp32 each."""


def operand(  # noqa: PLR0913 - six facts
    name: str,
    size: float,
    copies: int = 1,
    *,
    share: Share = Share.SEQUENCE,
    of: tuple[str, ...] = (),
    does: Work | None = None,
) -> Kept:
    """Build the entry of a matmul operand: fp32, or cast to 16 bit once per consuming matmul.

    `does` is the work around it where that is not these casts.
    """
    return Kept(
        name=name,
        bytes_per_token=(4 * size, 2 * size * copies, 2 * size),
        share=share,
        operand_of=of,
        work=does or work.cast(size, copies),
        compiled_bytes_per_token=(4 * size, 2 * size, 2 * size),
    )


def counted(name: str, size: float, bytes_each: tuple[int, ...]) -> Kept:
    """Build the entry of tensors that were counted together: bytes per element by numerics."""
    return Kept(name=name, bytes_per_token=tuple(size * each for each in bytes_each))


def layer_norm(name: str, size: int) -> Kept:
    """Build the entry of a layer norm: its input and statistics; autocast runs it in fp32."""
    return Kept(
        name=name,
        bytes_per_token=(4 * size + STATISTICS, 4 * size + STATISTICS, 2 * size + STATISTICS),
        is_normalised_in_fp32=True,
        work=work.norm(size),
    )


def rms_norm(name: str, size: int) -> Kept:
    """Build the entry of transformers' RMSNorm: an fp32 copy and the normalised input.

    Fused, it keeps its input and one statistic. The normalised input serves the norm's own weight.
    """
    frozen = 4 * size + 4
    return Kept(
        name=name,
        bytes_per_token=(8 * size + 4, 8 * size + 4, 6 * size + 4, 2 * size + 4),
        frozen_bytes_per_token=(frozen, frozen, frozen, 2 * size + 4),
        work=work.rms_norm(size),
        compiled_bytes_per_token=(4 * size + 4, 4 * size + 4, 2 * size + 4),
    )


def dropout(name: str, size: int, probability: float) -> tuple[Kept, ...]:
    """Build the entry of a dropout mask: one byte per element, nothing at probability 0."""
    if probability == 0:
        return ()
    return (Kept(name=name, bytes_per_token=(size, size, size), work=work.dropout(size)),)


def activation(function: str, size: int) -> tuple[Kept, ...]:
    """Build the entries of an elementwise activation.

    `gelu_new` and its relatives are spelled out in Python and keep every intermediate (autocast
    raises to the third power in fp32); fused, they too keep their input alone. `relu` keeps its
    output, which the next matmul keeps anyway. The rest are single kernels that keep their input.
    """
    if function == "relu":
        return ()
    if function == SPELLED_OUT_GELU:
        return (counted("gelu_halves_and_erf", size, (12, 6, 6, 2)),)
    if function not in {"gelu_new", "gelu_fast"}:
        own = operand(f"{function}_input", size, share=Share.SPLIT, does=work.kernel(size))
        return (replace(own, is_activation_input=True),)
    spelled_out = (4 * size, 4 * size, 2 * size, 0)
    intermediate = ("gelu_power", "gelu_tanh", "gelu_one_plus_tanh")
    return (
        *(
            Kept(
                name=name,
                bytes_per_token=spelled_out,
                share=Share.SPLIT,
                work=work.NONE,
                compiled_bytes_per_token=(0,),
            )
            for name in intermediate
        ),
        operand("gelu_half_input", size, share=Share.SPLIT, does=work.gelu_by_tanh(size)),
    )


def gate(inner: int) -> tuple[Kept, ...]:
    """Build the entries of a gated product: both factors, of which fused kernels keep one."""
    size = 2 * inner
    return (
        Kept(
            name="activated_gate",
            bytes_per_token=(2 * size, size, size, 0),
            share=Share.SPLIT,
            work=work.product(inner),
            compiled_bytes_per_token=(0,),
        ),
        replace(operand(GATED, inner, share=Share.SPLIT, does=work.NONE), is_activation_input=True),
    )


class Scores(TypedDict):
    """What an `Attention` says of its scores, where they are materialised."""

    eager_bytes_per_score: tuple[float, ...]
    score_work: Work
    compiled_bytes_per_score: tuple[float, ...]


def scores(attention_dropout: float, *, is_upcast: bool) -> Scores:
    """Bytes per materialised attention score: softmax output, its cast, dropout mask and output.

    Compiled, the scores and what multiplies the values stay, and the mask.

    Args:
        attention_dropout: its probability; 0 keeps no mask.
        is_upcast: the model computes the softmax in fp32 whatever the dtype (llama does).
    """
    mask = 1 if attention_dropout else 0
    softmax_half = 4 + 2 if is_upcast else 2
    dropped = 2 + mask if mask else 0
    return Scores(
        eager_bytes_per_score=(
            4 + (4 + mask if mask else 0),
            4 + 2 + mask,
            softmax_half + dropped,
            2 + dropped,
        ),
        score_work=work.scores(attention_dropout, is_upcast=is_upcast),
        compiled_bytes_per_score=(8 + mask, 4 + mask, 4 + mask),
    )
