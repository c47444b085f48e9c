"""The trained weights as safetensors, for from_pretrained to read."""

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from checkpoints import is_first
from data import read_tokenizer

SHARD_BYTES = 5 * 10**9  # of a file of weights


class Shards:
    """Files of whole weights, as transformers reads them; one at a time is in host memory."""

    def __init__(self, folder: Path, model: Any, *, is_writer: bool) -> None:
        self.folder = folder
        self.model = model
        self.is_writer = is_writer
        self.weights: dict[str, torch.Tensor] = {}
        self.files: list[tuple[str, list[str], int]] = []

    def add(self, name: str, weight: torch.Tensor) -> None:
        """Take a weight; only writers keep it."""
        if not self.is_writer:
            return
        held = sum(each.nbytes for each in self.weights.values())
        if self.weights and held + weight.nbytes > SHARD_BYTES:
            self.flush()
        self.weights[name] = weight.detach().cpu().contiguous()

    def flush(self) -> None:
        """Write what is held, under the names that checkpoints of this model have."""
        if self.weights:
            weights = as_in_files(self.model, self.weights)
            rank = dist.get_rank() if dist.is_initialized() else 0
            file = f"rank-{rank}-{len(self.files)}.safetensors"
            weights = {name: weight.contiguous() for name, weight in weights.items()}
            save_file(weights, self.folder / file, metadata={"format": "pt"})
            size = sum(weight.nbytes for weight in weights.values())
            self.files.append((file, list(weights), size))
        self.weights = {}

    def close(self) -> None:
        """Give the files their names, and write the index and the configuration: all call this."""
        self.flush()
        everyone = [self.files]
        if dist.is_initialized():
            everyone = [[] for _ in range(dist.get_world_size())]
            dist.all_gather_object(everyone, self.files)
        if not is_first():
            return
        files = [file for each in everyone for file in each]
        places = {}
        for number, (file, names, _) in enumerate(files, start=1):
            suffix = f"-{number:05}-of-{len(files):05}" if len(files) > 1 else ""
            (self.folder / file).rename(self.folder / f"model{suffix}.safetensors")
            places |= dict.fromkeys(names, f"model{suffix}.safetensors")
        if len(files) > 1:
            index = {"metadata": {"total_size": sum(size for *_, size in files)}}
            text = json.dumps(index | {"weight_map": places}, indent=2)
            (self.folder / "model.safetensors.index.json").write_text(text)
        self.describe()

    def describe(self) -> None:
        """Write the configuration of the model, as it loads again."""
        config = self.model.config
        config.architectures = [type(self.model).__name__.removeprefix("FSDP")]
        config.dtype = str(self.model.dtype).removeprefix("torch.")
        config.save_pretrained(self.folder)
        if self.model.can_generate():
            with contextlib.suppress(ValueError):  # some that are published fail their own check
                self.model.generation_config.save_pretrained(self.folder)


def as_in_files(model: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights under the names that checkpoints of this model have for them."""
    from transformers.core_model_loading import revert_weight_conversion

    return revert_weight_conversion(model, weights)


def gathered(part: torch.Tensor) -> torch.Tensor:
    """Return a weight, put together where it is divided: all processes that share it call this."""
    if isinstance(part, DTensor):  # it may wait in host memory
        return part.detach().to(part.device_mesh.device_type).full_tensor()
    return part.detach()


def save_tokenizer(args: argparse.Namespace, folder: Path) -> None:
    """Save what prepares the data beside the model, where the run has data."""
    if is_first() and (args.data or args.dataset):
        read_tokenizer(args).save_pretrained(folder)
