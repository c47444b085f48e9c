"""Processes on gloo that Accelerate takes for GPUs: without those it has no FSDP, and one DeepSpeed process.

The rest of Accelerate, FSDP and DeepSpeed is as on GPUs.
"""

from typing import Any

import deepspeed
import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from accelerate.utils import DistributedType  # type: ignore[import-untyped]


def join(engine: str) -> None:
    """Join the processes before Accelerate would, for `deepspeed` or `fsdp`."""
    if engine == "deepspeed":
        deepspeed.comm.init_distributed("gloo", auto_mpi_discovery=False)
    if engine == "fsdp":
        take_for_gpus()
        leave_unpinned()
    PartialState(cpu=True)


def leave_unpinned() -> None:
    """Let FSDP offload to host memory: memory is pinned for GPUs alone."""
    tensors: Any = torch.Tensor
    tensors.pin_memory = lambda tensor: tensor


def take_for_gpus() -> None:
    """Call the processes GPUs, whenever Accelerate or Trainer looks again."""
    look = PartialState.__init__

    def look_again(self: Any, *args: Any, **kwargs: Any) -> None:
        look(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = look_again
