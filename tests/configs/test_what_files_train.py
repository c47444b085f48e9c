"""What files say of adapters and of training beside the Trainer's words: axolotl, LLaMA-Factory, TRL, PEFT."""

from typing import Any

import pytest

from planner.configs.adapters import adapter_fields
from planner.configs.found import Setup
from planner.configs.jobs import method_of
from planner.configs.layout import recipe_fields, strategy_fields
from planner.configs.meaning import model_names
from planner.configs.recognise import recognise

FACTORY = """model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
finetuning_type: lora
lora_rank: 8
lora_target: all
cutoff_len: 2048
flash_attn: fa2
output_dir: saves
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
AXOLOTL = """base_model: meta-llama/Llama-3.1-8B
load_in_4bit: true
adapter: qlora
sequence_len: 4096
lora_r: 32
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
output_dir: o
optimizer: paged_adamw_32bit
flash_attention: true
liger_fused_linear_cross_entropy: true
bf16: true
"""
PEFT = """
from peft import LoraConfig
from transformers import BitsAndBytesConfig
from trl import SFTConfig

bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
peft_config = LoraConfig(r=64, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
args = SFTConfig("out", max_length=1024, gradient_checkpointing=True)
"""
TRL = (
    "accelerate launch --num_processes 4 sft.py --model_name_or_path gpt2 --output_dir o"
    " --use_peft --lora_r 16 --lora_target_modules all-linear --per_device_train_batch_size 2"
)


def setup(text: str, file: str) -> Setup:
    return Setup(found=recognise(text, file))


@pytest.mark.parametrize(
    ("text", "file", "method", "lora"),
    [
        (FACTORY, "a.yaml", "lora", {"rank": 8, "targets": "all-linear"}),
        (
            FACTORY.replace("lora_target: all", "lora_target: q_proj,v_proj\nquantization_bit: 8"),
            "a.yaml",
            "qlora",
            {"bits": 8, "rank": 8, "targets": ["q_proj", "v_proj"]},
        ),
        (AXOLOTL, "a.yml", "qlora", {"bits": 4, "rank": 32, "targets": "all-linear"}),
        (
            PEFT,
            "a.py",
            "qlora",
            {
                "bits": 4,
                "rank": 64,
                "targets": ["q_proj", "v_proj"],
                "double_quantization": True,
            },
        ),
        (PEFT.replace("load_in_4bit=True, ", ""), "a.py", "lora", None),
        (TRL, "command line", "lora", {"rank": 16, "targets": "all-linear"}),
    ],
)
def test_adapters_are_read(text: str, file: str, method: str, lora: dict[str, Any] | None) -> None:
    fields = adapter_fields(setup(text, file))
    assert fields["method"] == method
    if lora is not None:
        assert fields["lora"] == lora


@pytest.mark.parametrize("text", [FACTORY.replace(": lora", ": full"), "output_dir: o\nbf16: true"])
def test_full_training_has_none(text: str) -> None:
    assert adapter_fields(setup(text, "a.yaml")) == {}


def test_what_is_not_modelled_is_named() -> None:
    found = method_of(setup(FACTORY.replace(": lora", ": freeze"), "a.yaml"))
    assert found is not None
    assert (found.name, found.text) == ("finetuning_type", "freeze")
    assert method_of(setup(FACTORY, "a.yaml")) is None


def test_axolotls_words_are_the_runs() -> None:
    of = setup(AXOLOTL, "a.yml")
    assert [each.text for each in model_names(of)] == ["meta-llama/Llama-3.1-8B"]
    recipe = recipe_fields(of)
    assert recipe["sequence_length"] == 4096
    assert recipe["optimizer"] == "paged-adamw"
    assert (recipe["attention"], recipe["loss"]) == ("flash", "fused")
    layout = strategy_fields(of, 1, 1)
    assert (layout["micro_batch_size"], layout["gradient_accumulation_steps"]) == (2, 4)
    sharded = AXOLOTL + "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    assert strategy_fields(setup(sharded, "a.yml"), 8, 1)["zero_stage"] == 3


def test_llama_factory_recomputes_unless_told_otherwise() -> None:
    assert strategy_fields(setup(FACTORY, "a.yaml"), 1, 1)["recompute"] == "full"
    kept = setup(f"{FACTORY}disable_gradient_checkpointing: true\n", "a.yaml")
    assert strategy_fields(kept, 1, 1)["recompute"] == "none"
    assert recipe_fields(kept)["attention"] == "flash"
