"""Texts of different lengths, packed: every layout counts each token once, like one process."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from launched import (
    ACCUMULATED,
    BERT,
    DEEP_GPT2,
    DEEP_LLAMA,
    Run,
    deep,
    launch_several,
)
from reference import SEQUENCE_LENGTH, SHAPES, TOLERANCE, Reference, distance, train
from run_specs import with_layout
from texts import draw_texts, packed, write_texts, write_tokenizer

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

TEXTS = draw_texts(count=40, longest=25)
MASKED = with_layout(ACCUMULATED, model_config=BERT, task="masked-lm")
PLANS: Mapping[str, RunSpec] = {
    "ddp@gpt2": ACCUMULATED,
    "zero-3@gpt2": with_layout(ACCUMULATED, zero_stage=3),
    "ddp@bert": MASKED,
    "tensor@deep-llama": deep(DEEP_LLAMA, tensor_parallel_size=2, sequence_parallel=True),
    "pipeline@deep-gpt2": deep(DEEP_GPT2, pipeline_parallel_size=2),
    "context@deep-llama": deep(DEEP_LLAMA, context_parallel_size=2),
}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    data = write_texts(tmp_path / "texts.jsonl", TEXTS)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    named = ("--data", str(data), "--tokenizer", str(tokenizer))
    return ("--no-dropout", *named)


@cache
def expected(architecture: str) -> Reference:
    """Train one of the shapes, once per session."""
    return train(SHAPES[architecture], packed(TEXTS, SEQUENCE_LENGTH))


def assert_parity(run: Run, reference: Reference) -> None:
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    assert distance(reference.weights, run.weights) <= TOLERANCE
    assert distance(reference.initial, reference.weights) > 100 * TOLERANCE


def test_every_layout_counts_tokens_like_one_process(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    for name, run in launch_several(tmp_path, PLANS, *options).items():
        assert_parity(run, expected(name.partition("@")[2]))
