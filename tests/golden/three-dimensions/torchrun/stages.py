"""What a process computes of the model, and how it comes by its weights."""

import argparse
import itertools
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B
from torch.distributed.tensor import DTensor, distribute_tensor

from division import Grid, divide, keep_own_rows
from model import build_model
from settings import (
    LAYERS_PER_STAGE,
    MICRO_BATCH_SIZE,
    MODEL_OPTIONS,
    PIPELINE_PARALLEL_SIZE,
    SEQUENCE_LENGTH,
)


class Stage(torch.nn.Module):
    """Consecutive layers, with the embeddings before the first and the head after the last."""

    def __init__(self, model: Any, number: int) -> None:
        super().__init__()
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
        places = torch.arange(SEQUENCE_LENGTH, device=hidden.device)[None]
        mask = None  # without padding the kernels are told to be causal
        if self.embeddings is not None:
            hidden = self.embeddings(hidden)
        rotary = self.rotary_emb(hidden, places)
        for layer in self.layers:
            hidden = layer(
                hidden, attention_mask=mask, position_ids=places, position_embeddings=rotary
            )
        return hidden if self.head is None else self.head(hidden)


def cut(model: Any, numbers: Iterable[int]) -> list[Stage]:
    """Return the stages of these numbers, and take from the model all that is in none of them."""
    trunk = model.model
    stages = [Stage(model, number) for number in numbers]
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
    """The cross-entropy of each next token given those before it, in fp32, summed.

    Over the mean number of labels in a micro-batch of the step: so its mean over micro-batches and
    processes is a mean over labels, however much is padding.
    """

    def __init__(self) -> None:
        self.mean_labels = torch.ones(())

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
    stages = cut(model, numbers)
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
    hidden_size: int,
    micro_batches: int,
    grid: Grid,
    device: torch.device,
) -> Any:
    """Return the schedule that runs micro-batches through the stages here and elsewhere."""
    tokens = torch.empty(MICRO_BATCH_SIZE, SEQUENCE_LENGTH, dtype=torch.long, device="meta")
    hidden = torch.empty(
        MICRO_BATCH_SIZE,
        SEQUENCE_LENGTH,
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
