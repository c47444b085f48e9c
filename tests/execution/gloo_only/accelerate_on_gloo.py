"""Processes on gloo that Accelerate takes for GPUs: without those it has no FSDP, and one DeepSpeed process.

The rest of Accelerate, FSDP and DeepSpeed is as on GPUs.
"""

import cpu_ring
import deepspeed
from accelerate import PartialState  # type: ignore[import-untyped]
from accelerate.utils import DistributedType  # type: ignore[import-untyped]


def join(engine: str) -> None:
    """Join the processes before Accelerate would, for `deepspeed` or `fsdp`."""
    if engine == "deepspeed":
        deepspeed.comm.init_distributed("gloo", auto_mpi_discovery=False)
    PartialState(cpu=True)
    if engine == "fsdp":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # noqa: SLF001
        cpu_ring.register()
