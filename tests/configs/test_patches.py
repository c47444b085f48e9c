"""A change that is offered is read again first: it changes its own setting, and nothing else."""

import pytest

from planner.configs.fixes import patch
from planner.configs.found import LAUNCH, Setup
from planner.configs.recognise import recognise
from planner.configs.rules.base import set_to


@pytest.mark.parametrize(
    ("script", "is_offered"),
    [
        ("torchrun --nproc_per_node 4 train.py", True),
        ("torchrun --nproc_per_node=4 train.py", True),
        ("N=4\ntorchrun --nproc_per_node ${N} train.py", False),
        ("N=4\ntorchrun --nproc_per_node=${N:-2} train.py", False),
        ('torchrun --nproc_per_node "4" train.py --note "nproc_per_node 4"', True),
    ],
)
def test_a_patch_of_a_script_leaves_a_script(script: str, *, is_offered: bool) -> None:
    texts = {"run.sh": script}
    setup = Setup(found=recognise(script, "run.sh"), texts=texts)
    setting = next(setup.settings(LAUNCH, "nproc_per_node"))
    offered = patch(texts, [set_to(setting, "8")])
    assert bool(offered) == is_offered
    assert "8}" not in offered
