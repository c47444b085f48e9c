"""PyTorch alone, started by torchrun: every strategy that PyTorch has."""

from planner.generate.modules import SCRIPT
from planner.generate.target import Target
from planner.generate.torchrun_script import modules, script_context

TARGET = Target(
    name="torchrun",
    summary="PyTorch alone; the loop is in `train.py`, the plan's numbers are in `settings.py` beside it.",
    templates={
        "train.py": "torchrun/train.py",
        "training.py": "torchrun/training.py",
        **SCRIPT,
        "launch.sh": "torchrun/launch.sh",
        "config.json": "common/config.json",
        "requirements.txt": "torchrun/requirements.txt",
    },
    more_templates=modules,
    context=script_context,
)
