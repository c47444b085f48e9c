"""What a script asks of CUDA, of other ranks and of values, where there are none of the three."""

import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.attention.bias
from torch import nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed import device_mesh
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.optim import optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.dryrun.follow import Memory

_HALVES = (torch.bfloat16, torch.float16)
_LARGEST_FLASH_HEAD = 256
_ATTENTION_OPTIONS = {
    "attn_mask": None,
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "enable_gqa": False,
}
"""Of torch.nn.functional.scaled_dot_product_attention, in its order."""
_LIBRARY: Any = torch.library.Library
_KERNELS = _LIBRARY("aten", "IMPL")
_LOSS, _SIGNAL = 1.0, 0
"""What values read from the device are, as nothing is computed: losses and norms, and whether to stop."""


def stand_in(memory: Memory, *, rank: int, world_size: int, node_size: int) -> None:
    """Replace, in this process, what needs a GPU, other processes, or the values of tensors."""
    numbers = {"RANK": rank, "WORLD_SIZE": world_size}
    # Whichever rank is followed, its GPU is the first: only that one is stood in for.
    numbers |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": node_size}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    _cuda(memory, node_size)
    _ranks(rank, world_size)
    _stages()
    _values()
    _shapes(memory)
    _set(nn.Module, "_apply", _applied)
    _kernels()
    _attention()
    _masks()
    # As it takes parameters for, whose class is their own.
    optimizer._foreach_supported_types.append(FakeTensor)
    _set(fake_tensor, "init_gpu_context", _answer(None))
    _set(FakeTensorMode, "avoid_device_init", property(lambda _: True))


def _cuda(memory: Memory, node_size: int) -> None:
    """Answer what Python asks of CUDA, where there is no GPU."""
    figures = {
        "is_available": True,
        "is_initialized": True,
        "device_count": node_size,
        "current_device": 0,
        "get_device_name": "GPU that is not there",
        "get_device_capability": (9, 0),
        "is_bf16_supported": True,
        "set_device": None,
        "synchronize": None,
        "empty_cache": None,
        "_lazy_init": None,
        "manual_seed_all": None,
        "set_rng_state": None,
    }
    for name, value in figures.items():
        _set(torch.cuda, name, _answer(value))
    for name in ("stream", "current_stream"):
        _set(torch.cuda, name, getattr(torch.cpu, name))
    _set(torch.cuda, "Stream", _Stream)
    # What asks a build with CUDA for its stream when it is imported: bitsandbytes, which peft imports.
    _set(torch._C, "_cuda_getCurrentRawStream", _answer(0))
    _set(torch.cuda, "Event", _Event)
    _set(torch.cuda, "default_stream", torch.cpu.current_stream)
    _set(torch.cuda, "get_rng_state", lambda *_: torch.empty(0, dtype=torch.uint8))
    _set(torch.cuda, "max_memory_allocated", lambda *_: max(memory.peaks.values()))
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132, total_memory=2**40)
    _set(torch.cuda, "get_device_properties", _answer(properties))


class _Event:
    """An event of a stream on which nothing runs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def _nothing(self, *_: Any) -> None:
        pass

    record = wait = synchronize = _nothing

    def query(self) -> bool:
        return True


class _Stream(torch.cpu.Stream):
    """A stream on which nothing runs, whose events are asked for: an all-reduce of shards holds its own."""

    def record_event(self) -> Any:
        return _Event()


def _stages() -> None:
    """Vote for the other stages of a pipeline: none asks for shapes, as the script says them all."""
    agreed = SimpleNamespace(item=lambda: 1)
    for name in ("_warmup_forward_vote", "_warmup_backward_result"):
        _set(PipelineStage, name, _answer(agreed))


def _ranks(rank: int, world_size: int) -> None:
    """Join a group whose other processes are not there: its exchanges do nothing."""

    def join(*_: Any, **__: Any) -> None:
        real("fake", store=FakeStore(), rank=rank, world_size=world_size)

    real = dist.init_process_group
    _set(dist, "init_process_group", join)
    make = _with_values(device_mesh.init_device_mesh)
    for name in ("broadcast_object_list", "all_gather_object"):
        _set(dist, name, _answer(None))
    # Weights have no values to deal out.
    _set(state_dict, "set_model_state_dict", _answer(None))
    for module in (dist, device_mesh):
        _set(module, "init_device_mesh", make)
    for name in ("__init__", "__getitem__", "_flatten"):
        _set(DeviceMesh, name, _with_values(getattr(DeviceMesh, name)))
    _set(nn.parallel, "DistributedDataParallel", Replica)


class Replica(nn.Module):
    """What DistributedDataParallel holds: buckets, whose views the gradients become as they arrive.

    Its reducer is compiled, and reads values; this one keeps the same bytes (gradient_as_bucket_view).
    """

    def __init__(self, module: nn.Module, *_: Any, **__: Any) -> None:
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            if parameter.requires_grad:
                view = torch.empty_like(parameter)
                register: Any = parameter.register_post_accumulate_grad_hook
                register(_becoming(view))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute as the module does."""
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Any:
        """Accumulate; the bytes are the same."""
        yield


def _becoming(view: torch.Tensor) -> Callable[[torch.Tensor], None]:
    def become(parameter: torch.Tensor) -> None:
        parameter.grad = view

    return become


def _values() -> None:
    """Let what is read from the device be a number."""
    item = torch.Tensor.item

    def value(tensor: torch.Tensor) -> Any:
        if not isinstance(tensor, FakeTensor):
            return item(tensor)
        return _LOSS if tensor.is_floating_point() else _SIGNAL

    _set(torch.Tensor, "item", value)


def _shapes(memory: Memory) -> None:
    """Let DTensor find the shapes of results, of all ranks' parts together, without counting them."""
    name = "_propagate_tensor_meta_non_cached"
    _set(ShardingPropagator, name, memory.not_counting(getattr(ShardingPropagator, name)))


def _applied(module: nn.Module, convert: Callable[..., torch.Tensor], **kwargs: Any) -> nn.Module:
    """Convert parameters and buffers as Module._apply does, without swapping tensors that others refer to."""
    done = kwargs.setdefault("done", {})
    for child in module.children():
        apply: Any = child._apply
        apply(convert, done=done)
    for name, parameter in module._parameters.items():
        if parameter is not None and id(parameter) not in done:
            with torch.no_grad():
                changed = nn.Parameter(convert(parameter), parameter.requires_grad)
            done[id(parameter)] = (changed, parameter)
        if parameter is not None:
            module._parameters[name] = done[id(parameter)][0]
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = convert(buffer)
    return module


def _kernels() -> None:
    """Have GPU kernels where a build without CUDA composes operations, whose results in between would count."""
    for name in ("silu_backward", "mish_backward"):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"):
            _KERNELS.impl(name, lambda _, entered: torch.empty_like(entered), "CUDA")


def _attention() -> None:
    """Take the kernel that PyTorch takes on a GPU: flash, or the memory-efficient one where that cannot."""
    functional, aten = torch.nn.functional, torch.ops.aten
    math = functional.scaled_dot_product_attention

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **named: Any
    ) -> Any:
        given = _ATTENTION_OPTIONS | dict(zip(_ATTENTION_OPTIONS, args, strict=False)) | named
        mask, dropout, causal = given["attn_mask"], given["dropout_p"], given["is_causal"]
        if isinstance(mask, _LowerRight):
            mask, causal = None, True
        scale = given["scale"]
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            query, key, value = (each.to(dtype) for each in (query, key, value))
        size = query.shape[-1]
        if (
            query.dtype in _HALVES
            and mask is None
            and size <= _LARGEST_FLASH_HEAD
            and size % 8 == 0
        ):
            flash = aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout, causal, scale=scale)[0]
        if given["enable_gqa"] or size % 4:
            return math(query, key, value, **given)
        efficient, bias = aten._scaled_dot_product_efficient_attention, _bias(mask, query, key)
        return efficient(
            query,
            key,
            value,
            bias,
            compute_log_sumexp=True,
            dropout_p=dropout,
            is_causal=causal,
            scale=scale,
        )[0]

    _set(functional, "scaled_dot_product_attention", attend)
    _set(torch.nn.attention.bias, "causal_lower_right", _LowerRight)


@dataclass(frozen=True, slots=True)
class _LowerRight:
    """A mask of keys that come after a query, which is a tensor of its own class that has no values."""

    seq_len_q: int
    seq_len_kv: int


def _bias(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """Return a mask as the memory-efficient kernel takes it: added to every score."""
    if mask is None:
        return None
    bias = mask if mask.is_floating_point() else torch.zeros_like(mask, dtype=query.dtype)
    return bias.expand(*query.shape[:-1], key.shape[-2])


def _masks() -> None:
    """Keep transformers from taking tensors without values for a trace, which needs every mask in full."""
    import transformers.masking_utils as masks

    _set(masks, "is_tracing", lambda *_: False)
    _set(masks, "find_packed_sequence_indices", lambda *_, **__: None)


def _with_values(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose tensors have values: a mesh looks its own rank up in one."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return call(*args, **kwargs)

    return called


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _set(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)
