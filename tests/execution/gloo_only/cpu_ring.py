"""PyTorch's ring attention with the attention kernel of CPUs: it comes with those of GPUs alone.

The ring itself, which passes keys and values on and merges the parts' results, is PyTorch's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001
SEQUENCE = 2  # of batch, heads, sequence, head size


def register() -> None:
    """Let context_parallel find the kernel."""
    handlers: Any = {KERNEL: forward, BACKWARD: backward}
    ring.custom_ops.update(handlers)


def forward(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[DTensor, ...]:
    return around(ring._templated_ring_attention, op, args, kwargs)  # noqa: SLF001


def backward(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[DTensor, ...]:
    named = {**kwargs, "grad_out_name": "grad_out"}
    return around(ring._templated_ring_attention_backward, op, args, named)  # noqa: SLF001


def around(
    ring_of: Any, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[DTensor, ...]:
    """Call the ring with this process's part of each tensor, by the names of the kernel's schema."""
    names = [argument.name for argument in op._schema.arguments]  # noqa: SLF001
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    query = named["query"]
    local = {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in named.items()
        if name != "attn_mask"
    }
    results = ring_of(query.device_mesh.get_group(), SEQUENCE, op, **local)
    return tuple(DTensor.from_local(one, query.device_mesh, query.placements) for one in results)
