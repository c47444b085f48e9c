"""What is to be measured, as plain numbers: the matmuls and the attention of a model's own layers."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Linear, Model

DTYPES = ("bf16", "fp16", "tf32", "fp32")
"""That a matmul is measured in; fp8 needs scales that only Transformer Engine's linears bring."""
TOKENS = (2048, 8192, 16384)
"""Of a micro-batch, where none are named: from one that barely fills a card to one that does."""
OPTIMIZER_PARAMETERS = 2**27
"""That a step of the optimizer is timed on: more than any cache holds, less than any card."""
LARGEST_MESSAGE_BYTES = 2**28
"""Of the ladder of messages, and of a model whose gradients are smaller, those."""

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "forward", "input gradient", "weight gradient"


@frozen
class Matmul:
    """C[m, n] = A[m, k] B[k, n], with the operands laid out as that pass of a linear has them."""

    dtype: str
    pass_name: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> float:
        """Return the multiplications and additions."""
        return 2.0 * self.m * self.n * self.k


@frozen
class AttentionShape:
    """Scaled dot-product attention of one micro-batch on one rank."""

    dtype: str
    is_causal: bool
    head_size: int
    batch: int
    heads: int
    sequence_length: int


@frozen
class Tasks:
    """Everything that one run of the program measures."""

    matmuls: tuple[Matmul, ...]
    attention: tuple[AttentionShape, ...]
    optimizer_parameters: int = OPTIMIZER_PARAMETERS
    message_bytes: tuple[int, ...] = ()


def tasks_of(
    model: Model,
    *,
    sequence_length: int,
    dtypes: Sequence[str],
    tensor_sizes: Sequence[int] = (1,),
    tokens: Sequence[int] = TOKENS,
) -> Tasks:
    """Return what a step of the model consists of, the smallest matmuls first.

    Args:
        model: whose layers; of experts, one with its share of the tokens.
        sequence_length: of attention.
        dtypes: of `DTYPES`.
        tensor_sizes: tensor parallel sizes that divide the layers.
        tokens: of a micro-batch.
    """
    matmuls = {
        each
        for layer in _linears(model)
        for size in tensor_sizes
        for number in tokens
        for dtype in dtypes
        for each in _passes(layer, size, number, dtype)
    }
    return Tasks(
        matmuls=_smallest_first(matmuls),
        attention=tuple(_attention(model, sequence_length, dtypes, tensor_sizes, tokens)),
        optimizer_parameters=min(OPTIMIZER_PARAMETERS, max(2**20, model.parameters)),
        message_bytes=_ladder(min(LARGEST_MESSAGE_BYTES, max(2**16, 4 * model.parameters))),
    )


def joined(tasks: Sequence[Tasks]) -> Tasks:
    """Return the tasks of several models as one, what they have in common once."""
    return Tasks(
        matmuls=_smallest_first({shape for each in tasks for shape in each.matmuls}),
        attention=tuple(dict.fromkeys(shape for each in tasks for shape in each.attention)),
        optimizer_parameters=max(each.optimizer_parameters for each in tasks),
        message_bytes=max((each.message_bytes for each in tasks), key=max),
    )


def _smallest_first(shapes: Collection[Matmul]) -> tuple[Matmul, ...]:
    return tuple(sorted(shapes, key=lambda each: (each.dtype, each.flops, each.pass_name)))


def write_tasks(tasks: Tasks, file: Path) -> None:
    """Write what `read_tasks` reads."""
    file.write_text(json.dumps(asdict(tasks), indent=1) + "\n", encoding="utf-8")


def read_tasks(file: Path) -> Tasks:
    """Return the tasks of a file.

    Raises:
        InvalidInputError: it cannot be read, or holds something else.
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Tasks(
            matmuls=tuple(Matmul(**each) for each in found["matmuls"]),
            attention=tuple(AttentionShape(**each) for each in found["attention"]),
            optimizer_parameters=int(found["optimizer_parameters"]),
            message_bytes=tuple(int(each) for each in found["message_bytes"]),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidInputError(
            f"{file} holds no tasks: {type(error).__name__}",
            hint="write it again with `planner calibrate --measure --nodes N`",
            field="--tasks",
        ) from None


def _linears(model: Model) -> set[Linear]:
    return {layer for part in model.parts for layer in part.linears}


def _passes(layer: Linear, tensor_size: int, tokens: int, dtype: str) -> Iterator[Matmul]:
    """Yield the three matmuls of a linear: y = x W^T, dx = dy W, dW = dy^T x."""
    split = min(tensor_size, layer.most_splits)
    columns = layer.out_features // (1 if layer.cuts_inputs else split)
    depth = layer.in_features // (split if layer.cuts_inputs else 1)
    rows = max(1, tokens * layer.experts_per_token // layer.num_experts)
    if columns > 1 and depth > 1:
        yield Matmul(dtype=dtype, pass_name=FORWARD, m=rows, n=columns, k=depth)
        yield Matmul(dtype=dtype, pass_name=INPUT_GRADIENT, m=rows, n=depth, k=columns)
        yield Matmul(dtype=dtype, pass_name=WEIGHT_GRADIENT, m=columns, n=depth, k=rows)


def _attention(
    model: Model,
    sequence_length: int,
    dtypes: Sequence[str],
    tensor_sizes: Sequence[int],
    tokens: Sequence[int],
) -> list[AttentionShape]:
    """Return attention of whole sequences; where a micro-batch is shorter than one, of one."""
    layers = {part.attention for part in model.parts if part.attention is not None}
    found = {
        AttentionShape(
            dtype=dtype,
            is_causal=layer.is_causal,
            head_size=layer.head_dim,
            batch=max(1, number // sequence_length),
            heads=max(1, layer.num_heads // size),
            sequence_length=sequence_length,
        )
        for layer in layers
        for number in tokens
        for size in tensor_sizes
        for dtype in dtypes
    }
    return sorted(found, key=lambda each: (each.dtype, each.batch * each.heads))


def _ladder(largest_bytes: int) -> tuple[int, ...]:
    """Return sizes of messages: those of a pipeline's hidden states to those of a model's gradients."""
    smallest, factor = 2**12, 4
    sizes = []
    while smallest < largest_bytes:
        sizes.append(smallest)
        smallest *= factor
    return (*sizes, largest_bytes)
