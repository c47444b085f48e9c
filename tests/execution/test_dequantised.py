"""Weights that are stored quantised train as they were before: loaded from mxfp4 and from fp8."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from launched import ACCUMULATED, launch
from run_specs import with_layout
from safetensors.torch import load_file, save_file
from torch import Tensor

pytestmark = pytest.mark.usefixtures("preloaded")

GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 2,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 16,
    "layer_types": ["full_attention", "full_attention"],
    "pad_token_id": 0,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}
_ROWS_OF_4_BIT = 32
_ONE, _HALF = 0x22, 127 - 1
"""Two 4-bit ones, and the exponent that halves them."""


def in_mxfp4(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with the experts' in 4 bit, each a half."""
    found: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, rows, columns = weight.shape
            blocks = (experts, columns, rows // _ROWS_OF_4_BIT)
            found[f"{name}_blocks"] = torch.full((*blocks, 16), _ONE, dtype=torch.uint8)
            found[f"{name}_scales"] = torch.full(blocks, _HALF, dtype=torch.uint8)
        else:
            found[name] = weight
    return found


def in_fp8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with the blocks' linears in 8 bit, one scale to each."""
    found: dict[str, Tensor] = {}
    for name, weight in weights.items():
        found[name] = weight
        if name.endswith("_proj.weight"):
            scale = weight.abs().max().float() / torch.finfo(torch.float8_e4m3fn).max
            found[name] = (weight.float() / scale).to(torch.float8_e4m3fn)
            found[f"{name}_scale_inv"] = scale.reshape(1, 1)
    return found


def store(folder: Path, config: Mapping[str, Any], name: str) -> None:
    """Write a model whose weights are stored so."""
    torch.manual_seed(1)
    chosen = transformers.AutoConfig.for_model(**config)
    auto: Any = transformers.AutoModelForCausalLM
    auto.from_config(chosen, dtype=torch.bfloat16).save_pretrained(folder)
    file = folder / "model.safetensors"
    stored = {"mxfp4": in_mxfp4, "fp8": in_fp8}[name](load_file(file))
    save_file(stored, file, metadata={"format": "pt"})
    said: dict[str, Any] = json.loads((folder / "config.json").read_text())
    said["quantization_config"] = {"quant_method": name, "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(said))


@pytest.mark.parametrize("name", ["mxfp4", "fp8"])
def test_they_are_dequantised_trained_and_saved(tmp_path: Path, name: str) -> None:
    config = GPT_OSS if name == "mxfp4" else LLAMA
    store(tmp_path / "stored", config, name)
    spec = with_layout(
        ACCUMULATED, model_config=config, zero_stage=3, stored_in=name, attention="eager"
    )
    arguments = ("--init", "pretrained", "--model", str(tmp_path / "stored"))
    launch(tmp_path / "run", spec, *arguments).finish()
    saved = tmp_path / "run" / "model"
    assert "quantization_config" not in json.loads((saved / "config.json").read_text())
    weights = load_file(saved / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}  # as they were stored
    if name == "mxfp4":
        experts = [weight for key, weight in weights.items() if key.endswith("down_proj")]
        assert experts
        assert all(torch.allclose(each.float(), torch.tensor(0.5), atol=0.05) for each in experts)
