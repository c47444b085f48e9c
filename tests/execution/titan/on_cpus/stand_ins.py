"""What torchtitan 0.3.0 asks of GPUs and of PyTorch 2.14, on CPUs and with 2.13; all else is as there.

FlexAttention runs as it is written, uncompiled; gloo sums gradients, where NCCL would scale them too. PyTorch 2.13 splits
a pipeline's batch itself: its schedules are told the micro-batches by another name.
"""

import inspect
import sys
from typing import Any
from unittest.mock import MagicMock

import torch._functorch.partitioners
import torch._inductor.codecache
import torch._inductor.compile_fx
import torch._utils
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import schedules
from torch.nn.attention import flex_attention


def take_place() -> None:
    for name in ("triton", "triton.language"):
        sys.modules.setdefault(name, MagicMock())
    flex: Any = flex_attention
    flex._validate_device = lambda *_: None  # noqa: SLF001
    utilities: Any = torch._utils  # noqa: SLF001
    utilities._get_available_device_type = lambda: "cpu"  # noqa: SLF001
    if "arg_mbs" not in inspect.signature(schedules.PipelineScheduleMulti.step).parameters:
        for schedule in (schedules.PipelineScheduleSingle, schedules.PipelineScheduleMulti):
            schedule.step = step  # type: ignore[method-assign,assignment]
    _in_torchtitan()


def _in_torchtitan() -> None:
    from torchtitan.components import metrics  # noqa: PLC0415
    from torchtitan.distributed import fsdp, utils  # noqa: PLC0415
    from torchtitan.models.common import attention  # noqa: PLC0415

    own: Any = attention
    own.FlexAttention._compiled_flex_attn = staticmethod(flex_attention.flex_attention)  # noqa: SLF001
    own._compiled_create_block_mask = flex_attention.create_block_mask  # noqa: SLF001
    monitor = MagicMock(device_name="cpu", device_capacity_gib=1.0)
    monitor.get_peak_stats.return_value = metrics.DeviceMemStats(0, 0, 0, 0, 0, 0)
    metrics.build_device_memory_monitor = lambda: monitor
    utils.set_pg_timeouts = lambda *_, **__: None
    scale = fsdp.disable_fsdp_gradient_division

    def sum_alone(model: torch.nn.Module) -> None:
        scale(model)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(enable=True)

    fsdp.disable_fsdp_gradient_division = sum_alone


def step(  # noqa: PLR0913 - as PyTorch 2.14 has it
    self: Any,
    *,
    arg_mbs: list[Any] | None = None,
    kwarg_mbs: list[Any] | None = None,
    target_mbs: list[Any] | None = None,
    losses: list[Any] | None = None,
    loss_kwargs: dict[str, Any] | None = None,
    return_outputs: bool = True,
) -> None:
    """Run a step on micro-batches."""
    for stage in getattr(self, "_stages", None) or [self._stage]:
        stage.has_backward = True
        stage.clear_runtime_states()
    self._step_microbatches(
        arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs=loss_kwargs
    )
