"""What rules of configurations say of other tools, tried on those tools; their keys, against the installed ones."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import ClusterConfig  # type: ignore[import-untyped]
from accelerate.commands.launch import launch_command_parser  # type: ignore[import-untyped]
from accelerate.parallelism_config import ParallelismConfig  # type: ignore[import-untyped]
from accelerate.utils import (  # type: ignore[import-untyped]
    DistributedType,
    FullyShardedDataParallelPlugin,
    PrecisionType,
    constants,
)
from torch.distributed.run import get_args_parser
from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from transformers.models.gpt2 import GPT2PreTrainedModel
from transformers.models.llama import LlamaPreTrainedModel
from transformers.trainer_utils import HubStrategy, IntervalStrategy, SaveStrategy, SchedulerType
from transformers.training_args import OptimizerNames

from planner.catalog.configs import (
    keys_of,
    known_keys,
    launchers,
    layer_classes,
    trainer_fields,
)
from planner.configs.found import Setup
from planner.configs.recognise import recognise
from planner.configs.rules import faults

DEEPSPEED = """
import json, sys
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
said = []
for config in json.load(sys.stdin):
    try:
        DeepSpeedConfig(config)
        said.append("")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
names = sorted({name for key, field in DeepSpeedZeroConfig.model_fields.items() for name in (key, field.alias) if name})
print("ANSWER" + json.dumps([said, names]))
"""


def _zero(**keys: Any) -> dict[str, Any]:
    return {"train_batch_size": 8, "zero_optimization": {"stage": 2, **keys}}


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}, "not equal"),
    (
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 1,
        },
        "not equal",
    ),
    ({"train_micro_batch_size_per_gpu": "auto"}, "Error"),
    (
        {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
        "simultaneously",
    ),
    ({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 4}}, "stage"),
    (
        {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1, "overlap_com": 1}},
        "overlap_com",
    ),
    ({"train_micro_batch_size_per_gpu": 1, "sparse_attention": {}}, "removed"),
    (
        {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": 2, "mics_shard_size": 8},
        },
        "removed",
    ),
    ({"train_batch_size": 8, "zero_optimization": 3}, "must be a mapping"),
    ({"train_batch_size": 8, "zero_optimization": None}, "must be a mapping"),
    ({"train_batch_size": 8, "bf16": True}, "must be a mapping"),
    ({"train_batch_size": "256"}, "TypeError"),
    ({"train_batch_size": 0}, "greater than 0"),
    ({"train_batch_size": -8}, "greater than 0"),
    ({"train_batch_size": 8, "gradient_accumulation_steps": 0}, "ZeroDivisionError"),
    ({"train_batch_size": 8, "communication_data_type": "float16"}, "Supported data types"),
    (_zero(stage="two"), "stage"),
    (_zero(reduce_bucket_size="5e8"), "valid integer"),
    (_zero(reduce_bucket_size=0), "greater than 0"),
    (_zero(reduce_bucket_size=1.5), "valid integer"),
    (_zero(sub_group_size=-1), "greater than or equal to 0"),
    (_zero(stage3_prefetch_bucket_size="5e7"), "valid integer"),
    (_zero(offload_optimizer="cpu"), "valid dictionary"),
    (_zero(offload_optimizer={"device": "gpu"}), "'none', 'cpu' or 'nvme'"),
    (_zero(offload_param={"device": None}), "'none', 'cpu' or 'nvme'"),
    (_zero(offload_param={"devise": "cpu"}), "Extra inputs"),
    (_zero(cpu_offload=False, offload_optimizer={"device": "cpu"}), "together"),
)
TAKEN: tuple[dict[str, Any], ...] = (
    {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
    },
    {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}},
    },
    {"train_micro_batch_size_per_gpu": 1, "anything_at_the_top": 1},
)
"""What rules call wrong though DeepSpeed reads it: it does nothing."""
RIGHT: tuple[dict[str, Any], ...] = (
    {"train_batch_size": 8, "zero_optimization": True},
    {"train_batch_size": 256.0, "bf16": None},
    {"train_batch_size": 8, "communication_data_type": "FP16"},
    _zero(stage="2", reduce_bucket_size="500000000", allgather_bucket_size=0),
    _zero(reduce_bucket_size="auto", sub_group_size=1e9, offload_optimizer=None),
)
"""What looks mistyped, and is read."""


@pytest.fixture(scope="module")
def deepspeed() -> tuple[list[str], list[str]]:
    configs = [*(config for config, _ in REFUSED), *TAKEN, *RIGHT]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DEEPSPEED],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    said, names = json.loads(ended.stdout.rpartition("ANSWER")[2])
    return said, names


def test_deepspeed_refuses_what_rules_call_errors(deepspeed: tuple[list[str], list[str]]) -> None:
    said, names = deepspeed
    for (config, words), told in zip(REFUSED, said, strict=False):
        assert words in told, config
    assert said[len(REFUSED) :] == [""] * len((*TAKEN, *RIGHT))
    assert sorted(known_keys("deepspeed").sections["zero_optimization"]) == names
    assert known_keys("deepspeed").version == version("deepspeed")


@pytest.mark.parametrize("config", [config for config, _ in REFUSED[8:]])
def test_a_mistyped_value_is_found(config: dict[str, Any]) -> None:
    assert _codes(config) & {"CFG004", "CFG005", "CFG090"}


@pytest.mark.parametrize("config", RIGHT)
def test_a_value_that_deepspeed_reads_is_no_fault(config: dict[str, Any]) -> None:
    assert _codes(config) == set()


def _codes(config: dict[str, Any]) -> set[str]:
    text = json.dumps(config)
    return {rule.code for rule, _ in faults(Setup(found=recognise(text, "ds.json")))}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"fp16": True, "bf16": True}, "both|bf16"),
        ({"load_best_model_at_end": True, "save_strategy": "epoch"}, "to match"),
        (
            {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 200},
            "round multiple",
        ),
        ({"dataloader_prefetch_factor": 2}, "dataloader_num_workers > 0"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "requires an eval strategy"),
        ({"fsdp": ["hybrid_shard"]}, "only available with FSDP1"),
        ({"tf32": True}, "requires Ampere"),
    ],
)
def test_the_trainer_refuses_what_rules_call_errors(
    arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        TrainingArguments(output_dir=str(tmp_path), save_steps=500, **arguments)


def test_the_trainer_does_not_read_fsdp_config_without_fsdp(tmp_path: Path) -> None:
    arguments = TrainingArguments(output_dir=str(tmp_path), fsdp_config={"version": 1})
    assert arguments.fsdp_plugin_args is None


@pytest.mark.parametrize("name", sorted({*trainer_fields().renamed, *trainer_fields().removed}))
def test_a_renamed_or_removed_field_is_gone(name: str) -> None:
    assert name not in {field.name for field in dataclasses.fields(TrainingArguments)}


def test_the_fields_and_defaults_are_the_trainers() -> None:
    fields = {
        field.name: field.default for field in dataclasses.fields(TrainingArguments) if field.init
    }
    known = trainer_fields()
    assert known.names == set(fields)
    assert known.version == version("transformers")
    for name, value in known.defaults.items():
        assert getattr(fields[name], "value", fields[name]) == value, name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"reshard_after_forward": "FULL_SHARD"}, "invalid truth value"),
        ({"forward_prefetch": True}, "forward_prefetch"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, "LOCAL_STATE_DICT"),
    ],
)
def test_fsdp_2_refuses_what_rules_call_errors(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FullyShardedDataParallelPlugin(fsdp_version=2, **arguments)


def test_fsdp_2_drops_options_of_fsdp_1() -> None:
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, use_orig_params=True, backward_prefetch="BACKWARD_PRE"
    )
    assert (plugin.use_orig_params, plugin.backward_prefetch) == (None, None)
    assert plugin.reshard_after_forward is True


def test_accelerate_refuses_replicas_beside_tensor_parallelism() -> None:
    with pytest.raises(ValueError, match="pure data parallelism"):
        ParallelismConfig(dp_replicate_size=2, tp_size=4)


def test_accelerates_names_are_those_of_the_record() -> None:
    values = {name.rpartition(".")[2]: key.names for name, key in keys_of("accelerate").items()}
    assert set(values["distributed_type"]) == {each.value for each in DistributedType}
    assert set(values["mixed_precision"]) == set(PrecisionType.list())
    for name in ("sharding_strategy", "auto_wrap_policy", "backward_prefetch", "state_dict_type"):
        assert list(values[f"fsdp_{name}"]) == getattr(constants, f"FSDP_{name.upper()}")


@pytest.mark.parametrize(
    "wrong", [{"auto_wrap_policy": "TRANSFORMER"}, {"sharding_strategy": "FULL_SHRAD"}]
)
def test_accelerate_refuses_names_that_it_does_not_have(wrong: dict[str, str]) -> None:
    with pytest.raises((ValueError, KeyError)):
        FullyShardedDataParallelPlugin(fsdp_version=1, **wrong)


def test_accelerate_refuses_an_unknown_key_at_the_top_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("distributed_type: MULTI_GPU\nmixed_precison: bf16\n")
    with pytest.raises(ValueError, match="unknown keys"):
        ClusterConfig.from_yaml_file(str(file))
    file.write_text(
        "distributed_type: FSDP\nfsdp_config: {fsdp_cpu_offload: true}\nmixed_precision: no\n"
    )
    read = ClusterConfig.from_yaml_file(str(file))
    assert read.mixed_precision is False
    assert "fsdp_cpu_offload" not in {
        each.dest for each in vars(launch_command_parser())["_actions"]
    }


@pytest.mark.parametrize(
    ("name", "parser"), [("torchrun", get_args_parser), ("accelerate", launch_command_parser)]
)
def test_the_flags_are_the_launchers(name: str, parser: Callable[[], Any]) -> None:
    known = launchers()[name]
    actions = [each for each in vars(parser())["_actions"] if each.option_strings]
    switches = {flag for each in actions if each.nargs == 0 for flag in each.option_strings}
    values = {flag for each in actions if each.nargs != 0 for flag in each.option_strings}
    older = {"--use-env", "--use_env"} if name == "torchrun" else set()  # torch.distributed.launch
    assert (set(known.switches), set(known.values)) == (switches | older, values)


@pytest.mark.parametrize(
    ("name", "parser"), [("torchrun", get_args_parser), ("accelerate", launch_command_parser)]
)
def test_a_launcher_refuses_the_flags_of_another(name: str, parser: Callable[[], Any]) -> None:
    for flag in launchers()[name].of_others:
        with pytest.raises(SystemExit):
            parser().parse_args([f"--{flag}", "2", "train.py"])


def test_the_names_that_arguments_take_are_the_trainers() -> None:
    kinds: dict[str, type[Enum]] = {
        "lr_scheduler_type": SchedulerType,
        "optim": OptimizerNames,
        "eval_strategy": IntervalStrategy,
        "save_strategy": SaveStrategy,
        "logging_strategy": IntervalStrategy,
        "hub_strategy": HubStrategy,
    }
    known = {name: tuple(each.value for each in kind) for name, kind in kinds.items()}
    taken = {name: key for name, key in keys_of("trainer").items() if key.type == "argument"}
    assert {name: key.names for name, key in taken.items()} == known


def test_the_trainer_compares_the_warm_up_of_deepspeed(tmp_path: Path) -> None:
    read: Any = HfTrainerDeepSpeedConfig
    config = read({"scheduler": {"params": {"warmup_num_steps": 100}}})
    arguments = TrainingArguments(output_dir=str(tmp_path), warmup_steps=500)
    with pytest.raises(ValueError, match="warmup_num_steps=100 vs hf warmup_steps=500"):
        config.trainer_config_finalize(arguments, None, 1000)


def test_layer_classes_are_those_that_transformers_does_not_split() -> None:
    assert layer_classes()["gpt2"] == tuple(vars(GPT2PreTrainedModel)["_no_split_modules"])
    assert layer_classes()["llama"] == tuple(vars(LlamaPreTrainedModel)["_no_split_modules"])
