"""PEFT trains the linears that the planner counts, by the names that the launch files hold."""

from typing import Any

import peft
import pytest
import torch
import transformers
from conftest import JobMaker

from planner.catalog import records
from planner.parallel import adapters
from planner.parallel.lora import module_names

MODELS = (
    *("openai-community/gpt2", "distilbert/distilgpt2", "facebook/opt-125m"),
    *("meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2-0.5B", "Qwen/Qwen3-0.6B"),
    *("google/gemma-2b", "google/gemma-2-2b", "google/gemma-3-1b-it", "microsoft/phi-2"),
    *("microsoft/Phi-3-mini-4k-instruct", "bigscience/bloom-560m", "tiiuae/falcon-7b"),
    *("EleutherAI/gpt-j-6b", "EleutherAI/gpt-neo-125m", "EleutherAI/pythia-70m-deduped"),
    *("mosaicml/mpt-7b", "bigcode/gpt_bigcode-santacoder", "bigcode/starcoder2-7b"),
    *("allenai/OLMo-2-1124-7B", "HuggingFaceTB/SmolLM3-3B", "ibm-granite/granite-3.1-2b-base"),
    *("mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen1.5-MoE-A2.7B"),
    "openai/gpt-oss-20b",
)
ATTENTION = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
RANK = 4
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False"),
    pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated"),
]


def shallow(name: str) -> dict[str, Any]:
    """Return the config of a model with four of its layers."""
    record = records.model(name)
    assert record is not None
    config: dict[str, Any] = {**record.config, "_name_or_path": name}
    few: dict[str, Any] = {key: 4 for key in LAYERS if key in config}
    if "attention_types" in config:
        few["attention_types"] = [[["global", "local"], 2]]
    if "layer_types" in config:
        few["layer_types"] = config["layer_types"][:4]
    return config | few


def trained_by_peft(job: Any) -> int:
    """Return what PEFT leaves to be trained beside a model without weights."""
    auto: Any = transformers.AutoModelForCausalLM
    config: Any = transformers.AutoConfig
    with torch.device("meta"):
        model = auto.from_config(config.for_model(**job.model.config))
    names = module_names(job.model.model_type, job.recipe.lora.targets)
    lora = peft.LoraConfig(r=RANK, target_modules=list(names), task_type="CAUSAL_LM")
    both: Any = peft.get_peft_model(model, lora, low_cpu_mem_usage=True)
    return sum(p.numel() for p in both.parameters() if p.requires_grad)


def lora_job(make_job: JobMaker, model: str, **lora: Any) -> Any:
    return make_job(
        shallow(model), gpus=8, recipe={"method": "lora", "lora": {"rank": RANK, **lora}}
    )


@pytest.mark.parametrize("model", MODELS)
def test_peft_trains_what_is_counted(model: str, make_job: JobMaker) -> None:
    for wish in ({}, {"targets": "all-linear"}):
        job = lora_job(make_job, model, **wish)
        assert trained_by_peft(job) == adapters.trainable(job)[0], wish


@pytest.mark.parametrize("targets", [["o_proj"], ["fc_out"], ["c_proj"], ["attn.c_proj"]])
def test_one_of_two_linears_of_a_name_can_be_meant(targets: list[str], make_job: JobMaker) -> None:
    job = lora_job(make_job, "openai-community/gpt2", targets=targets)
    assert trained_by_peft(job) == adapters.trainable(job)[0]


@pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys did not match")
@pytest.mark.parametrize(
    ("model", "attention"),
    [
        ("deepseek-ai/DeepSeek-V3", ATTENTION),
        ("zai-org/GLM-4.5", ["q_proj", "o_proj"]),
        ("Qwen/Qwen3-30B-A3B", ["q_proj", "o_proj"]),
    ],
)
def test_names_that_reach_experts_are_known(
    model: str, attention: list[str], make_job: JobMaker
) -> None:
    job = lora_job(make_job, model, targets=attention)
    assert trained_by_peft(job) == adapters.trainable(job)[0]
    assert not reaches_experts(job)
    job = lora_job(make_job, model, targets="all-linear")
    counted = adapters.trainable(job)[0]
    assert reaches_experts(job) == (trained_by_peft(job) != counted)


def reaches_experts(job: Any) -> bool:
    kind = job.model.model_type
    names = module_names(kind, job.recipe.lora.targets)
    return any(records.is_expert_to_peft(kind, name) for name in names)
