"""Trainer's models of other tasks than to go on a text train like one process, on texts and on files."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
import torch
import transformers
from launched import (
    ACCUMULATED,
    CLASSES,
    CLASSIFIER,
    GPT2,
    STEPS,
    T5,
    VIT,
    WHISPER,
)
from PIL import Image
from reference import (
    TOLERANCE,
    Reference,
    assert_loads_alike,
    build_optimizer,
    train_samples,
    update,
)
from run_specs import refusal, with_layout
from sounds import RATE, write_processor, write_sounds
from texts import draw_texts, write_tags, write_tokenizer
from trainer_runs import (
    assert_parity,
    expected,
    named,
    ordered,
    rate,
    texts_of,
    train,
    without_dropout,
)

pytestmark = pytest.mark.usefixtures("preloaded")

TEXTS = draw_texts(count=40, longest=25)
WORKERS = ("--dataloader_num_workers", "1")
IMAGES = STEPS * 16
IMAGE = with_layout(ACCUMULATED, model_config=VIT, task="image-classification")
SOUND = with_layout(ACCUMULATED, model_config=WHISPER, task="automatic-speech-recognition")


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_texts_are_classified_like_one_process_does(kind: str, tmp_path: Path) -> None:
    """The reference computes every text by itself: padding that is looked at would show."""
    decoder = {"pad_token_id": 1, "id2label": CLASSIFIER["id2label"]}
    config = {
        "bert": CLASSIFIER,
        "gpt2": GPT2 | decoder | {"architectures": ["GPT2ForSequenceClassification"]},
    }[kind]
    spec = with_layout(ACCUMULATED, model_config=config, task="sequence-classification")
    run = train(tmp_path, spec, *texts_of(tmp_path, TEXTS, classes=CLASSES))
    assert_parity(run, expected(config, TEXTS))


def test_words_are_classified_like_one_process_does(tmp_path: Path) -> None:
    config = CLASSIFIER | {"architectures": ["BertForTokenClassification"]}
    spec = with_layout(ACCUMULATED, model_config=config, task="token-classification")
    data = write_tags(tmp_path / "words.jsonl", ordered(TEXTS), classes=CLASSES)
    run = train(tmp_path, spec, *named(data, write_tokenizer(tmp_path / "tokenizer")))
    assert_parity(run, expected(config, TEXTS))


def test_pairs_train_like_one_process(tmp_path: Path) -> None:
    spec = with_layout(ACCUMULATED, model_config=T5, task="seq2seq-lm", recompute="full")
    rows = (
        {"prompt": " ".join(f"w{word}" for word in text), "completion": f"w{text[0]} w{text[-1]}"}
        for text in ordered(TEXTS)
    )
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train(tmp_path, spec, *named(data, write_tokenizer(tmp_path / "tokenizer")))
    assert_parity(run, expected(T5, TEXTS))


def test_names_of_classes_are_kept_and_accuracy_is_measured(tmp_path: Path) -> None:
    spec = with_layout(ACCUMULATED, model_config=CLASSIFIER, task="sequence-classification")
    rows = [{"text": f"w{n}", "label": ["bad", "good", "so-so"][n % 3]} for n in range(48)]
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "data" / f"{split}.jsonl").write_text(lines)
    data = named(tmp_path / "data", write_tokenizer(tmp_path / "tokenizer"))
    run = train(tmp_path, spec, *data, "--eval_strategy", "epoch").finish()
    (evaluation,) = run.evaluations
    assert 0 <= evaluation["eval_accuracy"] <= 1
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good", "2": "so-so"}


def write_images(folder: Path) -> Path:
    """Write images of two classes, whose order is that of their names."""
    for number in range(IMAGES):
        of_class = folder / "train" / ("cat" if number < IMAGES / 2 else "dog")
        of_class.mkdir(parents=True, exist_ok=True)
        drawn = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(drawn).save(of_class / f"{number:02}.png")
    return folder


def test_images_train_like_one_process_and_keep_their_classes(tmp_path: Path) -> None:
    data, processor = write_images(tmp_path / "images"), processor_of(tmp_path / "vit")
    run = train(tmp_path, IMAGE, *named(data, tmp_path / "vit"), *WORKERS, "--augment", "false")
    files = sorted((data / "train").rglob("*.png"))

    def sample(index: int) -> dict[str, torch.Tensor]:
        pixels = processor(Image.open(files[index]), return_tensors="pt")["pixel_values"][0]
        return {"pixel_values": pixels, "labels": torch.tensor(int(index >= IMAGES / 2))}

    auto: Any = transformers.AutoModelForImageClassification
    assert_loads_alike(run.finish(), auto, alone(auto, IMAGE, sample))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "cat", "1": "dog"}


def processor_of(folder: Path) -> Any:
    auto: Any = transformers.ViTImageProcessorPil
    processor = auto(size={"height": 16, "width": 16})
    processor.save_pretrained(folder)
    return processor


def alone(auto: Any, spec: Any, sample: Callable[[int], dict[str, torch.Tensor]]) -> Reference:
    config: Any = transformers.AutoConfig
    made = config.for_model(**without_dropout(spec).model_config)
    return train_samples(auto, made, sample, rate=rate)


def test_images_are_varied_by_itself(tmp_path: Path) -> None:
    data = write_images(tmp_path / "images")
    processor_of(tmp_path / "vit")
    losses = [
        train(tmp_path / name, IMAGE, *named(data, tmp_path / "vit"), *flags, "--max_steps", "1")
        .finish()
        .losses
        for name, flags in (("varied", ()), ("whole", ("--augment", "false")))
    ]
    assert losses[0] != losses[1]


def test_sounds_train_like_one_process(tmp_path: Path) -> None:
    """Of two channels at another rate than the model's; the reference takes them one by one."""
    sounds = write_sounds(tmp_path / "sounds", IMAGES)
    listing = (sounds / "metadata.csv").read_text().replace("sentence", "text")
    (sounds / "metadata.csv").write_text(listing)
    folder = write_processor(tmp_path / "whisper")
    run = train(tmp_path, SOUND, *named(sounds, folder), *WORKERS).finish()
    auto: Any = transformers.AutoProcessor
    processor = auto.from_pretrained(run.folder / "model")
    assert processor.feature_extractor.sampling_rate == RATE

    samples = []
    for number in range(IMAGES):
        heard, own_rate = soundfile.read(sounds / f"{number}.wav", dtype="float32")
        waves = soxr.resample(heard.mean(axis=1), own_rate, RATE)
        features = processor.feature_extractor(waves, sampling_rate=RATE)["input_features"]
        tokens = processor.tokenizer(f"abba {'ab' * number}")["input_ids"][1:17]
        samples.append((torch.tensor(features), torch.tensor(tokens)))
    torch.manual_seed(0)
    config: Any = transformers.AutoConfig
    made: Any = transformers.AutoModelForSpeechSeq2Seq
    model = made.from_config(config.for_model(**without_dropout(SOUND).model_config)).train()
    optimizer, losses = build_optimizer(model), []
    for step in range(STEPS):
        batch = samples[step * 16 : step * 16 + 16]
        labels = sum(len(tokens) for _, tokens in batch)
        total = 0.0
        for features, tokens in batch:
            loss = model(input_features=features, labels=tokens[None]).loss
            (loss * len(tokens) / labels).backward()
            total += loss.item() * len(tokens) / labels
        losses.append(total)
        update(model, optimizer, rate(step), torch.zeros(()))
    assert run.losses == pytest.approx(losses, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("task", "config"),
    [
        ("masked-lm", {**CLASSIFIER, "architectures": ["BertForMaskedLM"]}),
        ("seq2seq-lm", T5),
        ("token-classification", {**CLASSIFIER, "architectures": ["BertForTokenClassification"]}),
        ("image-classification", VIT),
        ("automatic-speech-recognition", WHISPER),
    ],
)
def test_without_data_every_task_trains_on_random_samples(
    task: str, config: Mapping[str, Any], tmp_path: Path
) -> None:
    spec = with_layout(ACCUMULATED, model_config=config, task=task)
    run = train(tmp_path, spec, "--max_steps", "2", "--save_strategy", "no").finish()
    assert run.losses[1] < run.losses[0]


def test_scripts_with_a_loop_of_their_own_leave_classifiers_to_trainer() -> None:
    plan = with_layout(ACCUMULATED, task="sequence-classification")
    said = "for sequence-classification there are the files of trainer"
    assert said in refusal(plan, "torchrun")


def test_models_whose_inputs_are_unknown_are_refused() -> None:
    pegasus = with_layout(ACCUMULATED, model_config={"model_type": "pegasus"}, task="seq2seq-lm")
    known = "know the inputs of t5, mt5, bart, not of models of type pegasus"
    assert known in refusal(pegasus, "trainer")
