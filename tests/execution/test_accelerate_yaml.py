"""What Accelerate makes of accelerate.yaml: its loader checks neither keys nor values of FSDP's."""

from argparse import Namespace
from dataclasses import fields
from pathlib import Path

import pytest
from accelerate import ParallelismConfig  # type: ignore[import-untyped]
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file  # type: ignore[import-untyped]
from accelerate.commands.launch import _validate_launch_command, launch_command_parser  # type: ignore[import-untyped]
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin  # type: ignore[import-untyped]
from accelerate.utils.launch import prepare_multi_gpu_env  # type: ignore[import-untyped]
from launched import TINY, write
from run_specs import with_layout
from torch.distributed.fsdp import CPUOffloadPolicy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from planner.generate import RunSpec

SHARDED = with_layout(TINY, zero_stage=3, nodes=2, global_batch_size=32, precision="bf16-mixed")
FIELD_OF_KEY = {"fsdp_version": "fsdp_version", "fsdp_offload_params": "cpu_offload"}


def yaml_of(spec: RunSpec, folder: Path) -> str:
    return str(write(folder, spec, "accelerate") / "accelerate" / "accelerate.yaml")


def loaded(spec: RunSpec, folder: Path) -> ClusterConfig:
    return load_config_from_file(yaml_of(spec, folder))


def launch_arguments(spec: RunSpec, folder: Path, *flags: str) -> Namespace:
    parser = launch_command_parser()
    command = ["--config_file", yaml_of(spec, folder), *flags, "train.py"]
    arguments, _, _ = _validate_launch_command(parser.parse_args(command))
    assert isinstance(arguments, Namespace)
    return arguments


@pytest.mark.parametrize(
    ("spec", "kind", "precision"),
    [
        (TINY, DistributedType.MULTI_GPU, "no"),
        (with_layout(TINY, zero_stage=1, precision="tf32"), DistributedType.MULTI_GPU, "no"),
        (with_layout(TINY, gpus_per_node=1, global_batch_size=8), DistributedType.NO, "no"),
        (with_layout(TINY, zero_stage=2, precision="fp16-mixed"), DistributedType.FSDP, "fp16"),
        (SHARDED, DistributedType.FSDP, "bf16"),
    ],
)
def test_the_yaml_names_the_plan(
    spec: RunSpec, kind: DistributedType, precision: str, tmp_path: Path
) -> None:
    config = loaded(spec, tmp_path)
    assert config.distributed_type == kind
    assert config.mixed_precision == precision
    assert config.num_machines == spec.nodes
    assert config.num_processes == spec.nodes * spec.gpus_per_node


def test_every_fsdp_key_is_known_to_the_launcher_and_to_the_plugin(tmp_path: Path) -> None:
    keys = loaded(SHARDED, tmp_path).fsdp_config.keys()
    flags = {action.dest for action in launch_command_parser()._actions}  # noqa: SLF001
    assert keys <= flags
    known = {field.name for field in fields(FullyShardedDataParallelPlugin)}
    assert {FIELD_OF_KEY.get(key, key.removeprefix("fsdp_")) for key in keys} <= known


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_launcher_hands_the_plan_to_the_plugin(
    zero_stage: int, recompute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = with_layout(SHARDED, zero_stage=zero_stage, recompute=recompute)
    arguments = launch_arguments(spec, tmp_path, "--main_process_port", "0")
    for name, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is (zero_stage == 3)
    assert plugin.activation_checkpointing is (recompute == "full")
    assert plugin.auto_wrap_policy is transformer_auto_wrap_policy
    assert plugin.state_dict_type is StateDictType.SHARDED_STATE_DICT
    assert plugin.cpu_ram_efficient_loading is True
    assert not isinstance(plugin.cpu_offload, CPUOffloadPolicy)


def test_offloaded_plans_offload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = with_layout(SHARDED, offload="optimizer+parameters")
    arguments = launch_arguments(spec, tmp_path, "--main_process_port", "0")
    for name, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setenv(name, value)
    assert isinstance(FullyShardedDataParallelPlugin().cpu_offload, CPUOffloadPolicy)


HYBRID = with_layout(
    SHARDED,
    gpus_per_node=4,
    global_batch_size=64,
    data_parallel_replicate_size=2,
    data_parallel_shard_size=4,
)


def test_replicas_of_shards_have_a_mesh_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = launch_arguments(HYBRID, tmp_path, "--main_process_port", "0")
    for name, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setenv(name, value)
    config = ParallelismConfig()
    assert (config.dp_replicate_size, config.dp_shard_size) == (2, 4)
    assert (config.tp_size, config.cp_size) == (1, 1)
    assert config.total_size == HYBRID.world_size


def test_every_parallelism_key_is_known_to_the_launcher_and_to_the_config(tmp_path: Path) -> None:
    keys = loaded(HYBRID, tmp_path).parallelism_config.keys()
    assert keys <= {action.dest for action in launch_command_parser()._actions}  # noqa: SLF001
    known = {field.name for field in fields(ParallelismConfig)}
    assert {key.removeprefix("parallelism_config_") for key in keys} <= known


def test_a_second_node_joins_the_first(tmp_path: Path) -> None:
    flags = ("--machine_rank", "1", "--main_process_ip", "10.0.0.1", "--main_process_port", "29501")
    arguments = launch_arguments(SHARDED, tmp_path, *flags)
    prepare_multi_gpu_env(arguments)
    assert (arguments.nnodes, arguments.node_rank, arguments.nproc_per_node) == ("2", 1, "2")
    assert (arguments.rdzv_backend, arguments.rdzv_endpoint) == ("static", "10.0.0.1:29501")
