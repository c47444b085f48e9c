"""What a step changes, and how a checkpoint holds it."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as sharded
from torch.distributed.tensor import DTensor

from checkpoints import written
from division import Grid
from settings import GLOBAL_BATCH_SIZE, MICRO_BATCH_SIZE
from stages import NextTokenLoss, assemble, build_schedule
from weights import Shards, gathered, save_tokenizer


def deal(parameters: list[torch.Tensor], size: int) -> list[int]:
    """Return which process steps each parameter, so that all have about as many elements."""
    loads, owners = [0] * size, [0] * len(parameters)
    for number in sorted(range(len(parameters)), key=lambda n: -parameters[n].numel()):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += parameters[number].numel()
    return owners


def groups(parameters: Iterable[torch.Tensor], decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups: of parameters on the same processes; biases and norms do not decay."""
    apart: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        apart.setdefault((mesh, decay if parameter.ndim > 1 else 0.0), []).append(parameter)
    found = [{"params": group, "weight_decay": each} for (_, each), group in apart.items()]
    return found or [{"params": []}]


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(
        self, args: argparse.Namespace, config: Any, grid: Grid, device: torch.device
    ) -> None:
        self.model, stages = assemble(args, config, grid, device)
        self.parameters = list(self.model.parameters())
        self.owners = deal(self.parameters, grid.batch.size())
        rank = grid.batch.get_local_rank()
        pairs = zip(self.parameters, self.owners, strict=True)
        own = (parameter for parameter, owner in pairs if owner == rank)
        parameters = groups(own, args.weight_decay)
        self.optimizer = torch.optim.AdamW(parameters, betas=(0.9, args.beta2), fused=True)
        self.grid = grid
        self.device = device
        self.step, self.norm = 0, 0.0  # the gradient's, before it was clipped
        self.micro_batches = GLOBAL_BATCH_SIZE // (MICRO_BATCH_SIZE * grid.data_size)
        self.loss = NextTokenLoss()
        self.stages = stages
        self.schedule = build_schedule(
            stages, self.loss, config.hidden_size, self.micro_batches, grid, device
        )
        self.has_head = any(stage.head is not None for stage in stages)
        self.has_embeddings = any(stage.embeddings is not None for stage in stages)

    def state(self) -> dict[str, Any]:
        """Return this process's parts of the state, under the names of the whole model."""
        options = sharded.StateDictOptions(flatten_optimizer_state_dict=True)
        model, optimizer = sharded.get_state_dict(self.model, self.optimizer, options=options)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        with written(folder, is_checkpoint=True) as partial:
            dcp.save(self.state(), checkpoint_id=partial)

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, of any layout of the same model."""
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        sharded.set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=sharded.StateDictOptions(flatten_optimizer_state_dict=True),
        )
        self.step = int(state["step"])

    def save_model(self, args: argparse.Namespace, folder: Path) -> None:
        """Write the whole weights as safetensors; of each stage one process does."""
        _, *others = self.grid.mesh.get_coordinate()
        is_writer = not any(others)
        with written(folder, is_checkpoint=False) as partial:
            shards = Shards(partial, self.model, is_writer=is_writer)
            parts = self.model.state_dict()
            for name, part in parts.items():
                shards.add(name, gathered(part))
            shards.close()
            save_tokenizer(args, partial)
