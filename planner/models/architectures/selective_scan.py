"""Mamba's selective scan: a state for every channel, whose decay each token sets."""

from planner.domain.model import Linear, Scan
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import DecoderFamily
from planner.models.architectures.fields import said
from planner.models.architectures.pieces import Piece

_FLOPS_PER_STATE = 9
"""Decay, its exponential, input, product, sum, output: Gu and Dao, Mamba, arXiv:2312.00752, section 3.3.2 and appendix D."""


def selective_scan(
    _family: DecoderFamily, config: Config, hidden: int, *, is_jamba: bool = False
) -> tuple[None, Piece]:
    """Return the mixer of Mamba: projection, convolution, scan, gate, projection.

        flops per token = 9 * channels * states

    Args:
        config: the model's.
        hidden: its hidden size.
        is_jamba: time steps and states are normed, and the width is twice the hidden size whatever the MLP's is.
    Source: transformers 5.23, MambaMixer and JambaMambaMixer; mamba-ssm, selective_scan_interface.py, mamba_inner_fn.
    Leaves out: that PyTorch's own loop over tokens, which runs where the kernels of mamba-ssm are missing, keeps
    every state and is slower by orders of magnitude.
    """
    states = config.size(said(config, ("state_size", "mamba_d_state")), 16)
    kernel = config.size(said(config, ("conv_kernel", "mamba_d_conv")), 4)
    inner = config.size(said(config, ("expand", "mamba_expand")), 2) * hidden
    if not is_jamba:
        inner = config.size("intermediate_size", inner)
    rank_key = said(config, ("time_step_rank", "mamba_dt_rank"))
    is_auto = config.values.get(rank_key) in (None, "auto")
    rank = -(-hidden // 16) if is_auto else config.size(rank_key)
    has_bias = config.flag(said(config, ("use_bias", "mamba_proj_bias")), default=False)
    has_kernel_bias = config.flag(said(config, ("use_conv_bias", "mamba_conv_bias")), default=True)
    norms = {"dt_norm": rank, "b_norm": states, "c_norm": states} if is_jamba else {}
    mixed = rank + 2 * states
    shapes = (
        ("in_proj", hidden, 2 * inner, has_bias),
        ("x_proj", inner, mixed, False),
        ("dt_proj", rank, inner, True),
        ("out_proj", inner, hidden, has_bias),
    )
    return None, Piece(
        linears=tuple(
            Linear(name=name, in_features=rows, out_features=columns, has_bias=bias)
            for name, rows, columns, bias in shapes
        ),
        vectors={
            "A_log": inner * states,
            "D": inner,
            "conv1d": inner * (kernel + has_kernel_bias),
            **norms,
        },
        scan_flops_per_token=_FLOPS_PER_STATE * inner * states,
        scan=Scan(is_elementwise=True),
        kept=(
            kept.operand("in_proj_input", hidden, of=("in_proj",)),
            kept.operand("projection", 2 * inner),
            kept.operand("time_steps_and_states", mixed),
            kept.operand("scanned", inner),
        ),
    )
