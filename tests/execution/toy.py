"""Run by torchrun or python: the steps of a generated script on a linear model of eight weights."""

import argparse
import gc
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from several import load


class Linear(torch.nn.Module):
    """A weighted sum of each row, all weights 1 at first; the loss is the sum over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 1, bias=False)
        torch.nn.init.ones_(self.linear.weight)

    def forward(
        self, row: torch.Tensor, labels: torch.Tensor, *, use_cache: bool
    ) -> SimpleNamespace:
        del labels, use_cache
        return SimpleNamespace(loss=self.linear(row).sum())


class Rows:
    """The same eight rows in every epoch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.rows = torch.rand(8, 8)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"row": self.rows[index % 8], "labels": torch.zeros(1)}


def train(module: Any, args: argparse.Namespace) -> torch.Tensor:
    """Take a step per epoch with the script's own functions; return the weights."""
    module.learning_rate = lambda *_: 0.01
    device = module.join(args)
    training = module.Training(module.replicate(Linear(), device), args, device)
    training.optimizer = torch.optim.SGD(training.model.parameters(), momentum=0.9)
    share = (dist.get_rank(), dist.get_world_size())
    several = 2 // share[1]  # micro-batches of a process, to a step
    following = module.batches(Rows(), args, device, range(2 * several), share)
    for _ in range(2):
        module.train_step(args, training, [*itertools.islice(following, several)])
    weight: torch.Tensor = training.model.module.linear.weight
    return weight.detach().clone()


def main() -> None:
    """Write the weights from rank 0."""
    module = load(Path(sys.argv[1]))
    data = {"data": None, "dataset": None, "workers": 2, "micro_batch_size": 4}
    numbers = {"weight_decay": 0.0, "beta2": 0.999, "clip": 1e9}
    weight = train(module, argparse.Namespace(cpu=True, **data, **numbers))
    if dist.get_rank() == 0:
        torch.save(weight, sys.argv[2])
    dist.barrier()
    gc.collect()  # the model holds the process group, whose threads must end before Python does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
