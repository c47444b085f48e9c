"""A run lets go of its model before its process group, whose threads could wait for Python for ever."""

from pathlib import Path

import pytest
from launched import HYPERPARAMETERS, TINY, run, write

pytestmark = pytest.mark.usefixtures("preloaded")

WATCHED = """\
import gc, runpy
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def watched(*arguments):
    holders = [thing for thing in gc.get_objects() if type(thing) is DistributedDataParallel]
    assert not holders, "the model still holds the process group"
    print("nothing holds the process group")
    destroy(*arguments)

destroy, dist.destroy_process_group = dist.destroy_process_group, watched
runpy.run_path("written.py", run_name="__main__")
"""


def test_nothing_holds_the_process_group_when_it_ends(tmp_path: Path) -> None:
    write(tmp_path, TINY, "torchrun")
    script = tmp_path / "torchrun" / "train.py"
    script.rename(script.with_name("written.py"))
    script.write_text(WATCHED)
    output = run(tmp_path, "bash", "torchrun/launch.sh", *HYPERPARAMETERS).output()
    assert output.count("nothing holds the process group") == TINY.gpus_per_node
