"""Print what torchtitan's ConfigManager and ParallelDims make of plan.py, as JSON.

In a process of its own: torchtitan's kernels import Triton, which a CPU build of PyTorch lacks. They
are not called here, so an empty stand-in does, put there after PyTorch has looked for the real one.
torchao is one too: its linears are named, not built.
"""

import json
import sys
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import MagicMock

import torch._functorch.partitioners
import torch._inductor.codecache
import torch._inductor.compile_fx
import torch.distributed.pipelining
import torch.nn.attention.flex_attention

for name in ("triton", "triton.language"):
    sys.modules[name] = MagicMock()

for name in ("torchao", "torchao.float8", "torchao.prototype", "torchao.prototype.moe_training"):
    sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None))
for name, kind in (
    ("float8.float8_linear", "Float"),
    ("prototype.moe_training.mxfp8_linear", "MXFP"),
):
    linear = type(f"{kind}8Linear", (torch.nn.Linear,), {})
    sys.modules[f"torchao.{name}"] = MagicMock(**{f"{kind}8Linear": linear})

import torchtitan.tools.utils  # noqa: E402

# The converters to 8 bit ask for a card that multiplies in it.
torchtitan.tools.utils.has_cuda_capability = lambda *_: True

from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.models.common.linear import Linear  # noqa: E402
from torchtitan.models.common.moe import GroupedExperts  # noqa: E402


def parameters(model: Any) -> int:
    """Return how many a model is built with; tied ones count once."""
    with torch.device("meta"):
        return sum(one.numel() for one in model.build().parameters())


KINDS = ("Linear", "Float8Linear", "MXFP8Linear")
EXPERTS = ("GroupedExperts", "Float8GroupedExperts", "MXFP8GroupedExperts")


def linears(model: Any) -> list[str]:
    """Return which linear each of the model's will be built as."""
    found = model.traverse(Linear.Config)
    return [type(each).__qualname__.partition(".")[0] for _, each, _, _ in found]


def experts(model: Any) -> list[str]:
    """Return which experts each of the model's layers will be built with."""
    found = model.traverse(GroupedExperts.Config)
    return [type(each)._owner.__name__ for _, each, _, _ in found]  # noqa: SLF001


def read(path: str, world_size: int, *arguments: str) -> dict[str, object]:
    sys.path.insert(0, path)
    for name in ("plan", "model"):
        sys.modules.pop(name, None)
    config = ConfigManager().parse_args(["--module", "plan", "--config", "plan", *arguments])
    sys.path.pop(0)
    dims = ParallelDims.from_config(config.parallelism, world_size)
    recompute = config.activation_checkpoint
    is_in_8_bit = any("8" in kind for kind in linears(config.model_spec.model))
    return {
        "training": asdict(config.training),
        "parallelism": asdict(config.parallelism),
        "checkpoint": asdict(config.checkpoint),
        "dims": {
            name: getattr(dims, name) for name in ("dp_replicate", "dp_shard", "tp", "pp", "ep")
        },
        "recompute": type(recompute).__qualname__.partition(".")[0] if recompute else None,
        "parameters": None if is_in_8_bit else parameters(config.model_spec.model),
        "experts": [experts(config.model_spec.model).count(kind) for kind in EXPERTS],
        "linears": {
            kind: sum(name == kind for name in linears(config.model_spec.model)) for kind in KINDS
        },
    }


def answer(path: str, world_size: int, *arguments: str) -> dict[str, object]:
    try:
        return read(path, world_size, *arguments)
    except (AssertionError, TypeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


answers = [answer(*job) for job in json.load(sys.stdin)]
print(json.dumps({"plans": answers}))
