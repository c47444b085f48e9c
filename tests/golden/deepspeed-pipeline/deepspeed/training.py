"""What a step changes, and how a checkpoint holds it."""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import default_collate

from checkpoints import written
from settings import GLOBAL_BATCH_SIZE, HERE, MICRO_BATCH_SIZE
from stages import assemble, data_parallel_size, parts
from weights import Shards, save_tokenizer


def read_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return ds_config.json with the command line's clipping and this run's batch."""
    stride = MICRO_BATCH_SIZE * data_parallel_size()
    settings = json.loads((HERE / "ds_config.json").read_text())
    return settings | {
        "train_batch_size": GLOBAL_BATCH_SIZE,
        "train_micro_batch_size_per_gpu": MICRO_BATCH_SIZE,
        "gradient_accumulation_steps": GLOBAL_BATCH_SIZE // stride,
        "gradient_clipping": args.clip,
    }


def groups(parameters: Any, decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups of parameters: biases and the scales of norms do not decay."""
    by_decay: dict[float, list[torch.Tensor]] = {}
    for parameter in parameters:
        by_decay.setdefault(decay if parameter.ndim > 1 else 0.0, []).append(parameter)
    return [{"params": group, "weight_decay": each} for each, group in by_decay.items()]


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(self, args: argparse.Namespace, config: Any) -> None:
        settings = read_settings(args)
        self.model, stage = assemble(args, config)
        # DeepSpeed's clipping leaves out later stages, unless their parameters are marked.
        for parameter in stage.parameters():
            parameter.model_parallel = not parameter.ds_pipe_replicated
        # PyTorch's fused AdamW runs on GPUs and CPUs alike, with nothing to compile.
        parameters = groups(stage.parameters(), args.weight_decay)
        optimizer = torch.optim.AdamW(parameters, betas=(0.9, args.beta2), fused=True)
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=stage, optimizer=optimizer, config=settings
        )
        self.step, self.norm = 0, 0.0  # the gradient's, before it was clipped

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        with written(folder, is_checkpoint=True) as partial:
            state = {"step": self.step}
            self.engine.save_checkpoint(str(partial), tag="state", client_state=state)

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, on as many processes as wrote it."""
        _, state = self.engine.load_checkpoint(str(folder), tag="state")
        self.step = int(state["step"])

    def save_model(self, args: argparse.Namespace, folder: Path) -> None:
        """Write the whole weights as safetensors, each from the first process that has it."""
        here, held = parts(self.model), [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(held, [*here])
        earlier = set(itertools.chain.from_iterable(held[: dist.get_rank()]))
        with written(folder, is_checkpoint=False) as partial:
            shards = Shards(partial, self.model, is_writer=True)
            for name in self.model.state_dict():
                if name in here and name not in earlier:
                    shards.add(name, here[name])
            shards.close()
            save_tokenizer(args, partial)


def micro_batches(samples: Any, step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return this pipeline's slice of each micro-batch: tokens, and labels for its last stage."""
    number = dist.get_rank() % data_parallel_size()
    stride = MICRO_BATCH_SIZE * data_parallel_size()
    batches = []
    for offset in range(0, GLOBAL_BATCH_SIZE, stride):
        first = step * GLOBAL_BATCH_SIZE + offset + number * MICRO_BATCH_SIZE
        batch = default_collate([samples[first + i] for i in range(MICRO_BATCH_SIZE)])
        batches.append((batch["input_ids"], batch["labels"]))
    return batches


def count_labels(training: Training, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return how many tokens a micro-batch of the step predicts, on average over all processes."""
    counts = torch.stack([(labels != -100).sum() for _, labels in batches])
    mean = counts.float().mean().to(training.engine.device)
    dist.all_reduce(mean)
    return mean / dist.get_world_size()
