"""What one device does by itself: matmuls, attention, passes over memory, launches, copies."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, groupby
from statistics import median

import torch
from torch.nn.functional import scaled_dot_product_attention

from planner.calibrate.measure.clock import Budget, Clock
from planner.calibrate.measure.tasks import (
    FORWARD,
    INPUT_GRADIENT,
    AttentionShape,
    Matmul,
)
from planner.machine.document import AttentionCurve, AttentionPoint, GemmCurve, GemmPoint

SUSTAINED_SECONDS = 0.3
"""That a kernel runs: together with its like, long enough for a card to reach the clocks that its power allows."""
_TURNS = 3
"""In which kernels of a kind are timed, one after the other: what disturbs the machine for a while spoils one of them."""
_SHORTEST_SECONDS = 0.02
_CACHE_BYTES = 2**28
"""That operands are rotated through, so that each is read from memory as in a step: above any cache."""
_MOST_OPERANDS = 16
_LAYER_OPERATIONS = 14
"""Of `_layer_seconds`, as `planner.step_time.host` counts them: two of each linear, and three kept tensors, twice."""
_OPTIMIZER_BYTES = 28
"""Of a parameter in a fused fp32 AdamW step: 4 values read, 3 written."""
_OPTIMIZER_TENSORS = 16
_BUFFER_BYTES = {"cuda": 2**30, "cpu": 2**26}
_MOST_PARAMETERS = {"cuda": 2**27, "cpu": 2**22}
"""Of a timed step of the optimizer, a core's share of the time in view."""

TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}


def matmuls(clock: Clock, wanted: Sequence[Matmul], budget: Budget) -> tuple[GemmCurve, ...]:
    """Return curves of the matmuls, as many as there is time for; the smallest come first."""
    curves = []
    for dtype, shapes in groupby(wanted, key=lambda each: each.dtype):
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        points = tuple(_matmul_points(clock, [*shapes], budget))
        if points:
            curves.append(GemmCurve(dtype=dtype, points=points))
    torch.set_float32_matmul_precision("highest")
    return tuple(curves)


def _matmul_points(clock: Clock, shapes: Sequence[Matmul], budget: Budget) -> Iterator[GemmPoint]:
    """Yield the median of what each takes in several turns, of which the first may leave some out."""
    timed: dict[Matmul, list[float]] = {}
    for turn in range(_TURNS):
        wanted = [*timed] if turn else shapes
        for shape, seconds in _matmul_turn(clock, wanted, budget, _TURNS - turn):
            timed.setdefault(shape, []).append(seconds)
    for shape, found in timed.items():
        yield GemmPoint(m=shape.m, n=shape.n, k=shape.k, seconds=median(found))


def _matmul_turn(
    clock: Clock, shapes: Sequence[Matmul], budget: Budget, turns: int
) -> Iterator[tuple[Matmul, float]]:
    """Yield what each shape takes, in the first of so many turns that are left; only the first of all names what it omits."""
    flops_per_second = 0.0
    for number, shape in enumerate(shapes):
        left, name = budget.left(), f"{shape.dtype} matmul {shape.m} x {shape.n} x {shape.k}"
        once = shape.flops / flops_per_second if flops_per_second else 0.0
        if left <= 0 or 3 * once > left:
            if turns == _TURNS:
                omitted = f"{len(shapes) - number} {shape.dtype} matmuls from {name}"
                budget.omit(f"{omitted}: no time left")
            return
        budget.show(f"{name}, {number + 1} of {len(shapes)}")
        number_left = len(shapes) - number + (turns - 1) * len(shapes)
        duration = min(SUSTAINED_SECONDS / _TURNS, _duration(left, number_left))
        with budget.trying(name):
            seconds = clock.sustained(_matmul_call(shape, clock.device), duration)
            flops_per_second = max(flops_per_second, shape.flops / seconds)
            yield shape, seconds


def _duration(left: float, number: int) -> float:
    """Return the seconds for one of several measurements; warming up takes time too."""
    return min(SUSTAINED_SECONDS, max(_SHORTEST_SECONDS, 0.7 * left / number))


def _matmul_call(shape: Matmul, device: torch.device) -> Callable[[], object]:
    """Return a call that multiplies the next of several pairs of operands, laid out as in that pass."""
    dtype = TORCH_DTYPES[shape.dtype]
    size = (shape.m * shape.k + shape.k * shape.n) * dtype.itemsize
    pairs = []
    for _ in range(max(1, min(_MOST_OPERANDS, _CACHE_BYTES // size))):
        if shape.pass_name == FORWARD:
            left = torch.randn(shape.m, shape.k, device=device, dtype=dtype)
            right = torch.randn(shape.n, shape.k, device=device, dtype=dtype).t()
        elif shape.pass_name == INPUT_GRADIENT:
            left = torch.randn(shape.m, shape.k, device=device, dtype=dtype)
            right = torch.randn(shape.k, shape.n, device=device, dtype=dtype)
        else:
            left = torch.randn(shape.k, shape.m, device=device, dtype=dtype).t()
            right = torch.randn(shape.k, shape.n, device=device, dtype=dtype)
        pairs.append((left, right))
    operands = cycle(pairs)
    return lambda: torch.matmul(*next(operands))


def attention(
    clock: Clock, wanted: Sequence[AttentionShape], budget: Budget
) -> tuple[AttentionCurve, ...]:
    """Return curves of the attention that PyTorch takes by itself, forward and backward."""
    curves = []
    ordered = sorted(wanted, key=_attention_kind)
    for (dtype, is_causal, head_size), shapes in groupby(ordered, key=_attention_kind):
        points = tuple(_attention_points(clock, [*shapes], budget))
        if points:
            curves.append(
                AttentionCurve(dtype=dtype, causal=is_causal, head_size=head_size, points=points)
            )
    return tuple(curves)


def _attention_kind(shape: AttentionShape) -> tuple[str, bool, int]:
    return shape.dtype, shape.is_causal, shape.head_size


def _attention_points(
    clock: Clock, shapes: Sequence[AttentionShape], budget: Budget
) -> Iterator[AttentionPoint]:
    for number, shape in enumerate(shapes):
        name = f"{shape.dtype} attention {shape.batch} x {shape.heads} x {shape.sequence_length}"
        if budget.left() <= 0:
            budget.omit(f"{len(shapes) - number} attention shapes from {name}: no time left")
            return
        budget.show(name)
        duration = _duration(budget.left(), 2 * (len(shapes) - number))
        with budget.trying(name):
            forward, backward = _attention_calls(shape, clock.device)
            yield AttentionPoint(
                batch=shape.batch,
                heads=shape.heads,
                sequence_length=shape.sequence_length,
                forward_seconds=clock.sustained(forward, duration),
                backward_seconds=clock.sustained(backward, duration),
            )


def _attention_calls(
    shape: AttentionShape, device: torch.device
) -> tuple[Callable[[], object], Callable[[], object]]:
    sizes = (shape.batch, shape.heads, shape.sequence_length, shape.head_size)
    dtype = TORCH_DTYPES[shape.dtype]
    query, key, value = inputs = [
        torch.randn(sizes, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    ]

    def forward() -> torch.Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=shape.is_causal)

    output = forward()
    gradient = torch.randn_like(output)
    return forward, lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def memory_bytes_per_second(clock: Clock) -> float:
    """Return what a large copy within the device reads and writes."""
    size = _BUFFER_BYTES[clock.device.type]
    source = torch.empty(size // 4, device=clock.device).uniform_()
    target = torch.empty_like(source)
    return 2 * size / clock.sustained(lambda: target.copy_(source), SUSTAINED_SECONDS)


def launch_seconds(clock: Clock) -> float:
    """Return what the host takes to start one operation that has nothing to do.

    Of cores, which do both: one of a layer's, its module and its gradient's way back included.
    """
    if clock.device.type == "cpu":
        return _layer_seconds(clock) / _LAYER_OPERATIONS
    one = torch.zeros(1, device=clock.device)
    return clock.sustained(lambda: one.add_(1), SUSTAINED_SECONDS)


def _layer_seconds(clock: Clock) -> float:
    """Return the seconds of a small layer forward and backward, of 8 channels, which compute nothing to speak of."""
    layer = torch.nn.Sequential(
        torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8)
    )
    inputs = torch.randn(8, 8, requires_grad=True)
    gradient = torch.randn(8, 8)
    return clock.sustained(lambda: (inputs + layer(inputs)).backward(gradient), SUSTAINED_SECONDS)


def optimizer_bytes_per_second(clock: Clock, parameters: int) -> float:
    """Return the bytes per second of a fused AdamW step in fp32: 28 bytes per parameter."""
    number = min(parameters, _MOST_PARAMETERS[clock.device.type])
    each = max(1, number // _OPTIMIZER_TENSORS)
    tensors = [torch.zeros(each, device=clock.device) for _ in range(_OPTIMIZER_TENSORS)]
    for tensor in tensors:
        tensor.requires_grad_()
        tensor.grad = torch.randn_like(tensor)
    step = torch.optim.AdamW(tensors, lr=1e-6, fused=True).step
    moved = _OPTIMIZER_BYTES * each * _OPTIMIZER_TENSORS
    return moved / clock.sustained(step, SUSTAINED_SECONDS)


def host_to_device_bytes_per_second(clock: Clock) -> float:
    """Return what a large copy from pinned host memory reaches."""
    size = _BUFFER_BYTES[clock.device.type] // 4
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(size, dtype=torch.uint8, device=clock.device)
    seconds = clock.sustained(lambda: target.copy_(host, non_blocking=True), SUSTAINED_SECONDS)
    return size / seconds
