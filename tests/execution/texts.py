"""Texts of words that a tokenizer of their own knows, and what the scripts make of them."""

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, PreTrainedTokenizerFast

WORDS = 80
END, MASK, FIRST_WORD = 1, 2, 3
"""Tokens of the end and the mask; word i is token FIRST_WORD + i."""


def write_tokenizer(folder: Path) -> Path:
    words = {f"w{i}": FIRST_WORD + i for i in range(WORDS)}
    vocabulary = {"<unk>": 0, "<end>": END, "<mask>": MASK} | words
    model = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    model.pre_tokenizer = Whitespace()
    special = {"unk_token": "<unk>", "eos_token": "<end>", "mask_token": "<mask>"}
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=model, **special).save_pretrained(folder)
    return folder


def draw_texts(count: int, longest: int) -> list[list[int]]:
    """Return the numbers of random words: texts of one word to the longest, which comes up."""
    chance = random.Random(0)
    lengths = [longest, 1, *(chance.randint(1, longest) for _ in range(count - 2))]
    return [[chance.randrange(WORDS) for _ in range(length)] for length in lengths]


def packed(texts: list[list[int]], length: int) -> list[list[int]]:
    """Return the texts one after the other, the end after each, in sequences of a length."""
    stream = [word for text in texts for word in [*text, END - FIRST_WORD]]
    return [stream[i : i + length] for i in range(0, len(stream) - length + 1, length)]


def class_of(text: list[int], classes: int) -> int:
    """Return the class of a text: that of its first word."""
    return text[0] % classes


def write_texts(path: Path, texts: list[list[int]], *, classes: int = 1) -> Path:
    """Write a jsonl file, in which every text has a class."""
    rows = [
        {"text": " ".join(f"w{word}" for word in text), "label": class_of(text, classes)}
        for text in texts
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


CHATML = (
    "{% for message in messages %}<|{{ message.role }}|> {{ message.content }} <end> \n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
"""A chat template whose turns end with the token of the end."""


def write_chat_tokenizer(folder: Path, template: str = CHATML) -> Path:
    """Write a tokenizer that also knows roles, each of which is one token."""
    tokenizer: Any = AutoTokenizer.from_pretrained(write_tokenizer(folder))
    roles = [f"<|{role}|>" for role in ("system", "user", "assistant")]
    tokenizer.add_special_tokens({"additional_special_tokens": roles})
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def write_tags(path: Path, texts: list[list[int]], *, classes: int) -> Path:
    """Write a jsonl file of lists of words, each with a class: that of its token."""
    rows = [
        {
            "tokens": [f"w{word}" for word in text],
            "tags": [(FIRST_WORD + word) % classes for word in text],
        }
        for text in texts
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
