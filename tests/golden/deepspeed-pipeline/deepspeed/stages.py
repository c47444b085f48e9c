"""The stages of the pipeline: which layers each has, and how it comes by its weights."""

import argparse
import functools
import itertools
from typing import Any

import torch
import torch.distributed as dist
import transformers
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology
from torch.utils.checkpoint import checkpoint

from model import build_model
from settings import (
    LAYERS_PER_STAGE,
    MODEL_OPTIONS,
    PIPELINE_PARALLEL_SIZE,
    SEQUENCE_LENGTH,
)


def data_parallel_size() -> int:
    """Return how many pipelines run side by side."""
    return dist.get_world_size() // PIPELINE_PARALLEL_SIZE


class Part(torch.nn.Module):
    """A part of the model, whose memory is allocated by the stage that runs it."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part.to_empty(device="cpu")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the part makes of tokens or hidden states."""
        return self.part(hidden)


class Positions(Part):
    """The embeddings of the positions."""

    def __init__(self, part: Any, dropout: Any) -> None:
        super().__init__(part)
        self.dropout = dropout

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of tokens, with those of their positions added."""
        return self.dropout(hidden + self.part(torch.arange(SEQUENCE_LENGTH, device=hidden.device)))


class Block(Part):
    """One of the repeated layers."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states after the layer."""
        mask = None  # without padding the kernels are told to be causal
        return self.part(hidden, attention_mask=mask)


def logits(embedding: Part, hidden: torch.Tensor) -> torch.Tensor:
    """Return a score for every token: the head is the embedding of the tokens."""
    return torch.nn.functional.linear(hidden, embedding.part.weight)


def layers(model: Any) -> list[LayerSpec]:
    """Return the model as the list that its stages divide."""
    trunk = model.transformer
    return [
        # Each end of the pipeline has a copy; DeepSpeed adds up the gradients of both.
        TiedLayerSpec("tokens", Part, trunk.wte, tied_weight_attr="part.weight"),
        LayerSpec(Positions, trunk.wpe, trunk.drop),
        *(LayerSpec(Block, block) for block in trunk.h),
        LayerSpec(Part, trunk.ln_f),
        TiedLayerSpec(
            "tokens",
            Part,
            trunk.wte,
            forward_fn=logits,
            tied_weight_attr="part.weight",
        ),
    ]


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


class Pipeline(PipelineModule):
    """The stages, with the plan's numbers of blocks; DeepSpeed itself would balance them."""

    def _partition_layers(self, method: str = "uniform") -> None:
        specs = self._layer_specs
        first = next(n for n, spec in enumerate(specs) if spec.typename is Block)
        ends = itertools.accumulate(LAYERS_PER_STAGE[:-1], initial=first)
        self.parts = [0, *itertools.islice(ends, 1, None), len(specs)]
        self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])


@torch.no_grad()
def assemble(args: argparse.Namespace, config: Any) -> tuple[Any, Pipeline]:
    """Return the model and its stage here; only rank 0 ever holds it whole, in host memory.

    What other stages run stays on the meta device, without memory.
    """
    source = build_model(args, config) if dist.get_rank() == 0 else None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **MODEL_OPTIONS).train()
    shapes = dict(model.named_parameters()) | dict(model.named_buffers())
    stage = Pipeline(
        layers(model),
        topology=PipeDataParallelTopology(PIPELINE_PARALLEL_SIZE, data_parallel_size()),
        loss_fn=NextTokenLoss(),
        activation_checkpoint_interval=1,
        activation_checkpoint_func=functools.partial(checkpoint, use_reentrant=False),
        checkpointable_layers=["Block"],
    )
    fill(model, shapes, source)
    return model, stage


def parts(model: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of this stage under transformers' names."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}


@torch.no_grad()
def fill(model: Any, shapes: dict[str, Any], source: Any) -> None:
    """Give every process its parts of rank 0's weights, one tensor after the other."""
    here = parts(model)
    device = next(iter(here.values())).device
    weights = dict(source.named_parameters()) | dict(source.named_buffers()) if source else {}
    for name, like in shapes.items():
        whole = weights[name].to(device) if source else torch.empty_like(like, device=device)
        dist.broadcast(whole, src=0)
        if name in here:
            here[name].copy_(whole)
