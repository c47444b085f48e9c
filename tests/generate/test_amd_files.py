"""Files for AMD's GPUs: the scripts are those of NVIDIA's, what installs and starts them is for ROCm."""

from typing import Any

import pytest
from run_specs import EVERY

from planner import answers
from planner.catalog.records import vendor
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

INSTALLED = f"pip install torch --index-url {vendor('amd').torch_index}"


def files_of(gpu: str, **recipe: Any) -> dict[str, str]:
    cluster = {"gpu": gpu, "gpus_per_node": 8, "nodes": 2}
    payload = {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": cluster,
        "recipe": {"global_batch_size": 64, "sequence_length": 2048, **recipe},
        "strategy": {"zero_stage": 3, "data_parallel_shard_size": 16, "tensor_parallel_size": 1},
    }
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)


@pytest.mark.parametrize("framework", ["torch", "accelerate", "deepspeed", "torchtitan"])
def test_amds_files_install_and_start_rocms_pytorch(framework: str) -> None:
    files = files_of("mi300x", framework=framework)
    readme, docker = files["README.md"], files["launchers/docker.sh"]
    assert INSTALLED in readme
    assert readme.index(INSTALLED) < readme.index("pip install -r ")
    assert vendor("amd").torch_index in files["launchers/Dockerfile"]
    assert "--device=/dev/kfd --device=/dev/dri" in docker
    assert 'amd.com/gpu: "8"' in files["launchers/job.yaml"]
    assert "rocm-smi" in readme
    for text in files.values():
        assert "nvidia-smi" not in text
        assert "nvidia.com/gpu" not in text
        assert "--gpus all" not in text


def test_the_scripts_themselves_are_the_same() -> None:
    amd, nvidia = files_of("mi300x", framework="torch"), files_of("h100", framework="torch")
    for name in ("train", "data", "model", "checkpoints"):
        ours, theirs = (files[f"torchrun/{name}.py"] for files in (amd, nvidia))
        assert ours.partition("\nimport")[2] == theirs.partition("\nimport")[2] != ""
    assert vendor("amd").torch_index not in "".join(nvidia.values())
    assert "docker run --rm --gpus all" in nvidia["launchers/docker.sh"]
