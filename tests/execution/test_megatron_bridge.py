"""Megatron Bridge's script names what its version has; the model's settings are megatron-core's."""

import ast
import dataclasses
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import LLAMA, TINY
from run_specs import with_launchers, with_layout

from planner.generate import RunSpec, generate
from planner.generate.run_spec import Adapters

with warnings.catch_warnings():  # it misses Transformer Engine and Apex, which need a GPU
    warnings.simplefilter("ignore")
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.transformer import TransformerConfig

FACTS = tomllib.loads((Path(__file__).parents[1] / "facts" / "megatron_bridge.toml").read_text())
MIXTURE = LLAMA | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2}
OF_CORE = {"DistributedDataParallelConfig": DistributedDataParallelConfig}


def plan(**layout: Any) -> RunSpec:
    adapters = Adapters(
        rank=8,
        alpha=16.0,
        dropout=0.1,
        modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        base_bits=16,
    )
    options: dict[str, Any] = {
        "framework": "megatron",
        "precision": "bf16-mixed",
        "model_config": LLAMA,
        "is_pretrained": True,
        "adapters": adapters,
    }
    return with_layout(TINY, **(options | layout))


PLANS = {
    "ddp": plan(),
    "tensor": plan(
        tensor_parallel_size=2,
        sequence_parallel=True,
        precision="fp8",
        gradient_accumulation_steps=2,
    ),
    "experts": plan(model_config=MIXTURE, expert_parallel_size=2, zero_stage=1, recompute="full"),
    "pipeline": plan(
        pipeline_parallel_size=2,
        layers_per_stage=(1, 1),
        gradient_accumulation_steps=2,
        micro_batch_size=8,
        recompute="selective",
    ),
}


def script(spec: RunSpec) -> ast.Module:
    return ast.parse(generate(spec, ["megatron-bridge"])["megatron-bridge/finetune.py"])


def literal(tree: ast.Module, name: str) -> Any:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return ast.literal_eval(node.value)
    raise AssertionError(name)


@pytest.mark.parametrize("name", PLANS)
def test_every_name_argument_and_field_is_its_versions(name: str) -> None:
    tree, arguments = script(PLANS[name]), {}
    for node in ast.walk(tree):
        module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.startswith("megatron.bridge"):
            for imported in node.names:
                arguments[imported.name] = FACTS[module][imported.name]
    arguments |= FACTS["megatron.bridge.AutoBridge"]
    arguments |= {
        known: [field.name for field in dataclasses.fields(of)] for known, of in OF_CORE.items()
    }
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            assert isinstance(function, ast.Attribute | ast.Name)
            known = function.attr if isinstance(function, ast.Attribute) else function.id
            if known in arguments:
                called.add(known)
                given = {keyword.arg for keyword in node.keywords if keyword.arg}
                assert given <= set(arguments[known]), known
    assert called >= {"ConfigContainer", "CheckpointConfig", "finetune", "import_ckpt"}
    lora = literal(tree, "LORA")
    assert set(lora) <= set(arguments["CanonicalLoRA"])
    assert set(lora["target_modules"]) == set(FACTS["targets"]["CanonicalLoRA"])


@pytest.mark.filterwarnings("ignore::UserWarning")  # of its defaults, and of what needs a GPU
@pytest.mark.parametrize("name", PLANS)
def test_the_models_settings_are_fields_of_megatron_core(name: str) -> None:
    spec = PLANS[name]
    settings = literal(script(spec), "MODEL_SETTINGS")
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    assert set(settings) - fields == {"seq_length"}
    assert settings["tensor_model_parallel_size"] == spec.tensor_parallel_size
    assert settings["pipeline_model_parallel_size"] == spec.pipeline_parallel_size
    assert settings.get("expert_model_parallel_size", 1) == spec.expert_parallel_size
    config = {k: v for k, v in settings.items() if k in fields}
    experts = {"num_moe_experts": 4} if "expert_model_parallel_size" in settings else {}
    whole = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        add_bias_linear=False,
        pipeline_dtype=torch.bfloat16,
        **config,
        **experts,
    )
    assert whole.recompute_granularity == settings.get("recompute_granularity")


def test_precisions_are_recipes_of_its_version() -> None:
    scaled = [plan(precision="fp8", fp8_recipe=name) for name in ("tensorwise", "mxfp8")]
    for spec in (*PLANS.values(), *scaled):
        text = generate(spec, ["megatron-bridge"])["megatron-bridge/finetune.py"]
        (line,) = (x for x in text.splitlines() if "mixed_precision=" in x)
        assert line.split('"')[1] in FACTS["mixed_precision"]["names"]


def test_it_saves_when_it_is_told_to_end_and_is_given_the_time() -> None:
    files = with_launchers(PLANS["ddp"], ["megatron-bridge"])
    assert "exit_signal_handler=True" in files["megatron-bridge/finetune.py"]
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120" in files["megatron-bridge/launch.sh"]
    assert "scancel --signal=TERM" in files["launchers/slurm.sh"]
    assert "SIGTERM to `launch.sh` saves" in files["README.md"]


def test_the_readme_converts_the_model_first_and_exports_the_adapters_last() -> None:
    readme = generate(PLANS["tensor"], ["megatron-bridge"])["README.md"]
    assert readme.index("python finetune.py --convert") < readme.index("bash launch.sh --data-path")
    assert "--export checkpoints" in readme
