"""The model: how it is built or loaded, divided, and saved as safetensors."""

import argparse
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from settings import (
    HERE,
    LAYERS_PER_STAGE,
    MODEL_OPTIONS,
    MODEL_RANKS,
    PIPELINE_PARALLEL_SIZE,
    TENSOR_PARALLEL_SIZE,
    reading,
)


def read_config(args: argparse.Namespace) -> Any:
    """Return the model's configuration; random weights take theirs from config.json."""
    source = str(HERE) if args.init == "random" else args.model
    with reading(source):
        config = transformers.AutoConfig.from_pretrained(source, revision=args.revision)
    for name, value in config.to_dict().items():
        if args.no_dropout and ("dropout" in name or name.endswith("pdrop")) and value:
            setattr(config, name, 0.0)
    return config


def build_model(args: argparse.Namespace, config: Any) -> Any:
    """Return the model with pretrained weights, or random ones that depend on the seed alone."""
    auto = transformers.AutoModelForCausalLM
    torch.manual_seed(args.seed)
    if args.init == "random":
        return auto.from_config(config, **MODEL_OPTIONS).train()
    options = MODEL_OPTIONS | {"revision": args.revision}
    with reading(args.model):
        return auto.from_pretrained(args.model, config=config, **options).train()


class Grid:
    """The processes by what they share; the last axis joins those with the fastest links."""

    def __init__(self, device: torch.device) -> None:
        data = dist.get_world_size() // MODEL_RANKS
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


class Stage(torch.nn.Module):
    """Consecutive layers, with the embeddings before the first and the head after the last."""

    def __init__(self, model: Any, number: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.number = number
        last = sum(LAYERS_PER_STAGE[: number + 1])
        first = last - LAYERS_PER_STAGE[number]
        trunk = model.model
        self.layers = trunk.layers[first:last]
        self.embeddings = trunk.embed_tokens if first == 0 else None
        self.rotary_emb = trunk.rotary_emb
        is_last = last == len(trunk.layers)
        self.head = torch.nn.Sequential(trunk.norm, model.lm_head) if is_last else None
        self.kept = range(first, last)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states after the layers, of tokens or of hidden states; or the logits."""
        with torch.autocast(hidden.device.type, dtype=torch.bfloat16):
            return self.compute(hidden)

    def compute(self, hidden: torch.Tensor) -> torch.Tensor:
        """Do what `forward` says, in the precision that it sets."""
        places = torch.arange(self.length, device=hidden.device)[None]
        mask = None  # without padding the kernels are told to be causal
        if self.embeddings is not None:
            hidden = self.embeddings(hidden)
        rotary = self.rotary_emb(hidden, places)
        for layer in self.layers:
            hidden = layer(
                hidden, attention_mask=mask, position_ids=places, position_embeddings=rotary
            )
        return hidden if self.head is None else self.head(hidden)


def cut(model: Any, numbers: Iterable[int], length: int) -> list[Stage]:
    """Return the stages of these numbers, and take from the model all that is in none of them."""
    trunk = model.model
    stages = [Stage(model, number, length) for number in numbers]
    kept = set(itertools.chain.from_iterable(stage.kept for stage in stages))
    for number in range(len(trunk.layers)):
        if number not in kept:
            trunk.layers[number] = torch.nn.Identity()
    if all(stage.embeddings is None for stage in stages):
        trunk.embed_tokens = torch.nn.Identity()
    if all(stage.head is None for stage in stages):
        trunk.norm, model.lm_head = torch.nn.Identity(), torch.nn.Identity()
    return stages


class NextTokenLoss:
    """The cross-entropy of each next token given those before it, in fp32: summed, over `mean_labels`."""

    def __init__(self) -> None:
        self.mean_labels = 1.0

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a micro-batch."""
        predicted = logits[:, :-1].flatten(0, 1).float()
        following = labels[:, 1:].flatten()
        total = torch.nn.functional.cross_entropy(predicted, following, reduction="sum")
        return total / self.mean_labels


def assemble(args: argparse.Namespace, config: Any, grid: Grid, device: torch.device) -> Any:
    """Return the model and its stages here; only rank 0 ever holds it whole, in host memory."""
    source = build_model(args, config) if dist.get_rank() == 0 else None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **MODEL_OPTIONS).train()
    shapes = dict(model.state_dict()) | dict(model.named_buffers())
    divide(model, grid.mesh["tensor"])
    rank = grid.mesh.get_local_rank("pipeline")
    numbers = range(rank, len(LAYERS_PER_STAGE), PIPELINE_PARALLEL_SIZE)
    stages = cut(model, numbers, args.length)
    model.to_empty(device=device)
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and isinstance(module.weight, DTensor):
            keep_own_rows(module.weight)
    fill(model, shapes, source, device)
    return model, stages


@torch.no_grad()
def fill(model: Any, shapes: dict[str, Any], source: Any, device: torch.device) -> None:
    """Give every process its parts of rank 0's weights, one tensor after the other."""
    parts = dict(model.state_dict()) | dict(model.named_buffers())
    weights = dict(source.state_dict()) | dict(source.named_buffers()) if source else {}
    for name, like in shapes.items():
        empty = torch.empty(like.shape, dtype=like.dtype, device=device)
        whole = weights[name].to(device) if source else empty
        dist.broadcast(whole, src=0)
        part = parts.get(name)
        if isinstance(part, DTensor):
            placed = distribute_tensor(whole, part.device_mesh, part.placements, src_data_rank=None)
            part.to_local().copy_(placed.to_local())
        elif part is not None:
            part.copy_(whole)


def build_schedule(
    stages: list[Stage],
    loss: NextTokenLoss,
    args: argparse.Namespace,
    hidden_size: int,
    micro_batches: int,
    grid: Grid,
    device: torch.device,
) -> Any:
    """Return the schedule that runs micro-batches through the stages here and elsewhere."""
    tokens = torch.empty(args.micro_batch_size, args.length, dtype=torch.long, device="meta")
    hidden = torch.empty(
        args.micro_batch_size,
        args.length,
        hidden_size,
        dtype=torch.float32,
        device="meta",
        requires_grad=True,
    )
    group = grid.mesh["pipeline"].get_group()
    pieces = [
        PipelineStage(
            stage,
            stage.number,
            len(LAYERS_PER_STAGE),
            device,
            input_args=hidden if stage.embeddings is None else tokens,
            output_args=hidden,
            group=group,
        )
        for stage in stages
    ]
    return Schedule1F1B(pieces[0], micro_batches, loss)


def gathered(part: torch.Tensor) -> torch.Tensor:
    """Return a weight, put together where it is divided: all processes that share it call this."""
    if isinstance(part, DTensor):  # it may wait in host memory
        return part.detach().to(part.device_mesh.device_type).full_tensor()
    return part.detach()


def whole_weights(model: Any, dtype: torch.dtype, *, keeps: bool) -> dict[str, torch.Tensor]:
    """Return the weights, in the host memory of a process that keeps them: all call this."""
    weights, seen = {}, set()
    for name, part in model.state_dict(keep_vars=True).items():
        if id(part) in seen:
            continue  # a saved model holds tied weights once
        seen.add(id(part))
        whole = gathered(part)
        if keeps:
            weights[name] = whole.to("cpu", dtype if whole.is_floating_point() else whole.dtype)
    return weights


def send_to_first(weights: dict[str, torch.Tensor]) -> None:
    """Send rank 0 the weights that other processes keep, one after the other: all call this."""
    group = dist.new_group(backend="gloo")
    everyone: list[Any] = [None] * dist.get_world_size()
    own = [(name, weight.shape, weight.dtype) for name, weight in weights.items()]
    dist.all_gather_object(everyone, own, group=group)
    for rank, theirs in enumerate(everyone[1:], start=1):
        for name, shape, dtype in theirs:
            if dist.get_rank() == rank:
                dist.send(weights[name].contiguous(), 0, group)
            elif is_first():
                weights[name] = torch.empty(shape, dtype=dtype)
                dist.recv(weights[name], rank, group)


def save_weights(
    model: Any, weights: dict[str, torch.Tensor], folder: Path, dtype: torch.dtype
) -> None:
    """Write whole weights as transformers reads them, from rank 0: all call this."""
    send_to_first(weights)
    if not is_first():
        return
    options = {"state_dict": weights, "max_shard_size": "5GB"}
    try:
        model.save_pretrained(folder, **options)
    except ValueError:  # some published settings of generation fail their own check
        model.generation_config = transformers.GenerationConfig()
        model.save_pretrained(folder, **options)
    model.config.dtype = dtype
    model.config.save_pretrained(folder)


def is_first() -> bool:
    """Return whether this is rank 0."""
    return dist.get_rank() == 0
