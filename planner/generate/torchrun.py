"""PyTorch alone, started by torchrun: every strategy that PyTorch has."""

from planner.generate.target import Target
from planner.generate.torchrun_script import script_context

TARGET = Target(
    name="torchrun",
    summary="PyTorch alone, everything in one file.",
    templates={
        "train.py": "torchrun/train.py",
        "launch.sh": "torchrun/launch.sh",
        "config.json": "common/config.json",
        "requirements.txt": "torchrun/requirements.txt",
    },
    context=script_context,
)
