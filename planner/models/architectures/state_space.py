"""State-space layers of Mamba-2: a state per head that each token decays and adds to."""

from collections.abc import Mapping

from planner.domain.kept import Kept
from planner.domain.model import Linear, Scan
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import DecoderFamily
from planner.models.architectures.fields import said
from planner.models.architectures.pieces import Piece

_KEYS: Mapping[str, tuple[str, ...]] = {
    "heads": ("mamba_num_heads", "mamba_n_heads", "num_heads"),
    "channels": ("mamba_head_dim", "mamba_d_head", "head_dim"),
    "states": ("ssm_state_size", "mamba_d_state", "state_size"),
    "groups": ("n_groups", "mamba_n_groups"),
    "chunk": ("chunk_size", "mamba_chunk_size"),
    "kernel": ("conv_kernel", "mamba_d_conv"),
}
"""The names that families give to the same size."""


def state_space(_family: DecoderFamily, config: Config, hidden: int) -> tuple[None, Piece]:
    """Return the mixer of Mamba-2: projection, convolution, scan, gated norm, projection.

        flops per token = heads * (2 C (n + p) + 4 n p)

    Notation: p channels and n states of a head, C tokens of a chunk: scores 2 C n, times the inputs
    2 C p; the state is written and read, 2 n p each.
    Source: Dao and Gu, Mamba-2, arXiv:2405.21060, section 6; transformers 5.23, mamba2_chunk_scan.
    Leaves out: the padding of the last chunk, the recurrence between chunks, the convolution.
    """
    heads, states = _size(config, "heads", 128), _size(config, "states", 128)
    groups, chunk = _size(config, "groups", 8), _size(config, "chunk", 128)
    config.divided(said(config, _KEYS["heads"]), heads, said(config, _KEYS["groups"]), groups)
    channels = _channels(config, hidden, heads)
    inner = heads * channels
    mixed = inner + 2 * groups * states
    has_bias = config.flag(said(config, ("use_bias", "mamba_proj_bias")), default=False)
    has_convolution_bias = config.flag(
        said(config, ("use_conv_bias", "mamba_conv_bias")), default=True
    )
    has_norm = config.flag("mamba_rms_norm", default=True)
    projected = inner + mixed + heads
    return None, Piece(
        linears=(
            Linear(name="in_proj", in_features=hidden, out_features=projected, has_bias=has_bias),
            Linear(name="out_proj", in_features=inner, out_features=hidden, has_bias=has_bias),
        ),
        vectors={
            "dt_bias": heads,
            "A_log": heads,
            "D": heads,
            "conv1d": mixed * (_size(config, "kernel", 4) + has_convolution_bias),
            **({"gated_norm": inner} if has_norm else {}),
        },
        scan_flops_per_token=heads * (2 * chunk * (states + channels) + 4 * states * channels),
        scan=_kernels(heads, channels, states, groups, chunk),
        kept=(
            kept.operand("in_proj_input", hidden, of=("in_proj",)),
            *_convolved(projected, mixed),
            *_scanned(heads, channels, states, chunk),
            kept.counted("group_deviations", groups, (4, 4, 4, 4)),
            kept.operand("out_proj_input", inner, of=("out_proj",)),
        ),
    )


def _size(config: Config, name: str, default: int) -> int:
    return config.size(said(config, _KEYS[name]), default)


def _channels(config: Config, hidden: int, heads: int) -> int:
    """Return the channels of a head: as the config says, or of an inner size that it says, or of a multiple of the hidden one."""
    key = said(config, _KEYS["channels"])
    if config.values.get(key) != "auto":
        return config.size(key, 64)
    inner = config.size("mamba_d_ssm", config.size("mamba_expand", 2) * hidden)
    return config.divided("the inner size", inner, said(config, _KEYS["heads"]), heads)


def _kernels(heads: int, channels: int, states: int, groups: int, chunk: int) -> Scan:
    """Return how mamba-ssm's kernels run, five in forward and twelve in backward, each of which goes through memory.

        forward: inner * (6 + 12 n / C) + 8 g (C + n) bytes per token
        backward: inner * (22 + 28 n / C) + 40 g (C + n) bytes, heads * (6 C (n + p) + 10 n p) FLOPs

    Notation: as `state_space`; inner = heads * p; g groups. Forward: inputs are read by two kernels and outputs
    written, 2 bytes each; states of chunks are written and read in fp32, and written and read in 16 bit once they
    are passed on; scores of a group are written and read in fp32. Backward computes states and scores again; five
    kernels read the inputs and the outputs' gradients, four the states or their gradients.
    Source: mamba-ssm, ops/triton/ssd_combined.py: _mamba_chunk_scan_combined_fwd and _bwd, counted kernel by kernel.
    Leaves out: time steps and decays, a number per head; what stays in the L2 cache.
    """
    inner, share = heads * channels, states / chunk
    forward = 2 * chunk * (states + channels) + 4 * states * channels
    backward = 6 * chunk * (states + channels) + 10 * states * channels
    of_groups = groups * (chunk + states)
    return Scan(
        backward=backward / forward,
        moved_bytes_per_token=(
            inner * (6 + 12 * share) + 8 * of_groups,
            inner * (22 + 28 * share) + 40 * of_groups,
        ),
    )


def _convolved(projected: int, mixed: int) -> tuple[Kept, ...]:
    """Return what the convolution and its activation keep; fused kernels keep the projection alone."""
    return (
        kept.counted("projection", projected, (4, 0, 2, 2)),
        kept.counted("convolution", mixed, (8, 4, 2, 0)),
    )


def _scanned(heads: int, channels: int, states: int, chunk: int) -> tuple[Kept, ...]:
    """Return what the scan and the gated norm keep: tensors that PyTorch's operations save.

    Fused, what mamba-ssm keeps: the scan's output, and the rest is computed again.
    Source: transformers 5.23, mamba2_chunk_scan and the gated norm after it, counted from the tensors
    that autograd saves; mamba-ssm, ops/triton/ssd_combined.py.
    """
    inner = heads * channels
    return (
        kept.counted("chunk_pairs", heads * chunk, (12, 8, 12, 0)),
        kept.counted("inputs_and_outputs_of_states", heads * states, (20, 12, 20, 0)),
        kept.counted("scanned", inner, (32, 34, 40, 2)),
        kept.counted("chunk_states", inner * states / chunk, (8, 4, 8, 0)),
        kept.counted("decays", heads, (20, 20, 20, 4)),
    )
