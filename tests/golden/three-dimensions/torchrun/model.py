"""The model: how it is built or loaded, divided, and saved as safetensors."""

import functools
import itertools
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as sharded
import transformers
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

import settings
from settings import HERE, MODEL_OPTIONS, reading


def read_config(args: Namespace) -> Any:
    """Return the model's configuration; random weights take theirs from config.json."""
    source = str(HERE) if args.init == "random" else args.model
    with reading(source):
        config = transformers.AutoConfig.from_pretrained(source, revision=args.revision)
    for name, value in config.to_dict().items():
        if args.no_dropout and ("dropout" in name or name.endswith("pdrop")) and value:
            setattr(config, name, 0.0)
    return config


def build_model(args: Namespace, config: Any) -> Any:
    """Return the model with pretrained weights, or random ones that depend on the seed alone."""
    auto = transformers.AutoModelForCausalLM
    torch.manual_seed(args.seed)
    if args.init == "random":
        return auto.from_config(config, **MODEL_OPTIONS).train()
    options = MODEL_OPTIONS | {"revision": args.revision}
    with reading(args.model):
        return auto.from_pretrained(args.model, config=config, **options).train()


def arrange(device: torch.device) -> DeviceMesh:
    """Return the processes by what they share; the last axis joins those with the fastest links."""
    data = dist.get_world_size() // settings.MODEL_RANKS
    sizes = (settings.PIPELINE_PARALLEL_SIZE, data, settings.TENSOR_PARALLEL_SIZE)
    names = ("pipeline", "data", "tensor")
    return init_device_mesh(device.type, sizes, mesh_dim_names=names)


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
    # The model's own plan names its matrices.
    for name, style in model.config.base_model_tp_plan.items():
        if style.startswith(("colwise", "rowwise")):
            plan[f"model.{name}"] = columns if style.startswith("colwise") else rows
    parallelize_module(model, mesh, plan)


def keep_own_rows(model: Any) -> None:
    """Have only this process's rows of a table's gradient stay: DTensor computes all of them."""

    def cut(table: DTensor, gradient: DTensor) -> DTensor:
        return gradient.redistribute(placements=table.placements).clone()

    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and isinstance(module.weight, DTensor):
            module.weight.register_hook(functools.partial(cut, module.weight))


class Stage(torch.nn.Module):
    """Consecutive layers, with the embeddings before the first and the head after the last."""

    def __init__(self, model: Any, number: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.number, self.width = number, model.config.hidden_size
        last = sum(settings.LAYERS_PER_STAGE[: number + 1])
        first = last - settings.LAYERS_PER_STAGE[number]
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


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each next token given those before it, in fp32: the mean over labels."""
    predicted = logits[:, :-1].flatten(0, 1).float()
    return torch.nn.functional.cross_entropy(predicted, labels[:, 1:].flatten())


def assemble(args: Namespace, config: Any, mesh: DeviceMesh, device: torch.device) -> Any:
    """Return the model and its stages here; only rank 0 ever holds it whole, in host memory."""
    source = build_model(args, config) if dist.get_rank() == 0 else None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **MODEL_OPTIONS).train()
    buffers = dict(model.named_buffers())
    divide(model, mesh["tensor"])
    rank = mesh.get_local_rank("pipeline")
    numbers = range(rank, len(settings.LAYERS_PER_STAGE), settings.PIPELINE_PARALLEL_SIZE)
    stages = cut(model, numbers, args.length)
    model.to_empty(device=device)
    keep_own_rows(model)
    full = sharded.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    sharded.set_model_state_dict(model, source.state_dict() if source else {}, options=full)
    # Buffers outside the state dict, such as rotary frequencies, are still empty.
    here = dict(model.named_buffers())
    for name, like in buffers.items():
        whole = source.get_buffer(name) if source else torch.empty_like(like, device="cpu")
        dist.broadcast(whole, src=0)
        if name in here:
            part = here[name]  # a DTensor where its module is divided
            (part.to_local() if isinstance(part, DTensor) else part).copy_(whole)
    return model, stages


def build_schedule(
    args: Namespace, stages: list[Stage], loss: Any, mesh: DeviceMesh, device: Any, several: int
) -> Any:
    """Return the schedule that runs several micro-batches through the stages here and elsewhere."""
    tokens = torch.empty(args.micro_batch_size, args.length, dtype=torch.long, device="meta")
    length = args.length
    shape = (args.micro_batch_size, length, stages[0].width)
    hidden = torch.empty(shape, dtype=torch.float32, device="meta", requires_grad=True)
    count, group = len(settings.LAYERS_PER_STAGE), mesh["pipeline"].get_group()
    pieces = []
    for stage in stages:
        given = hidden if stage.embeddings is None else tokens
        pieces.append(PipelineStage(stage, stage.number, count, device, given, hidden, group=group))
    return Schedule1F1B(pieces[0], several, loss)


def whole_weights(model: Any, dtype: torch.dtype, *, keeps: bool) -> dict[str, torch.Tensor]:
    """Return the weights, in the host memory of a process that keeps them: all call this."""
    weights, seen = {}, set()
    for name, part in model.state_dict(keep_vars=True).items():
        if id(part) in seen:
            continue  # a saved model holds tied weights once
        seen.add(id(part))
        if isinstance(part, DTensor):  # it may wait in host memory
            part = part.detach().to(part.device_mesh.device_type).full_tensor()
        if keeps:
            kind = dtype if part.is_floating_point() else part.dtype
            weights[name] = part.detach().to("cpu", kind)
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


def save_weights(model: Any, weights: dict[str, Any], folder: Path, dtype: torch.dtype) -> None:
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
