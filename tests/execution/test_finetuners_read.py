"""config.yaml of axolotl and LLaMA-Factory as their own classes read it: what the plan says, and nothing of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import TINY, run, write
from run_specs import refusal, with_layout
from script_checks import HOSTILE

from planner.domain.strategy import Recompute
from planner.generate import RunSpec, generate
from planner.generate.run_spec import Adapters

SHELLCHECK = Path(sys.executable).parent / "shellcheck"
READERS = Path(__file__).parent / "configured"
CONFIG = json.loads(Path("data/models/meta-llama--Llama-3.1-8B.json").read_text())["config"]
LORA = Adapters(rank=16, alpha=32.0, dropout=0.05, modules=("q_proj", "v_proj"), base_bits=16)
QLORA = replace(LORA, base_bits=4, has_double_quantization=True)
BASE = replace(
    TINY,
    model="meta-llama/Llama-3.1-8B",
    model_config=CONFIG,
    is_pretrained=True,
    gpus_per_node=8,
    sequence_length=4096,
    micro_batch_size=2,
    gradient_accumulation_steps=4,
    precision="bf16-mixed",
    optimizer="adamw-fused",
    loss="fused",
)


def plan(**changes: Any) -> RunSpec:
    spec = with_layout(BASE, **changes)
    size = spec.micro_batch_size * spec.gradient_accumulation_steps * spec.data_parallel_size
    return replace(spec, global_batch_size=size)


def of_deepspeed(**changes: Any) -> RunSpec:
    return plan(**{"framework": "deepspeed", "optimizer": "adamw", **changes})


HYBRID = {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 4, "zero_stage": 3}
BOTH = {
    "lora": plan(adapters=LORA, run_steps=79),
    "lora-fp16": plan(adapters=LORA, precision="fp16-mixed"),
    "lora-half": plan(adapters=replace(LORA, is_fp32=False)),
    "lora-padded": plan(adapters=LORA, padding_share=0.3, attention="flash"),
    "lora-8-bit": plan(adapters=replace(LORA, base_bits=8), optimizer="paged-adamw-8bit"),
    "qlora": plan(adapters=QLORA, gpus_per_node=1, recompute="full", loss="standard"),
    "qlora-packed": plan(adapters=replace(QLORA, has_double_quantization=False), attention="flash"),
    "full-flash": plan(config_dtype="bfloat16", attention="flash", loss="standard", compile=True),
    "full-fp32": plan(precision="fp32", attention="eager", loss="standard", optimizer="sgd"),
    "full-tf32": plan(precision="tf32", nodes=2, zero_stage=3),
    "deepspeed-1": of_deepspeed(zero_stage=1),
    "deepspeed-2": of_deepspeed(zero_stage=2, offload="optimizer", recompute="full"),
    "deepspeed-3": of_deepspeed(zero_stage=3, adapters=LORA),
    "deepspeed-qlora": of_deepspeed(zero_stage=3, adapters=QLORA, recompute="full"),
    "deepspeed-fp16": of_deepspeed(zero_stage=2, precision="fp16-mixed"),
}
PLANS: Mapping[str, Mapping[str, RunSpec]] = {
    "axolotl": BOTH
    | {
        "lora-sharded": plan(adapters=LORA, zero_stage=2),
        "qlora-sharded": plan(adapters=QLORA, zero_stage=3, recompute="full"),
        "full-sharded": plan(config_dtype="bfloat16", zero_stage=3, recompute="full"),
        "full-hybrid": plan(config_dtype="bfloat16", **HYBRID),
        "full-offloaded": plan(
            config_dtype="bfloat16", zero_stage=3, offload="optimizer+parameters"
        ),
        "full-context": plan(
            config_dtype="bfloat16",
            zero_stage=3,
            context_parallel_size=2,
            micro_batch_size=1,
            attention="flash",
        ),
    },
    "llama-factory": BOTH
    | {
        "full": plan(loss="standard"),
        "full-sharded": plan(zero_stage=2, recompute="full"),
        "full-offloaded": plan(zero_stage=3, offload="optimizer+parameters"),
        "full-half": plan(precision="bf16", zero_stage=3),
        "full-fp16": plan(precision="fp16-mixed"),
    },
}
OPTIMIZERS = {"sgd": "sgd", "paged-adamw-8bit": "paged_adamw_8bit"}
CASES = [(target, name) for target, plans in PLANS.items() for name in plans]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """What both tools make of all plans, each in one process: their imports take seconds."""
    root = tmp_path_factory.mktemp("plans")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for target, plans in PLANS.items():
        folders = [write(root / target / name, plans[name], target) / target for name in plans]
        jobs = {
            "axolotl": [
                [str(folder), spec.world_size]
                for folder, spec in zip(folders, plans.values(), strict=True)
            ],
            "llama-factory": [*map(str, folders)],
        }
        answers = root / f"{target}.json"
        script = READERS / f"read_{target.replace('-', '_')}.py"
        variables = {"ANSWERS": str(answers), "DISABLE_VERSION_CHECK": "1"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", script],
            env={**os.environ, **variables},
            input=json.dumps(jobs[target]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        read = json.loads(answers.read_text())
        found |= {(target, name): each for name, each in zip(plans, read, strict=True)}
    return found


def config_of(spec: RunSpec, target: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(generate(spec, [target])[f"{target}/config.yaml"])
    return found


@pytest.mark.parametrize(("target", "name"), CASES)
def test_the_target_writes_the_plan_and_its_tool_reads_it(
    target: str, name: str, answers: dict[tuple[str, str], dict[str, Any]]
) -> None:
    assert not refusal(PLANS[target][name], target)
    assert "error" not in answers[target, name], answers[target, name]


def assert_holds(said: Mapping[str, Any], **expected: Any) -> None:
    assert {key: said[key] for key in expected} == expected


def run_of(spec: RunSpec) -> tuple[int | None, float]:
    return (spec.run_steps or None, 1.0)


@pytest.mark.parametrize("name", PLANS["axolotl"])
def test_axolotl_trains_the_plan(name: str, answers: dict[tuple[str, str], dict[str, Any]]) -> None:
    spec, answer = PLANS["axolotl"][name], answers["axolotl", name]
    said, is_packed = answer["settings"], spec.padding_share == 0
    assert answer["unknown"] == []
    assert_holds(
        said,
        base_model=spec.model,
        micro_batch_size=spec.micro_batch_size,
        gradient_accumulation_steps=spec.gradient_accumulation_steps,
        sequence_len=spec.sequence_length,
        sample_packing=is_packed,
        pad_to_sequence_len=True,
        bf16=spec.precision == "bf16-mixed",
        fp16=spec.precision == "fp16-mixed",
        tf32=spec.precision == "tf32",
        gradient_checkpointing=spec.recompute == Recompute.FULL,
        activation_offloading=False,
        layer_offloading=False,
        torch_compile=spec.compile,
        attn_implementation={"sdpa": "sdpa", "eager": "eager"}.get(
            spec.attention, "flash_attention_2"
        ),
        sdpa_varlen=True if spec.attention == "sdpa" and is_packed else None,
        optimizer=OPTIMIZERS.get(spec.optimizer, "adamw_torch_fused"),
        lr_scheduler="cosine",
        cosine_min_lr_ratio=0.1,
        max_grad_norm=1.0,
        tensor_parallel_size=1,
        context_parallel_size=spec.context_parallel_size,
        val_set_size=0.0,
        auto_resume_from_checkpoints=True,
    )
    assert (said["max_steps"], said["num_epochs"]) == run_of(spec)
    is_fused = spec.loss == "fused"
    assert bool(said["liger_fused_linear_cross_entropy"]) == is_fused == bool(said["plugins"])
    assert not said["chunked_cross_entropy"]
    is_sharded = spec.shards_gradients and spec.framework == "torch"
    assert (said["fsdp_config"] is not None) == is_sharded
    assert said["deepspeed"] == ("ds_config.json" if spec.framework == "deepspeed" else None)
    if is_sharded:
        assert str(said["fsdp_version"]) == "2"
        assert_holds(
            said["fsdp_config"],
            reshard_after_forward=spec.zero_stage == 3,
            offload_params=spec.offloads_optimizer,
            activation_checkpointing=False,
            cpu_ram_efficient_loading=not (spec.adapters and spec.adapters.is_quantised),
        )
        sizes = {
            "dp_shard_size": spec.data_parallel_shard_size,
            "dp_replicate_size": spec.data_parallel_replicate_size,
            "cp_size": spec.context_parallel_size,
        }
        assert answer["mesh"] == {axis: size for axis, size in sizes.items() if size > 1}
    adapters = spec.adapters
    if adapters is None:
        assert_holds(said, adapter=None, load_in_8bit=False, load_in_4bit=False)
        return
    assert_holds(
        said,
        adapter="qlora" if adapters.base_bits == 4 else "lora",
        load_in_8bit=adapters.base_bits == 8,
        load_in_4bit=adapters.base_bits == 4,
        lora_r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        lora_target_modules=["q_proj", "v_proj"],
        peft_autocast_adapter_dtype=adapters.is_fp32,
        lora_mlp_kernel=False,
        lora_qkv_kernel=False,
        lora_o_kernel=False,
        lora_embedding_kernel=False,
    )
    if adapters.base_bits == 4:
        double = said["bnb_config_kwargs"]["bnb_4bit_use_double_quant"]
        assert double == adapters.has_double_quantization


@pytest.mark.parametrize("name", PLANS["llama-factory"])
def test_llama_factory_trains_the_plan(
    name: str, answers: dict[tuple[str, str], dict[str, Any]]
) -> None:
    spec, answer = PLANS["llama-factory"][name], answers["llama-factory", name]
    model, training, finetuning = answer["model"], answer["training"], answer["finetuning"]
    is_packed, is_flash = spec.padding_share == 0, spec.attention == "flash"
    assert_holds(
        model,
        model_name_or_path=spec.model,
        flash_attn={"eager": "disabled", "flash": "fa2"}.get(spec.attention, "sdpa"),
        disable_gradient_checkpointing=spec.recompute != Recompute.FULL,
        enable_liger_kernel=spec.loss == "fused",
        upcast_layernorm=False,
        upcast_lmhead_output=False,
        block_diag_attn=is_packed and is_flash,
    )
    assert_holds(
        answer["data"],
        # Of a packed sequence one token less: collating rounds it up to a multiple of 8 again.
        cutoff_len=spec.sequence_length - is_packed,
        packing=is_packed,
        neat_packing=is_packed and is_flash,
        dataset=["chat"],
    )
    assert_holds(
        training,
        per_device_train_batch_size=spec.micro_batch_size,
        gradient_accumulation_steps=spec.gradient_accumulation_steps,
        bf16=spec.precision == "bf16-mixed",
        fp16=spec.precision == "fp16-mixed",
        tf32=spec.precision == "tf32",
        torch_compile=spec.compile,
        max_grad_norm=1.0,
        optim=OPTIMIZERS.get(spec.optimizer, "adamw_torch_fused"),
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.1},
        max_steps=spec.run_steps or -1,
        resume_from_checkpoint=None,
    )
    assert spec.run_steps or training["num_train_epochs"] == 1.0
    assert answer["stage"] == (spec.zero_stage if spec.framework == "deepspeed" else None)
    is_half = name in {"full-flash", "full-half", "lora-half"}
    assert finetuning["pure_bf16"] == is_half
    adapters = spec.adapters
    assert finetuning["finetuning_type"] == ("lora" if adapters else "full")
    if adapters:
        assert_holds(
            finetuning,
            lora_rank=16,
            lora_alpha=32,
            lora_dropout=0.05,
            lora_target=["q_proj", "v_proj"],
        )
        bits = adapters.base_bits if adapters.is_quantised else None
        assert model["quantization_bit"] == bits
        assert bits is None or model["double_quantization"] == adapters.has_double_quantization


def test_llama_factory_finds_each_kind_of_data(
    answers: dict[tuple[str, str], dict[str, Any]],
) -> None:
    samples = answers["llama-factory", "lora"]["samples"]
    for name, answer in (("chat", ["A"]), ("pairs", ["A"]), ("text", [])):
        assert [each["content"] for each in samples[name]["_prompt"]] == ["Q"]
        assert [each["content"] for each in samples[name]["_response"]] == answer


@pytest.mark.parametrize("name", ["full-sharded", "full-offloaded", "full-half"])
def test_llama_factory_is_sharded_by_accelerate(name: str) -> None:
    spec = PLANS["llama-factory"][name]
    said = yaml.safe_load(generate(spec, ["llama-factory"])["llama-factory/accelerate.yaml"])
    assert_holds(
        said,
        distributed_type="FSDP",
        num_processes=8,
        mixed_precision="no" if name == "full-half" else "bf16",
    )
    assert_holds(
        said["fsdp_config"],
        fsdp_version=2,
        fsdp_reshard_after_forward=spec.zero_stage == 3,
        fsdp_offload_params=name == "full-offloaded",
        fsdp_activation_checkpointing=False,
    )


@pytest.mark.parametrize("target", PLANS)
def test_no_text_escapes_its_place(target: str, tmp_path: Path) -> None:
    names = {"axolotl": "base_model", "llama-factory": "model_name_or_path"}
    for spec in (BOTH["lora"], BOTH["full-tf32"]):
        quiet = generate(spec, [target])
        for number, text in enumerate(HOSTILE):
            files = generate(replace(spec, plan_summary=text, model=text, revision=text), [target])
            config = yaml.safe_load(files[f"{target}/config.yaml"])
            assert config[names[target]] == text or "\ud800" in text
            assert config.keys() == config_of(spec, target).keys()
            for name in ("requirements.txt", "dataset_info.json"):
                assert files.get(f"{target}/{name}") == quiet.get(f"{target}/{name}")
            script = tmp_path / f"{spec.nodes}-{number}.sh"
            script.write_text(files[f"{target}/launch.sh"])
    subprocess.run([SHELLCHECK, *sorted(tmp_path.glob("*.sh"))], check=True)


COMMANDS = {
    ("axolotl", "lora"): (
        "axolotl",
        "train config.yaml --launcher torchrun --max-steps 5 -- --standalone --nproc_per_node=8",
    ),
    ("llama-factory", "lora"): ("llamafactory-cli", "train config.yaml --max-steps 5"),
    ("llama-factory", "full-sharded"): (
        "accelerate",
        "launch --config_file accelerate.yaml -m llamafactory.launcher config.yaml --max-steps 5",
    ),
}


@pytest.mark.parametrize(("target", "name"), COMMANDS)
def test_the_script_starts_the_tool_with_the_configuration(
    target: str, name: str, tmp_path: Path
) -> None:
    program, arguments = COMMANDS[target, name]
    folder = write(tmp_path / "a folder", PLANS[target][name], target)
    tool = tmp_path / "bin" / program
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$PWD $FORCE_TORCHRUN $NPROC_PER_NODE: $*" > "$RECORD"\n')
    tool.chmod(0o755)
    record = tmp_path / "record"
    variables = {"RECORD": str(record), "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    run(folder, "bash", f"{target}/launch.sh", "--max-steps", "5", **variables).finish()
    own = "1 8" if program == "llamafactory-cli" else " "
    assert record.read_text() == f"{folder / target} {own}: {arguments}\n"
