"""Whisper trains like one process, on synthetic spectrograms and on sound files."""

import json
import wave
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from launched import ACCUMULATED, STEPS, WHISPER, launch, write
from reference import SEQUENCE_LENGTH, Reference, assert_loads_alike, train_samples
from run_specs import with_layout
from several import load

pytestmark = pytest.mark.usefixtures("preloaded")

PLAN = with_layout(ACCUMULATED, model_config=WHISPER, task="automatic-speech-recognition")
RATE = 16_000
AUTO: Any = transformers.AutoModelForSpeechSeq2Seq


@cache
def expected() -> Reference:
    """Train on synthetic spectrograms in one process."""
    quiet = config()
    quiet.dropout = quiet.attention_dropout = quiet.activation_dropout = 0.0
    return train_samples(AUTO, quiet, heard)


def config() -> Any:
    auto: Any = transformers.AutoConfig
    return auto.for_model(**WHISPER)


def heard(index: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(index)
    features = torch.randn((8, 100), generator=generator)
    labels = torch.randint(96, (SEQUENCE_LENGTH,), generator=generator)
    return {"input_features": features, "labels": labels}


def test_speech_trains_like_one_process(tmp_path: Path) -> None:
    run = launch(tmp_path, PLAN, "--no-dropout", target="accelerate").finish()
    assert_loads_alike(run, AUTO, expected())


def test_a_folder_of_sounds_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two channels at another rate than the model's, with texts of another column's name."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    sounds = write_sounds(tmp_path / "sounds", 6)
    options = (
        *("--data", str(sounds), "--text-column", "sentence"),
        *("--model", str(write_processor(tmp_path / "whisper")), "--init", "random"),
    )
    run = launch(tmp_path / "run", PLAN, *options, target="accelerate").finish()
    assert len(run.losses) == STEPS
    (sounds / "5.wav").unlink()
    said = launch(tmp_path / "again", PLAN, *options, target="accelerate").fail()
    assert "metadata.csv names 5.wav, which is not in" in said
    script = load(write(tmp_path / "module", PLAN, "accelerate") / "accelerate" / "train.py")
    for damaged, refusal in (
        ({"0.wav": "no sound"}, "a sound: .*0.wav"),
        ({"metadata.csv": "file_name,sentence\n0.wav,\n"}, "every sound needs its text"),
        ({"metadata.csv": ""}, "sounds: No columns"),
    ):
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / refusal[:7]))
        monkeypatch.setattr("sys.argv", ["train.py", *options])
        (sounds / "metadata.csv").write_text("file_name,sentence\n0.wav,abba\n")
        for name, text in damaged.items():
            (sounds / name).write_text(text)
        with pytest.raises(SystemExit, match=refusal):
            script.read_samples(script.parse_arguments(), config())[0][0]
    auto: Any = transformers.AutoProcessor
    processor = auto.from_pretrained(run.folder / "model")
    assert processor.feature_extractor.sampling_rate == RATE


def write_sounds(folder: Path, count: int) -> Path:
    folder.mkdir()
    lines = ["file_name,sentence"]
    for number in range(count):
        tone = np.sin(np.arange(RATE // 4) * (0.1 + 0.05 * number)) * 20_000
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((2, 2, RATE // 2, 0, "NONE", ""))
            file.writeframes(np.repeat(tone.astype("<i2"), 2).tobytes())
        lines.append(f"{number}.wav,abba {'ab' * number}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return folder


def write_processor(folder: Path) -> Path:
    """Write what prepares sounds and texts: one second of sound, letters for tokens."""
    folder.mkdir()
    words = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "a", "b", "Ġ"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    whisper: Any = transformers
    tokenizer = whisper.WhisperTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    extractor = whisper.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    whisper.WhisperProcessor(extractor, tokenizer).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(WHISPER))
    return folder
