"""Megatron-LM's arguments as megatron-core takes them, and its GPTModel on a CPU."""

import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import Field, fields
from typing import Any
from unittest.mock import patch

import torch
from packaging.version import Version
from torch import Tensor
from torch.nn import functional

from planner.generate import RunSpec, generate

with warnings.catch_warnings():  # it misses Transformer Engine and Apex, which need a GPU
    warnings.simplefilter("ignore")
    from megatron.core.activations import squared_relu
    from megatron.core.extensions import transformer_engine
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs
    from megatron.core.tensor_parallel import ColumnParallelLinear
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer import (
        MLATransformerConfig,
        TransformerConfig,
        multi_latent_attention,
        transformer_block,
    )
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnBackend
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

_OF_SEVERAL = {"--recompute-modules", "--spec"}
"""Options that take more than one word."""


def options(spec: RunSpec) -> dict[str, str | None]:
    """Return the arguments that the launch script passes, as a shell reads its arrays."""
    script = generate(spec, ["megatron"])["megatron/launch.sh"]
    arrays = re.findall(
        r"^(?:model|parallelism|training)=\((.*?)^\)", script, re.DOTALL | re.MULTILINE
    )
    assert len(arrays) == 3
    found: dict[str, str | None] = {}
    name = ""
    for word in shlex.split(" ".join(arrays)):
        if word.startswith("--"):
            name = word
            assert name not in found
            found[name] = None
        else:
            assert found[name] is None or name in _OF_SEVERAL
            found[name] = " ".join(filter(None, (found[name], word)))
    return found


def option_names(field: Field[Any]) -> list[str]:
    """Return the options that Megatron-LM makes of a field (megatron/training/argument_utils.py)."""
    given = field.metadata.get("argparse_meta", {}).get("arg_names")
    if given:
        return list(given)
    name = field.name.replace("_", "-")
    if field.type is bool and field.default is True:
        return [f"--no-{name}", f"--disable-{name}"]
    return [f"--{name}"]


CORE = {
    option: field
    for config in (TransformerConfig, ModelParallelConfig)
    for field in fields(config)
    for option in option_names(field)
}


_PATTERNS = ("window_attn_skip_freq", "no_rope_freq", "moe_layer_freq")
"""Fields that say something of each layer."""


def value_of(field: Field[Any], text: str | None) -> object:
    """Return what argparse would put into the field."""
    if text is None:
        return field.default is not True
    if field.name in _PATTERNS and "[" in text:
        runs = re.findall(r"\[(\d)\]\*(\d+)", text)
        return [int(value) for value, length in runs for _ in range(int(length))]
    if field.name in _OTHERS:
        return _OTHERS[field.name](text)
    if isinstance(field.default, float):
        return float(text)
    return int(text) if text.isdigit() else float(text) if _NUMBER.fullmatch(text) else text


_OTHERS: dict[str, Callable[[str], object]] = {
    "recompute_modules": str.split,
    "window_size": lambda text: tuple(int(number) for number in text.split(",")),
    "attention_backend": lambda text: AttnBackend[text],
}
_NUMBER = re.compile(r"[\d.]+(e-?\d+)?")
_RENAMED = {
    "--decoder-first-pipeline-num-layers": "num_layers_in_first_pipeline_stage",
    "--decoder-last-pipeline-num-layers": "num_layers_in_last_pipeline_stage",
    "--num-virtual-stages-per-pipeline-rank": "virtual_pipeline_model_parallel_size",
    "--num-experts": "num_moe_experts",
}


def core_config(given: Mapping[str, str | None], **more: Any) -> TransformerConfig:
    """Return the configuration that the arguments make, as core_transformer_config_from_args does."""
    is_latent = "--multi-latent-attention" in given
    kind = MLATransformerConfig if is_latent else TransformerConfig
    core = {**CORE, **{name: each for each in fields(kind) for name in option_names(each)}}
    values = {
        core[name].name: value_of(core[name], text) for name, text in given.items() if name in core
    }
    values |= {
        name: int(given[option] or 0) for option, name in _RENAMED.items() if option in given
    }
    if "--pipeline-model-parallel-layout" in given:
        values["pipeline_model_parallel_layout"] = given["--pipeline-model-parallel-layout"]
    if "--moe-aux-loss-coeff" in given:
        values["moe_aux_loss_coeff"] = float(given["--moe-aux-loss-coeff"] or 0)
    # What it would read of Transformer Engine, which needs a GPU.
    engine = patch("megatron.core.utils.get_te_version", return_value=Version("2.9.0"))
    with warnings.catch_warnings(), engine:
        warnings.simplefilter("ignore")
        config = kind(pipeline_dtype=torch.bfloat16, **{**values, **_activation(given), **more})
    for name in ("rotary_scaling_factor", "mscale", "mscale_all_dim"):
        setattr(config, f"yarn_{name}", float(given.get(_option(name)) or 1))
    for name, default in (
        ("original_max_position_embeddings", 4096),
        ("beta_fast", 32),
        ("beta_slow", 1),
    ):
        setattr(config, f"yarn_{name}", float(given.get(_option(f"yarn_{name}")) or default))
    config.yarn_correction_range_round_to_int = (
        "--no-yarn-correction-range-round-to-int" not in given
    )
    return config


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _activation(given: Mapping[str, str | None]) -> dict[str, Any]:
    if "--swiglu" in given:
        return {"activation_func": functional.silu, "gated_linear_unit": True}
    if "--quick-geglu" in given:
        return {
            "activation_func": quick_gelu,
            "gated_linear_unit": True,
            "bias_activation_fusion": True,
        }
    if "--squared-relu" in given:
        return {"activation_func": squared_relu}
    is_fused = not {"--disable-bias-linear", "--no-bias-gelu-fusion"} & given.keys()
    return {"bias_activation_fusion": is_fused}


class _Attention(torch.nn.Module):
    """Causal attention whose values are narrower than its keys, which megatron-core leaves to Transformer Engine."""

    def __init__(self, *_: Any, softmax_scale: float, **__: Any) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        queries, keys, values = (each.permute(1, 2, 0, 3) for each in (query, key, value))
        mixed: Tensor = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=self.softmax_scale
        )
        return mixed.permute(2, 0, 1, 3).flatten(2)


class _ZeroCentred(torch.nn.LayerNorm):
    """A norm that multiplies by 1 + weight, which megatron-core leaves to Transformer Engine."""

    def __init__(self, *, hidden_size: int, eps: float, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch calls it
        return functional.layer_norm(
            input, self.normalized_shape, 1 + self.weight, self.bias, self.eps
        )


@contextmanager
def on_cpu(given: Mapping[str, str | None]) -> Iterator[None]:
    """Have megatron-core ask for no GPU, in one process, and use nothing that only Transformer Engine has."""
    ones = torch.ones

    def on_no_device(*sizes: Any, **kinds: Any) -> Tensor:
        return ones(*sizes, **{name: kind for name, kind in kinds.items() if name != "device"})

    def attention(*_: Any) -> type:
        return _Attention if "--multi-latent-attention" in given else DotProductAttention

    norm = _ZeroCentred if "--apply-layernorm-1p" in given else WrappedTorchNorm
    with (
        patch("torch.cuda.current_device", lambda: torch.device("cpu")),
        patch("torch.cuda.Stream", lambda *_, **__: None),
        patch("torch.ones", on_no_device),
        patch.object(CudaRNGStatesTracker, "fork", lambda *_, **__: nullcontext()),
        patch.object(LocalSpecProvider, "layer_norm", lambda *_, **__: norm),
        patch.object(transformer_block, "LayerNormImpl", norm),
        patch.object(LocalSpecProvider, "core_attention", attention),
        patch.object(multi_latent_attention, "TELinear", _Attention),
        patch.object(moe_utils, "te_general_gemm", None, create=True),
    ):
        yield


def gpt_model(
    given: Mapping[str, str | None], layer: ModuleSpec | None, vocabulary: int
) -> GPTModel:
    """Return the model that pretrain_gpt.py builds of its arguments, of modules without Transformer Engine."""
    on_one = {
        "use_cpu_initialization": True,
        "moe_token_dispatcher_type": "allgather",
        "params_dtype": torch.float32,
        "attention_softmax_in_fp32": True,
    }
    config = core_config(given, **on_one)
    if config.num_moe_experts:
        layer = gpt_layer_specs.get_gpt_decoder_block_spec(
            config, use_transformer_engine=False, normalization=config.normalization
        )
    return GPTModel(
        config=config,
        transformer_layer_spec=layer or local_layer(given),
        vocab_size=vocabulary,
        max_sequence_length=int(given["--max-position-embeddings"] or 0),
        share_embeddings_and_output_weights="--untie-embeddings-and-output-weights" not in given,
        position_embedding_type=given["--position-embedding-type"],
        rotary_percent=float(given.get("--rotary-percent") or 1),
        rotary_base=int(given.get("--rotary-base") or 10_000),
        rope_scaling="--use-rope-scaling" in given,
        seq_len_interpolation_factor=float(given.get("--rotary-seq-len-interpolation-factor") or 1),
    )


def local_layer(given: Mapping[str, str | None]) -> ModuleSpec:
    """Return the layer of megatron-core's own modules."""
    return gpt_layer_specs.get_gpt_layer_local_spec(
        qk_layernorm="--qk-layernorm" in given,
        multi_latent_attention="--multi-latent-attention" in given,
        normalization=given["--normalization"],
    )


def parallel_layer(text: str, given: Mapping[str, str | None]) -> ModuleSpec:
    """Return the layer of a plan's parallel_layer.py, whose norms stand beside the matrices here."""

    def without_engine() -> ModuleSpec:
        layer = local_layer(given)
        if "TENorm" in text:
            layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = IdentityOp
        return layer

    names: dict[str, Any] = {}
    with (
        patch.object(gpt_layer_specs, "get_gpt_layer_with_transformer_engine_spec", without_engine),
        patch.multiple(
            transformer_engine, TEColumnParallelLinear=ColumnParallelLinear, TENorm=WrappedTorchNorm
        ),
    ):
        exec(compile(text, "parallel_layer.py", "exec"), names)  # noqa: S102 - what a plan writes
    layer: ModuleSpec = names["LAYER"]
    return layer
