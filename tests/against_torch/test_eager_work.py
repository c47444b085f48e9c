"""What eager kernels of real models move beside their matmuls is what `planner.models.architectures.work` counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from conftest import JobMaker
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModel

from planner.domain.kept import Numerics
from planner.domain.strategy import Layout
from planner.step_time.elementwise import moved_per_token

BATCH, TOKENS = 4, 64
MATMULS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten._scaled_dot_product")
FREE = ("aten.detach", "aten.empty", "aten.new_empty", "aten.view", "aten._unsafe_view", "aten.t.")
WRITTEN = ("aten.zeros", "aten.ones", "aten.full", "aten.fill", "aten.new_zeros")
SLOWER = {"aten.native_layer_norm.default": 9 / 8, "aten.native_layer_norm_backward.default": 2.0}
"""Layer norms are counted as the copies that take as long."""
SIZES = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
DROPOUTS = (
    "attn_pdrop",
    "resid_pdrop",
    "embd_pdrop",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)
"""Off: on a CPU they are several operations, and fused attention is none."""
MODELS: dict[str, tuple[dict[str, Any], str, str]] = {
    "gpt2": ({"n_embd": 256, "n_head": 4, **dict.fromkeys(DROPOUTS, 0.0)}, "n_layer", "sdpa"),
    "llama": ({**SIZES, "num_key_value_heads": 4}, "num_hidden_layers", "sdpa"),
    "bert": ({**SIZES, **dict.fromkeys(DROPOUTS, 0.0)}, "num_hidden_layers", "eager"),
    "vit": ({**SIZES, "image_size": 112}, "num_hidden_layers", "eager"),
}


class Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes that operations read and write, matmuls and views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, name = func(*args, **(kwargs or {})), str(func)
        returned = func._schema.returns  # noqa: SLF001 - says what is a view
        is_view = bool(returned) and all(
            each.alias_info is not None and not each.alias_info.is_write for each in returned
        )
        if not is_view and not name.startswith(MATMULS + FREE):
            read = 0 if name.startswith(WRITTEN) else sum(map(held, tree_leaves((args, kwargs))))
            self.bytes += SLOWER.get(name, 1.0) * (read + sum(map(held, tree_leaves(found))))
        return found


def held(tensor: Any) -> float:
    """Return the bytes of a tensor, of what is expanded once."""
    if not isinstance(tensor, torch.Tensor):
        return 0.0
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    elements = torch.Size(size for size, stride in sizes if stride).numel()
    return float(elements * tensor.element_size())


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def of_layers(kind: str, count: int, dtype: torch.dtype) -> tuple[float, float, int]:
    """Return the bytes of forward and backward of a model of so many layers, and its tokens."""
    sizes, key, attention = MODELS[kind]
    config = AutoConfig.for_model(kind, **sizes, **{key: count})
    with default_dtype(dtype):
        auto: Any = AutoModel
        model = auto.from_config(config, attn_implementation=attention, dtype=dtype).train()
    if kind == "vit":
        inputs = {"pixel_values": torch.randn(BATCH, 3, 112, 112, dtype=dtype)}
    else:
        inputs = {"input_ids": torch.zeros(BATCH, TOKENS, dtype=torch.long)}
    with Moved() as ahead:
        states = model(**inputs).last_hidden_state
    with Moved() as back:
        states.sum().backward()
    return ahead.bytes, back.bytes, states.shape[0] * states.shape[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", MODELS)
def test_a_block_moves_what_is_counted(kind: str, dtype: torch.dtype, make_job: JobMaker) -> None:
    sizes, key, attention = MODELS[kind]
    three, two = (of_layers(kind, count, dtype) for count in (3, 2))
    recipe = {"attention": attention} | ({} if kind == "vit" else {"sequence_length": TOKENS})
    job = make_job({"model_type": kind, **sizes, key: 3}, recipe=recipe)
    numerics = Numerics.FP32 if dtype == torch.float32 else Numerics.HALF
    counted = moved_per_token(job, Layout(), job.model.blocks[0], numerics)
    measured = [(more - less) / three[2] for more, less in zip(three[:2], two[:2], strict=True)]
    assert sum(map(float, counted)) == pytest.approx(sum(measured), rel=0.1)
