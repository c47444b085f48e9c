"""Adapters and 16-bit weights in the files: what is planned is written, the rest is refused."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_specs import EVERY, refusal, refused, script_of, with_layout
from run_specs import written as files_written
from script_checks import FORMAT, HOSTILE, LINT
from test_generate import LLAMA, SPEC

from planner import answers
from planner.generate import RunSpec, generate
from planner.generate.run_spec import Adapters
from planner.generate.write_bundle import bundle_files, write_targets
from planner.request.schema import parse_request

LORA = Adapters(rank=8, alpha=16.0, dropout=0.05, modules=("q_proj", "v_proj"), base_bits=16)
QLORA = replace(LORA, base_bits=4, has_double_quantization=True)
PLAN = replace(SPEC, model_config=LLAMA, adapters=LORA)
TINYLLAMA = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"


def variants() -> Iterator[RunSpec]:
    for framework, bits, is_fp32, precision, stage, recompute in product(
        ("torch", "deepspeed"),
        (16, 8, 4),
        (True, False),
        ("fp32", "fp16-mixed", "bf16-mixed", "bf16"),
        range(4),
        ("none", "full"),
    ):
        adapters = replace(LORA, base_bits=bits, is_fp32=is_fp32)
        layout: dict[str, Any] = {"zero_stage": stage, "recompute": recompute}
        spec = replace(PLAN, framework=framework, adapters=adapters, precision=precision)
        yield with_layout(spec, **layout)
    for framework, stage in product(("torch", "deepspeed"), range(4)):
        for task, kind in (("seq2seq-lm", "t5"), ("image-classification", "vit")):
            spec = replace(SPEC, framework=framework, task=task, model_config={"model_type": kind})
            yield with_layout(spec, zero_stage=stage)


def test_every_variant_is_formatted_and_linted_python(tmp_path: Path) -> None:
    scripts: set[str] = set()
    for spec in variants():
        targets = ("torchrun", "trainer") if spec.framework == "torch" else ("trainer",)
        if refused(spec, targets).keys() != set(targets):
            files = files_written(spec, targets)
            scripts |= {text for name, text in files.items() if name.endswith(".py")}
    assert len(scripts) > 50
    for number, text in enumerate(scripts):
        ast.parse(text)
        (tmp_path / f"{number}.py").write_text(text, encoding="utf-8")
    for command in (FORMAT, LINT):
        done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", HOSTILE)
def test_names_of_modules_stay_texts(text: str) -> None:
    spec = replace(PLAN, adapters=replace(LORA, modules=(text,)))
    files = generate(spec, ["torchrun", "trainer"])
    assert yaml.safe_load(files["trainer/sft.yaml"])["lora_target_modules"] == [text]
    script = files["torchrun/settings.py"]
    (lora,) = (
        node.value
        for node in ast.parse(script).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LORA"
    )
    assert lora is not None
    assert ast.literal_eval(lora)["target_modules"] == [text]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"synchronize_every": 4}, "average the frozen weights too"),
        (
            {
                "model_config": {"model_type": "mixtral"},
                "adapters": replace(LORA, modules=("q_proj", "w1")),
            },
            "train the experts too",
        ),
        (
            {"adapters": replace(LORA, is_fp32=False), "precision": "fp16-mixed"},
            "needs adapters in fp32",
        ),
        ({"adapters": replace(LORA, base_bits=8), "zero_stage": 3}, "not bitsandbytes' 8-bit"),
        (
            {
                "adapters": replace(LORA, base_bits=8),
                "framework": "deepspeed",
                "zero_stage": 2,
            },
            "not bitsandbytes' 8-bit",
        ),
        (
            {"adapters": None, "config_dtype": "float16", "precision": "fp16-mixed"},
            "needs weights in fp32",
        ),
    ],
)
def test_what_is_not_trained_as_planned_is_refused(change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(with_layout(PLAN, **change), "trainer")


def test_torchrun_divides_adapters_by_tensor_parallelism_alone() -> None:
    for size, reason in (("tensor", ""), ("pipeline", "by tensor parallelism alone")):
        spec = with_layout(PLAN, **{f"{size}_parallel_size": 2, "gradient_accumulation_steps": 16})
        said = refusal(spec, "torchrun")
        assert reason in said
        assert bool(said) == bool(reason)


def test_trainer_does_not_shard_16_bit_weights_that_it_trains() -> None:
    """Accelerate would make fp32 of them."""
    for change in ({"config_dtype": "bfloat16", "adapters": None}, {"adapters": LORA}):
        adapters = replace(LORA, is_fp32=False) if change["adapters"] else None
        spec = with_layout(PLAN, **{**change, "adapters": adapters, "zero_stage": 3})
        assert "makes fp32" in refusal(spec, "trainer")
        assert not refusal(spec, "torchrun")


def files_of(recipe: dict[str, Any], **strategy: Any) -> dict[str, str]:
    payload: dict[str, Any] = {"model": TINYLLAMA, "cluster": {"gpus_per_node": 2}}
    payload |= {"recipe": recipe, "strategy": {"zero_stage": 0, **strategy}}
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)


def test_a_plan_with_adapters_is_written_with_its_numbers() -> None:
    lora = {"rank": 32, "alpha": 48.0, "targets": ["q_proj", "o_proj"], "dropout": 0.1}
    files = files_of({"method": "lora", "lora": lora})
    script = script_of(files, "torchrun")
    for line in ('"r": 32,', '"lora_alpha": 48,', '"lora_dropout": 0.1,', '"o_proj",'):
        assert line in script
    assert '"dtype": torch.bfloat16' in script
    settings = yaml.safe_load(files["trainer/sft.yaml"])
    assert [settings[f"lora_{name}"] for name in ("r", "alpha", "dropout")] == [32, 48, 0.1]
    assert settings["lora_target_modules"] == ["q_proj", "o_proj"]
    for target in ("torchrun", "trainer"):
        requirements = files[f"{target}/requirements.txt"].split()
        assert "peft>=0.21.2,<1" in requirements
        assert not any(line.startswith("bitsandbytes") for line in requirements)
    assert "merge_and_unload" in files["README.md"]


def test_4_bit_weights_are_stored_as_what_fsdp_gathers() -> None:
    recipe = {"method": "qlora", "lora": {"double_quantization": True}}
    replicated, sharded = files_of(recipe), files_of(recipe, zero_stage=3)
    for files in (replicated, sharded):
        assert yaml.safe_load(files["trainer/sft.yaml"])["use_bnb_nested_quant"] is True
        assert "bitsandbytes>=0.50.2,<1" in files["trainer/requirements.txt"]
    assert "quant_storage" not in replicated["trainer/sft.yaml"]
    assert "bnb_4bit_quant_storage: bfloat16" in sharded["trainer/sft.yaml"]
    assert "ram_efficient_loading: false" in sharded["trainer/sft.yaml"]


def test_weights_in_the_configs_dtype_are_loaded_in_it() -> None:
    files = files_of({"weights_dtype": "config"})
    assert '"dtype": torch.bfloat16' in script_of(files, "torchrun")
    assert "peft" not in files["torchrun/requirements.txt"]
    assert "Weights are in bfloat16, as the model's config says" in files["README.md"]


def test_torchrun_leaves_quantised_weights_to_the_others() -> None:
    files = files_of({"method": "qlora"})
    assert "torchrun/train.py" not in files
    assert "No files for **torchrun**: adapters beside quantised weights" in files["README.md"]


def test_torchtitan_says_why_it_has_no_adapters(tmp_path: Path) -> None:
    payload = {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"method": "lora", "framework": "torchtitan"},
    }
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    written = write_targets(
        tmp_path, plan, answers.answer_plan(resolved, plan, None), EVERY, force=True
    )
    assert written.targets == ()
    assert "adapters" in written.unwritten["torchtitan"]
