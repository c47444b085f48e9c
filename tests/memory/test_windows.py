"""Scores of windows: as many keys as a window has, beside runs that fitted their card."""

import pytest
from conftest import JobMaker

from planner.domain.strategy import Layout
from planner.memory.ledger import estimate_memory

RAN = [
    ("microsoft/swin-tiny-patch4-window7-224", 256),
    ("microsoft/swin-small-patch4-window7-224", 192),
]
"""huggingface/pytorch-image-models, results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv: the largest batch that ran."""


@pytest.mark.parametrize(("name", "batch"), RAN)
def test_swin_trains_in_the_24_gb_that_it_ran_in(make_job: JobMaker, name: str, batch: int) -> None:
    wish = {
        "global_batch_size": batch,
        "precision": "fp16-mixed",
        "optimizer": "sgd-momentum",
        "attention": "eager",
    }
    job = make_job(name, gpus=1, gpu="rtx-3090", recipe=wish)
    memory = estimate_memory(job, Layout(micro_batch_size=batch))
    usable = job.cluster.gpu.usable_bytes or job.usable_bytes
    assert 0.75 * usable < float(memory.reserved_bytes) < 1.04 * usable
