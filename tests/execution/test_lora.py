"""Adapters train like one process beside frozen weights, and load back."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from launched import ACCUMULATED, DEEP_LLAMA, GPT2, LLAMA, Run, launch, launch_several, run
from reference import TOLERANCE, Reference, build, distance, train, weights_of
from reference import expected as in_fp32
from run_specs import divided, with_layout
from texts import WORDS, write_tokenizer

from planner.generate import RunSpec
from planner.generate.run_spec import Adapters

pytestmark = [
    pytest.mark.usefixtures("preloaded"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False"),
]

MODULES = {"llama": ("q_proj", "v_proj", "down_proj"), "gpt2": ("c_attn", "attn.c_proj")}
CONFIGS: Mapping[str, dict[str, Any]] = {"llama": LLAMA, "gpt2": GPT2}
NF4 = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "bnb_4bit_compute_dtype": torch.float32,
}


def plan(model: str = "llama", *, bits: int = 32, **layout: Any) -> RunSpec:
    adapters = Adapters(
        rank=4,
        alpha=8.0,
        dropout=0.1,
        modules=MODULES[model],
        base_bits=bits,
        has_double_quantization=bits == 4,
    )
    return with_layout(ACCUMULATED, model_config=CONFIGS[model], adapters=adapters, **layout)


def adapted(base: Any, modules: tuple[str, ...]) -> Any:
    torch.manual_seed(0)
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(modules), task_type="CAUSAL_LM")
    return peft.get_peft_model(base, lora)


def quantised(base: Any) -> Any:
    bitsandbytes: Any = transformers.BitsAndBytesConfig
    weights = {"config": base.config, "state_dict": base.state_dict()}
    return type(base).from_pretrained(None, quantization_config=bitsandbytes(**NF4), **weights)


@cache
def expected(model: str, bits: int) -> Reference:
    """Train the adapters in this process, once per session."""

    def adapt(base: Any) -> Any:
        return adapted(quantised(base) if bits == 4 else base, MODULES[model]).train()

    return train(CONFIGS[model], adapt=adapt)


def assert_parity(run: Run, reference: Reference) -> None:
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    trained = {
        name.replace(".default", ""): weight
        for name, weight in reference.weights.items()
        if ".lora_" in name
    }
    first = {name.replace(".default", ""): weight for name, weight in reference.initial.items()}
    assert run.adapters.keys() == trained.keys()
    assert distance(run.adapters, trained) <= TOLERANCE
    assert distance(trained, first) > 100 * TOLERANCE
    assert not (run.folder / "model" / "model.safetensors").exists()


def test_torchrun_trains_adapters_like_one_process_and_resumes_exactly(tmp_path: Path) -> None:
    plans = {str(stage): plan(zero_stage=stage) for stage in range(4)}
    plans["offloaded"] = plan(zero_stage=3, offload="optimizer+parameters")
    checkpoint = "checkpoints/NAME/step-2"
    save = ("--no-dropout", "--save-every", "2", "--output", "FOLDER/checkpoints/NAME")
    again = ("--no-dropout", "--resume", f"FOLDER/{checkpoint}")
    for whole in launch_several(tmp_path, plans, *save, again=again).values():
        assert_parity(whole, expected("llama", 32))
        part = Run(whole.folder / "again", whole.process)
        assert part.losses == whole.losses[2:]
        assert distance(part.adapters, whole.adapters) == 0


def test_tensor_parallel_adapters_train_like_one_process_and_resume_exactly(tmp_path: Path) -> None:
    """Those of what a block ends with have their second matrix whole."""
    base, tensor = replace(plan(), model_config=DEEP_LLAMA), {"tensor_parallel_size": 2}
    plans = {
        "replicas": divided(base, **tensor),
        "shards": divided(base, **tensor, zero_stage=3, recompute="full"),
    }
    checkpoint = "checkpoints/NAME/step-2"
    save = ("--no-dropout", "--save-every", "2", "--output", "FOLDER/checkpoints/NAME")
    again = ("--no-dropout", "--resume", f"FOLDER/{checkpoint}")
    reference = train(DEEP_LLAMA, adapt=lambda model: adapted(model, MODULES["llama"]).train())
    for whole in launch_several(tmp_path, plans, *save, again=again).values():
        assert_parity(whole, reference)
        part = Run(whole.folder / "again", whole.process)
        assert part.losses == whole.losses[2:]
        assert distance(part.adapters, whole.adapters) == 0


def test_saved_adapters_load_back_and_the_readmes_line_merges_them(tmp_path: Path) -> None:
    base = weights_of(LLAMA, tmp_path / "llama")
    launched = launch(tmp_path, plan(), "--no-dropout", *base).finish()
    model, merged = tmp_path / "model", tmp_path / "merged"
    write_tokenizer(model)  # which a run with data saves there
    text = (tmp_path / "README.md").read_text()
    lines = re.findall(r"^python (-c .+)$", text, re.MULTILINE)
    paste = "\n".join(f"{sys.executable} {line}" for line in lines)
    command = paste.replace("checkpoints/final", str(model)).replace("MERGED", str(merged))
    run(tmp_path, "bash", "-ec", command).finish()
    assert len(transformers.AutoTokenizer.from_pretrained(merged)) == WORDS + 3
    loaded = peft.PeftModel.from_pretrained(build(LLAMA), str(model))
    auto: Any = transformers.AutoModelForCausalLM
    whole, tokens = auto.from_pretrained(merged), torch.arange(16)[None]
    with torch.no_grad():
        assert torch.allclose(loaded(tokens).logits, whole(tokens).logits, atol=TOLERANCE)
        first = build(LLAMA)(tokens).logits
        assert (whole(tokens).logits - first).abs().max() > 1e-3
    assert launched.losses == pytest.approx(expected("llama", 32).losses, abs=TOLERANCE, rel=0)


@pytest.mark.parametrize("stage", [0, 3])
def test_weights_in_the_configs_dtype_train_close_to_one_process_in_fp32(
    stage: int, tmp_path: Path
) -> None:
    half = replace(ACCUMULATED, config_dtype="bfloat16", precision="bf16-mixed")
    spec = with_layout(half, model_config=LLAMA, zero_stage=stage)
    run = launch(tmp_path, spec, "--no-dropout").finish()
    assert run.losses == pytest.approx(in_fp32("llama").losses, abs=0.02)
    assert {weight.dtype for weight in run.weights.values()} == {torch.bfloat16}
