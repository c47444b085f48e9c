"""An evaluation counts every label once, whatever computes it, and leaves the training as it was."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import (
    ACCUMULATED,
    BERT,
    DEEP_GPT2,
    DEEP_LLAMA,
    deep,
    launch_several,
)
from reference import SEQUENCE_LENGTH, SHAPES, Reference, build, expected, head, text_sample, train
from run_specs import with_layout
from texts import draw_texts, packed, write_texts, write_tokenizer

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

TEXTS = draw_texts(count=40, longest=25)
OTHERS = draw_texts(count=23, longest=20)
"""No whole number of batches: the last one of a process may hold no label."""
PLANS: Mapping[str, RunSpec] = {
    "ddp@gpt2": ACCUMULATED,
    "zero-2@gpt2": with_layout(ACCUMULATED, zero_stage=2),
    "zero-3@gpt2": with_layout(ACCUMULATED, zero_stage=3),
    "tensor@deep-llama": deep(DEEP_LLAMA, tensor_parallel_size=2, sequence_parallel=True),
    "pipeline@deep-gpt2": deep(DEEP_GPT2, pipeline_parallel_size=2),
    "interleaved@deep-gpt2": deep(
        DEEP_GPT2,
        pipeline_parallel_size=2,
        virtual_pipeline_size=2,
        pipeline_schedule="interleaved-1f1b",
    ),
    "v-shaped@deep-gpt2": deep(
        DEEP_GPT2, pipeline_parallel_size=2, virtual_pipeline_size=2, pipeline_schedule="zbv"
    ),
    "context@deep-llama": deep(DEEP_LLAMA, context_parallel_size=2),
}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    data = write_texts(tmp_path / "texts.jsonl", TEXTS)
    others = write_texts(tmp_path / "others.jsonl", OTHERS)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    named = ("--data", str(data), "--eval-data", str(others), "--tokenizer", str(tokenizer))
    return ("--no-dropout", *named, "--eval-every", "2")


@torch.no_grad()
def evaluated(reference: Reference, architecture: str, others: list[list[int]]) -> float:
    """Return the mean loss over the other texts' labels, each text by itself."""
    model = build(SHAPES[architecture]).eval()
    model.load_state_dict(reference.weights, strict=False)
    model.tie_weights()
    total, labels = 0.0, 0
    for text in others:
        tokens, targets = text_sample(0, [text], model)
        count = int((targets.reshape(-1)[1 if head(model) == "causal" else 0 :] != -100).sum())
        total += model(input_ids=tokens[None], labels=targets[None]).loss.item() * count
        labels += count
    return total / labels


def assert_evaluated(run: Any, architecture: str) -> None:
    texts, others = (packed(each, SEQUENCE_LENGTH) for each in (TEXTS, OTHERS))
    reference = train(SHAPES[architecture], texts)
    assert run.losses == pytest.approx(reference.losses, abs=1e-5, rel=0)
    assert [line["step"] for line in run.evaluations] == [2, 3]
    last = run.evaluations[-1]
    assert last["eval_loss"] == pytest.approx(evaluated(reference, architecture, others), abs=1e-5)
    assert last["eval_perplexity"] == pytest.approx(math.exp(last["eval_loss"]))


def test_every_layout_evaluates_like_one_process(options: tuple[str, ...], tmp_path: Path) -> None:
    for name, run in launch_several(tmp_path, PLANS, *options).items():
        assert_evaluated(run, name.partition("@")[2])


def test_shards_of_a_pipeline_evaluate_like_one_process(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    layout = {"data_parallel_size": 2, "pipeline_parallel_size": 2, "zero_stage": 3}
    (run,) = launch_several(tmp_path, {"it": deep(DEEP_GPT2, **layout)}, *options).values()
    assert_evaluated(run, "deep-gpt2")


def test_synthetic_samples_are_held_out_too(tmp_path: Path) -> None:
    plan = with_layout(ACCUMULATED, model_config=BERT, task="masked-lm")
    options = ("--no-dropout", "--eval-every", "3")
    (run,) = launch_several(tmp_path, {"bert": plan}, *options).values()
    assert run.losses == pytest.approx(expected("bert").losses, abs=1e-5, rel=0)
    (line,) = run.evaluations
    assert line.keys() == {"step", "eval_loss", "eval_perplexity", "tokens_per_step", "world_size"}
