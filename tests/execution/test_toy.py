"""Two processes and two accumulated micro-batches give the same weights, and the published ones.

"Multiple GPU training in PyTorch and Gradient Accumulation as an alternative to it", Towards Data
Science: `--epochs 2 --batch_size 4 --data_size 8`, SGD with a rate of 0.01 and a momentum of 0.9.
"""

from pathlib import Path

import pytest
import torch
from launched import TINY, run, write
from run_specs import with_layout

pytestmark = pytest.mark.usefixtures("preloaded")

PUBLISHED = [0.9472, 0.9440, 0.9527, 0.9687, 0.9570, 0.9343, 0.9411, 0.9186]


def weights(script: Path, *launcher: str) -> list[float]:
    toy, results = Path(__file__).with_name("toy.py"), script.with_suffix(".pt")
    run(script.parent, *launcher, str(toy), str(script), str(results)).output()
    (row,) = torch.load(results).tolist()
    return list(row)


def test_accumulation_equals_two_processes_and_the_article(tmp_path: Path) -> None:
    plan = with_layout(TINY, micro_batch_size=4, global_batch_size=8)
    script = write(tmp_path, plan, "torchrun") / "torchrun" / "train.py"
    parallel = weights(script, "torchrun", "--standalone", "--nproc_per_node=2")
    accumulated = weights(script, "python")
    assert parallel == pytest.approx(accumulated, abs=1e-6, rel=0)
    assert parallel == pytest.approx(PUBLISHED, abs=5e-5, rel=0)
