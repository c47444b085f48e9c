"""What PyTorch's eager kernels move for each operation of a model: bytes per token, forward and backward.

Each entry gives the bytes under fp32, autocast and half numerics. A kernel reads its inputs and writes its outputs once; layer
norms, whose threads wait for each other, are counted as the copies that take as long (data/measurements/h100_kernels.toml,
[memory_bound]). Counted operation by operation in transformers' modelling code, PyTorch 2.13 (tests/against_torch/test_eager_work.py).
"""

from planner.domain.work import Work

NONE = Work(forward=(0,), backward=(0,))
"""Of what another operation's work has already."""
_NORM = (9, 9, 4.9), (24, 24, 12)
"""A layer norm: 0.65 of a copy's rate in forward, in backward two kernels that both read the gradient and the input."""
_RMS_NORM = (28, 28, 36, 6), (92, 92, 92, 16)
"""As transformers spells it out: cast, square, mean, two products, cast; one kernel each way where it is fused."""
_RESIDUAL = (12, 10, 6), (12, 18, 6)
"""The sum that a norm reads; in backward two gradients are added, and one is cast to 16 bit."""
_CAST = (0, 6, 0), (0, 6, 0)
_ADDED = 12, 12, 6
"""The gradients of two matmuls that read the same tensor are added, in fp32 under autocast."""
_DROPOUT = (9, 5, 5), (9, 5, 5)
_KERNEL = (8, 4, 4), (12, 6, 6)
"""One kernel that reads and writes; in backward it reads the gradient and what forward kept."""
_PRODUCT = (12, 6, 6), (24, 12, 12)
_GELU_BY_TANH = (72, 76, 36, 4), (112, 118, 56, 6)
"""Spelled out in Python: a power, two sums, five products and a tanh; autocast raises to the third power in fp32."""
_ROTATED = (40, 36, 20), (64, 58, 32)
"""Two products, half of the channels negated and put together again, a sum."""
_PUT_TOGETHER = (8, 14, 4), (14, 20, 8)
"""What is rotated and what is not, where only a share of the channels is."""
_SPLIT = (0, 0, 0), (24, 12, 12)
_SUM = (12, 6, 6), (12, 6, 6)
_BATCH_NORM = (12, 6, 6), (20, 10, 10)
"""Two kernels each way read what it normalises: one for the statistics, one that writes."""


def norm(size: float) -> Work:
    """Return a layer norm, and the sum with the residual before it."""
    return _each(size, _NORM, _RESIDUAL)


def rms_norm(size: float) -> Work:
    """Return an RMSNorm as transformers spells it out, and the sum with the residual before it."""
    return _each(size, _RMS_NORM, _RESIDUAL)


def cast(size: float, copies: int = 1) -> Work:
    """Return what autocast does of a norm's output once for each matmul that reads it."""
    (_, forward, _), (_, backward, _) = _CAST
    again = [size * (copies - 1) * added for added in _ADDED]
    return Work(
        forward=(0, forward * size * copies, 0),
        backward=(again[0], backward * size * copies + again[1], again[2]),
    )


def dropout(size: float) -> Work:
    """Return a dropout, which writes a byte of its mask for each element."""
    return _each(size, _DROPOUT)


def kernel(size: float) -> Work:
    """Return an operation of one kernel each way, as GELU, SiLU and ReLU."""
    return _each(size, _KERNEL)


def gelu_by_tanh(size: float) -> Work:
    """Return GELU by its formula."""
    return _each(size, _GELU_BY_TANH)


def product(size: float) -> Work:
    """Return the product of two tensors."""
    return _each(size, _PRODUCT)


def rotated(size: float, share: float = 1.0) -> Work:
    """Return rotary positions of that share of so many channels of queries or keys."""
    turned = _each(share * size, _ROTATED)
    return turned + _each(size, _PUT_TOGETHER) if 0 < share < 1 else turned


def split(size: float, copies: int) -> Work:
    """Return queries, keys and values of one matrix, that wide each: backward puts their gradients together again."""
    return _each(copies * size, _SPLIT)


def batch_norm(size: float, *, is_shortcut: bool = False, is_last: bool = False) -> Work:
    """Return a batch norm and the ReLU after it; the last of a block adds the shortcut's, which has no ReLU of its own."""
    added = (_SUM,) if is_last else ()
    return _each(size, _BATCH_NORM, *(() if is_shortcut else (_KERNEL,)), *added)


def scores(dropout: float, *, is_upcast: bool) -> Work:
    """Return scale, softmax, casts and dropout of one materialised score.

    Args:
        dropout: its probability.
        is_upcast: the softmax is asked for in fp32; else autocast does so, and drops out in fp32 too.
    """
    drops = 1 if dropout else 0
    if is_upcast:
        return Work(
            forward=(16 + 9 * drops, 16 + 5 * drops, 16 + 5 * drops),
            backward=(20 + 9 * drops, 20 + 5 * drops, 20 + 5 * drops),
        )
    return Work(
        forward=(16 + 9 * drops, 24 + 9 * drops, 8 + 5 * drops),
        backward=(20 + 9 * drops, 28 + 9 * drops, 10 + 5 * drops),
    )


def _each(size: float, *operations: tuple[tuple[float, ...], tuple[float, ...]]) -> Work:
    forward, backward = zip(*operations, strict=True)
    return Work(forward=_summed(size, forward), backward=_summed(size, backward))


def _summed(size: float, counts: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    longest = max(len(each) for each in counts)
    return tuple(
        size * sum(each[min(at, len(each) - 1)] for each in counts) for at in range(longest)
    )
