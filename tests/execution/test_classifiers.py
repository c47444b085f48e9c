"""Encoders that classify sequences train like one process, on every target."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launched import ACCUMULATED, CLASSES, CLASSIFIER, GPT2, LLAMA, start, write
from reference import assert_parity, train
from run_specs import refusal, with_layout
from several import load
from texts import draw_texts, write_tags, write_texts, write_tokenizer
from transformers import AutoTokenizer

pytestmark = pytest.mark.usefixtures("preloaded")

PLAN = with_layout(ACCUMULATED, model_config=CLASSIFIER, task="sequence-classification")
TARGETS = ("accelerate",)
PADDED = {"pad_token_id": 1, "id2label": CLASSIFIER["id2label"]}
DECODERS: Mapping[str, dict[str, Any]] = {
    "gpt2": GPT2 | PADDED | {"architectures": ["GPT2ForSequenceClassification"]},
    "llama": LLAMA | PADDED | {"architectures": ["LlamaForSequenceClassification"]},
}
TAGGER = CLASSIFIER | {"architectures": ["BertForTokenClassification"]}
TAGGED = with_layout(ACCUMULATED, model_config=TAGGER, task="token-classification")


def test_a_word_has_its_class_at_its_first_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of a token each; the last of a word of two has no class."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    texts = draw_texts(count=40, longest=25)
    data = write_tags(tmp_path / "words.jsonl", texts, classes=CLASSES)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    folder = write(tmp_path, TAGGED, "accelerate")
    options = ("--no-dropout", "--data", str(data), "--tokenizer", str(tokenizer))
    run = start(folder, "bash", "accelerate/launch.sh", *options)
    assert_parity(run.finish(), train(TAGGER, texts))
    rows = load(folder / "accelerate" / "train.py").read_rows
    two = write_tags(tmp_path / "two.jsonl", [], classes=1)
    two.write_text('{"tokens": ["w1 w2", "w3"], "tags": [1, 2]}\n' * 2)
    read: dict[str, Any] = {
        "text_column": None,
        "tag_column": "tags",
        "num_proc": 1,
        "eval_every": 0,
        "steps": 1,
    }
    args = argparse.Namespace(data=two, dataset=None, split="train", seed=0, **read)
    found, _ = rows(args, AutoTokenizer.from_pretrained(tokenizer), CLASSES)
    assert found[0]["labels"] == [1, -100, 2]


def test_every_target_trains_on_texts_like_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference computes every text by itself: padding that is looked at would show."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    texts = draw_texts(count=40, longest=25)
    data = write_texts(tmp_path / "texts.jsonl", texts, classes=CLASSES)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    options = ("--no-dropout", "--data", str(data), "--tokenizer", str(tokenizer))
    reference = train(CLASSIFIER, texts)
    for target in TARGETS:
        folder = write(tmp_path / target, PLAN, target)
        run = start(folder, "bash", f"{target}/launch.sh", *options)
        assert_parity(run.finish(), reference)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"text": "w1", "label": 3}', "from 0 to 2"),
        ('{"text": "w1", "label": "good"}', "from 0 to 2"),
        ('{"text": "w1", "label": null}', "from 0 to 2, not None: see --labels"),
        ('{"text": "w1", "label": [0, 1]}', "from 0 to 2, not .0, 1.: see --labels"),
        ('{"text": "w1", "class": 1}', "no column named label, but text, class"),
        ('{"text": " ", "label": 0}', "no text"),
    ],
)
def test_texts_without_a_class_of_the_model_are_refused(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    module = load(write(tmp_path, PLAN, "accelerate") / "accelerate" / "train.py")
    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path / "tokenizer"))
    data = tmp_path / "texts.jsonl"
    data.write_text(line + "\n")
    monkeypatch.setattr("sys.argv", ["train.py", "--data", str(data)])
    args = module.parse_arguments()
    with pytest.raises(SystemExit, match=says):
        module.read_rows(args, tokenizer, CLASSES)


@pytest.mark.parametrize("target", ["torchrun", "deepspeed"])
def test_scripts_with_a_loop_of_their_own_leave_classifiers_to_trainer(target: str) -> None:
    plan = replace(PLAN, framework="deepspeed" if target == "deepspeed" else "torch")
    said = "for sequence-classification there are the files of trainer"
    assert said in refusal(plan, target)
