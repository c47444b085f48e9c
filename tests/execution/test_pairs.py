"""Encoders with decoders train like one process, on every target, and on pairs of texts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from launched import ACCUMULATED, T5, Run, start, write
from reference import TOLERANCE, assert_parity, distance, expected, train
from run_specs import refusal, with_layout
from test_deepspeed import GLOO_ONLY
from texts import draw_texts, write_tokenizer

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

PLAN = with_layout(ACCUMULATED, model_config=T5, task="seq2seq-lm")
RUNS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "accelerate": ("accelerate", {}),
    "accelerate zero-3": ("accelerate", {"zero_stage": 3}),
}


def launch(folder: Path, target: str, spec: RunSpec, *arguments: str) -> Run:
    write(folder, spec, target)
    command = ("bash", f"{target}/launch.sh", "--no-dropout", *arguments)
    as_gpus = {**GLOO_ONLY, "ACCELERATE_USE_CPU": "false", "ACCELERATE_ENGINE": "fsdp"}
    return start(folder, *command, **(as_gpus if spec.shards_gradients else {}))


@pytest.mark.parametrize("name", RUNS)
def test_every_target_trains_like_one_process(name: str, tmp_path: Path) -> None:
    target, layout = RUNS[name]
    run = launch(tmp_path, target, with_layout(PLAN, **layout))
    reference = expected("bart" if name == "bart" else "t5")
    assert run.finish().losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    assert run.weights.keys() - {"final_logits_bias"} == reference.weights.keys()  # a buffer
    assert distance(reference.weights, run.weights) <= TOLERANCE


def test_prompts_and_completions_train_like_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference computes every pair by itself: padding that is looked at would show."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    texts = draw_texts(count=40, longest=25)
    data = tmp_path / "pairs.jsonl"
    rows = (
        {"prompt": " ".join(f"w{word}" for word in text), "completion": f"w{text[0]} w{text[-1]}"}
        for text in texts
    )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    options = ("--data", str(data), "--tokenizer", str(tokenizer))
    run = launch(tmp_path / "run", "accelerate", PLAN, *options)
    assert_parity(run.finish(), train(T5, texts))


def test_a_text_by_itself_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    data = tmp_path / "corpus.txt"
    data.write_text("\n".join(" ".join(f"w{i % 80}" for i in range(60)) for _ in range(8)))
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    options = ("--data", str(data), "--tokenizer", str(tokenizer))
    assert len(launch(tmp_path / "run", "accelerate", PLAN, *options).finish().losses) == 3


def test_models_whose_inputs_are_unknown_are_refused() -> None:
    pegasus = with_layout(PLAN, model_config={"model_type": "pegasus"})
    assert "know the inputs of t5, mt5, bart, not of models of type pegasus" in refusal(
        pegasus, "trainer"
    )
