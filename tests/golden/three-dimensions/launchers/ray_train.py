"""Start the plan as a Ray Train job.

Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2,
pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.

python launchers/ray_train.py [arguments of train.py]
Start it on a machine of the Ray cluster, all of which see this folder under the same path.
The requirements of torchrun and ray[train] must be installed on the workers.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

FOLDER = Path(__file__).resolve().parents[1]
WORKERS = 8  # one per GPU
USE_GPU = os.environ.get("USE_GPU", "1") == "1"
RESTARTS = 3  # after failures, where the arguments go on from the last checkpoint
ENVIRONMENT = {
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
}
SECRETS = ("HF_TOKEN", "WANDB_API_KEY")


def work(job: dict[str, Any]) -> None:
    """Run the target's script with the ranks and the address that Ray has given the workers."""
    dist.destroy_process_group()
    # The script joins them anew, at a port where nobody can meet the old group.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    os.environ |= job["secrets"]
    folder = Path(job["folder"])
    os.chdir(folder)
    sys.argv = ["train.py", *job["arguments"]]
    sys.path.insert(0, str(folder))  # where its modules are
    runpy.run_path(str(folder / "train.py"), run_name="__main__")


def build_trainer(arguments: list[str]) -> TorchTrainer:
    """Return the job: a worker per GPU, on as few machines as have them."""
    folder = FOLDER / os.environ.get("TARGET", "torchrun")
    resources = {"GPU": 1} if USE_GPU else {"CPU": 1}
    own = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    # Not in the workers' environment, which Ray's dashboard shows.
    secrets = {name: os.environ[name] for name in SECRETS if name in os.environ}
    return TorchTrainer(
        work,
        train_loop_config={"folder": str(folder), "arguments": arguments, "secrets": secrets},
        scaling_config=ScalingConfig(
            num_workers=WORKERS,
            use_gpu=USE_GPU,
            resources_per_worker=resources,
            placement_strategy="PACK",
        ),
        torch_config=TorchConfig(backend="nccl" if USE_GPU else "gloo"),
        run_config=RunConfig(
            name="train-tiny-llama",
            storage_path=str(FOLDER / "ray"),
            failure_config=FailureConfig(max_failures=RESTARTS if "latest" in arguments else 0),
            worker_runtime_env={"env_vars": ENVIRONMENT | own},
        ),
    )


if __name__ == "__main__":
    build_trainer(sys.argv[1:]).fit()
