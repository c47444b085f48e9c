"""How the processes share the model: their grid, and what each has of the layers."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from settings import PIPELINE_PARALLEL_SIZE, TENSOR_PARALLEL_SIZE


class Grid:
    """The processes by what they share; the last axis joins those with the fastest links."""

    def __init__(self, device: torch.device) -> None:
        data = dist.get_world_size() // 4
        self.mesh = init_device_mesh(
            device.type,
            (PIPELINE_PARALLEL_SIZE, data, TENSOR_PARALLEL_SIZE),
            mesh_dim_names=("pipeline", "data", "tensor"),
        )
        self.batch = self.mesh["data"]
        """Processes with the same parameters, each with its part of the batch."""
        place = self.mesh.get_coordinate()
        self.data_size, self.data_rank = data, place[1]


def divide_norms(attention: Any, mesh: DeviceMesh) -> None:
    """Let norms of queries and keys see the heads of this process alone, with what is of those."""

    def take(_: Any, inputs: Any, __: Any) -> Any:
        return DTensor.from_local(inputs[0], mesh, (Shard(2),), run_check=False)

    def give(_: Any, output: Any, __: Any) -> Any:
        return output.to_local()

    for name, norm in attention.named_children():
        if "norm" in name:
            is_of_all = norm.weight.numel() > attention.head_dim
            placement = Shard(0) if is_of_all else Replicate()
            weight = distribute_tensor(norm.weight, mesh, (placement,), src_data_rank=None)
            norm.weight = torch.nn.Parameter(weight)
            distribute_module(norm, mesh, None, take, give)


def divide(model: Any, mesh: DeviceMesh) -> None:
    """Divide the matrices over the processes of a tensor-parallel group.

    Columns of what goes into a block, rows of what comes out of it, so that one sum over the group
    follows each, and one in backward; the vocabulary at both ends, and the loss is computed from its parts.
    """
    whole = Replicate()
    # Matrices side by side share what comes in, so that their gradients are summed once.
    enter = PrepareModuleInput(input_layouts=whole, desired_input_layouts=whole)
    columns, rows = ColwiseParallel(), RowwiseParallel()
    plan: dict[str, ParallelStyle] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "model.layers.*.self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": whole},
            desired_input_kwarg_layouts={"hidden_states": whole},
        ),
        "model.layers.*.mlp": enter,
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    layers = model.model.layers
    # The model's own plan names its matrices.
    for name, style in model.config.base_model_tp_plan.items():
        if style.startswith(("colwise", "rowwise")):
            plan[f"model.{name}"] = columns if style.startswith("colwise") else rows
    for layer in layers:
        divide_norms(layer.self_attn, mesh)
    parallelize_module(model, mesh, plan)


def keep_own_rows(table: DTensor) -> None:
    """Have only this process's rows of a table's gradient stay: DTensor computes all of them."""

    def cut(gradient: Any) -> Any:
        return gradient.redistribute(placements=table.placements).clone()

    table.register_hook(cut)


def settle(model: Any) -> None:
    """Sum the gradients of which each process has a part, such as those of norms."""
    for parameter in model.parameters():
        if isinstance(parameter.grad, DTensor):
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
