"""Tones and what prepares them: one second of sound, letters for tokens."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from launched import WHISPER

RATE = 16_000


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
