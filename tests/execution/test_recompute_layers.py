"""The script of PyTorch alone recomputes as many layers as the plan says, and trains like one process."""

from dataclasses import replace
from pathlib import Path

import pytest
from launched import ACCUMULATED, LLAMA, launch
from reference import assert_parity, expected
from run_specs import with_layout

pytestmark = pytest.mark.usefixtures("preloaded")


def test_one_of_two_layers_recomputes_like_one_process(tmp_path: Path) -> None:
    llama = with_layout(ACCUMULATED, model_config=LLAMA, zero_stage=3, recompute="full")
    run = launch(tmp_path, replace(llama, recompute_layers=1), "--no-dropout")
    assert_parity(run.finish(), expected("llama"))
