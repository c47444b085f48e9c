"""Gradients after backward: averaged where that is by hand, and clipped to one norm."""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from settings import PIPELINE_PARALLEL_SIZE


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def average_gradients(model: Any, mesh: DeviceMesh) -> None:
    """Average the gradients over the processes with the same parameters."""
    handles = []
    for parameter in model.parameters():
        gradient = local(parameter.grad)
        gradient /= mesh.size()
        handles.append(dist.all_reduce(gradient, group=mesh.get_group(), async_op=True))
    for handle in handles:
        handle.wait()


def clip(model: Any, most: float, device: torch.device) -> float:
    """Scale the gradients so that their norm over all processes is `most`, if it is more; return it.

    Each process adds up the squares of its parts, divided by how many processes have the same.
    """
    total = torch.zeros((), device=device)
    for parameter in model.parameters():
        copies = dist.get_world_size() // PIPELINE_PARALLEL_SIZE
        if isinstance(parameter, DTensor):
            sizes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
            copies //= math.prod(size for size, kind in sizes if not kind.is_replicate())
        norm = torch.linalg.vector_norm(local(parameter.grad), dtype=torch.float32)
        total += norm.to(device) ** 2 / copies
    dist.all_reduce(total)
    norm = total.sqrt()
    scale = torch.clamp(most / (norm + 1e-6), max=1.0)
    for parameter in model.parameters():
        gradient = local(parameter.grad)
        gradient *= scale.to(gradient.device)
    return norm.item()
