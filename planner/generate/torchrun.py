"""PyTorch alone, started by torchrun."""

from planner.generate.bundle import Bundle
from planner.generate.target import Target


def _refusal(bundle: Bundle) -> str | None:
    if bundle.splits_the_model:
        return "it does not split the model over GPUs"
    if bundle.shards_parameters and bundle.data_parallel_replicate_size > 1:
        return "it does not replicate sharded models"
    if bundle.recompute == "selective":
        return "it does not recompute selectively"
    if bundle.offload != "none":
        return "it does not offload"
    if bundle.synchronize_every > 1:
        return "it averages gradients every step"
    return None


TARGET = Target(
    name="torchrun",
    summary="PyTorch alone, everything in one file.",
    templates={
        "train.py": "torchrun/train.py",
        "launch.sh": "torchrun/launch.sh",
        "config.json": "common/config.json",
        "requirements.txt": "torchrun/requirements.txt",
    },
    refusal=_refusal,
)
