"""The loss in chunks is the loss: scripts that hold a few tokens' logits train like one process."""

from dataclasses import replace
from pathlib import Path

import pytest
from launched import ACCUMULATED, LLAMA, launch
from reference import assert_parity, expected
from run_specs import with_layout

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

CHUNK_TOKENS = 7
"""Divides no micro-batch: the last chunk is smaller."""


def in_chunks(spec: RunSpec) -> RunSpec:
    return replace(spec, loss="chunked", loss_chunk_tokens=CHUNK_TOKENS)


def test_replicas_train_in_chunks_like_one_process(tmp_path: Path) -> None:
    run = launch(tmp_path, in_chunks(ACCUMULATED), "--no-dropout")
    assert_parity(run.finish(), expected("gpt2"))


def test_shards_train_in_chunks_like_one_process(tmp_path: Path) -> None:
    llama = with_layout(ACCUMULATED, model_config=LLAMA, zero_stage=3, recompute="full")
    run = launch(tmp_path, in_chunks(llama), "--no-dropout")
    assert_parity(run.finish(), expected("llama"))
