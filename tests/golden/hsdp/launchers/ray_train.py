"""Start the plan as a Ray Train job.

Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs with ZeRO-3 (FSDP, full shard), 2 replicas of
the shards, micro-batch 8 x 1 accumulation x 8 ranks = 64 sequences per step.

ray job submit --working-dir . -- python launchers/ray_train.py [arguments of train.py]
TARGET=<folder> starts another one than torchrun that needs no launcher of its own: torchrun,
deepspeed or trainer. Its requirements must be installed on the workers.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

FOLDER = Path(__file__).resolve().parents[1]
WORKERS = 8  # one per GPU
USE_GPU = os.environ.get("USE_GPU", "1") == "1"


def work(job: dict[str, Any]) -> None:
    """Run the target's script with the ranks and the address that Ray has given the workers."""
    dist.destroy_process_group()
    # The script joins them anew, at a port where nobody can meet the old group.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    folder = Path(job["folder"])
    os.chdir(folder)
    sys.argv = ["train.py", *job["arguments"]]
    runpy.run_path(str(folder / "train.py"), run_name="__main__")


def build_trainer(arguments: list[str]) -> TorchTrainer:
    """Return the job: a worker per GPU, as many to a machine as the plan says."""
    folder = FOLDER / os.environ.get("TARGET", "torchrun")
    resources = {"GPU": 1} if USE_GPU else {"CPU": 1}
    return TorchTrainer(
        work,
        train_loop_config={"folder": str(folder), "arguments": arguments},
        scaling_config=ScalingConfig(
            num_workers=WORKERS, use_gpu=USE_GPU, resources_per_worker=resources
        ),
        torch_config=TorchConfig(backend="nccl" if USE_GPU else "gloo"),
        run_config=RunConfig(name="train-tiny-llama", storage_path=str(FOLDER / "ray")),
    )


if __name__ == "__main__":
    build_trainer(sys.argv[1:]).fit()
