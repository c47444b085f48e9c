"""What is learned of conversations and completions: the answers, token by token, and nothing else."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from launched import ACCUMULATED, GPT2, STEPS, start, write
from reference import GLOBAL_BATCH_SIZE, build, build_optimizer, learning_rate, update
from several import load
from texts import CHATML, write_chat_tokenizer
from transformers import AutoTokenizer

pytestmark = pytest.mark.usefixtures("preloaded")

REASONING = (
    "{% for message in messages %}<|{{ message.role }}|> "
    "{% if message.role == 'assistant' and not loop.last %}{{ message.content.split('w9')[-1] }}"
    "{% else %}{{ message.content }}{% endif %} <end> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
"""A template that leaves out of earlier answers what comes before w9."""
CONVERSATION = [
    {"role": "system", "content": "w1"},
    {"role": "user", "content": "w2 w3"},
    {"role": "assistant", "content": "w4 w9 w5"},
    {"role": "user", "content": "w6"},
    {"role": "assistant", "content": "w7"},
    {"role": "user", "content": "w8"},
]


LENGTH = 32
"""Of the longest of these texts, in tokens."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load(
        write(tmp_path_factory.mktemp("script"), ACCUMULATED, "accelerate") / "accelerate/train.py"
    )


def learned(script: ModuleType, tokenizer: Any, marked: tuple[str, Any]) -> str:
    """Return a text's tokens, those in brackets that are learned."""
    row = script.encode(tokenizer, LENGTH, *marked)
    tokens = tokenizer.convert_ids_to_tokens(row["input_ids"])
    pairs = zip(row["input_ids"], tokens, row["labels"], strict=True)
    words = [f"[{name}]" if label == token else name for token, name, label in pairs]
    assert set(row["labels"]) <= {-100, *row["input_ids"]}
    assert row["learned"] == sum(word.startswith("[") for word in words)
    return " ".join(words)


def test_every_turn_of_the_assistant_is_learned_to_its_end(script: Any, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_chat_tokenizer(tmp_path))
    (whole,) = script.answers(tokenizer, CONVERSATION[:5])
    assert learned(script, tokenizer, whole) == (
        "<|system|> w1 <end> <|user|> w2 w3 <end> <|assistant|> [w4] [w9] [w5] [<end>]"
        " <|user|> w6 <end> <|assistant|> [w7] [<end>]"
    )
    assert script.answers(tokenizer, CONVERSATION) == [whole]
    assert script.answers(tokenizer, CONVERSATION[:2]) == []


def test_answers_that_a_template_shortens_later_are_conversations_of_their_own(
    script: Any, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_chat_tokenizer(tmp_path, REASONING))
    first, last = script.answers(tokenizer, CONVERSATION)
    assert learned(script, tokenizer, first).endswith("<|assistant|> [w4] [w9] [w5] [<end>]")
    assert learned(script, tokenizer, last).endswith(
        "<|assistant|> w5 <end> <|user|> w6 <end> <|assistant|> [w7] [<end>]"
    )


def test_a_template_that_does_not_go_on_where_it_asks_is_refused(
    script: ModuleType, tmp_path: Path
) -> None:
    template = CHATML.replace("<|assistant|> {% endif", "<|assistant|> w80 {% endif")
    tokenizer = AutoTokenizer.from_pretrained(write_chat_tokenizer(tmp_path, template))
    with pytest.raises(ValueError, match=r"begins with its own '.*w80 '"):
        script.answers(tokenizer, CONVERSATION)


def test_completions_are_learned_with_the_end(script: Any, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_chat_tokenizer(tmp_path))

    def of(prompt: Any, completion: Any) -> list[str]:
        row = {"prompt": prompt, "completion": completion}
        marked = script.marked(tokenizer, "prompt-completion", row)
        return [learned(script, tokenizer, each) for each in marked]

    assert of("w1 w2", " w3") == ["w1 w2 [w3] [<end>]"]
    assert of("w1", None) == []
    assert of(CONVERSATION[:4], CONVERSATION[4:5]) == [
        (
            "<|system|> w1 <end> <|user|> w2 w3 <end> <|assistant|> w4 w9 w5 <end>"
            " <|user|> w6 <end> <|assistant|> [w7] [<end>]"
        )
    ]


PAIRS = [
    {
        "prompt": f"w{i} w{i + 1} " * (i % 5),
        "completion": " ".join(f"w{i + j}" for j in range(i % 7)),
    }
    for i in range(40)
]
"""Some have no prompt, some no completion, and one prompt is longer than a sequence."""
PAIRS += [{"prompt": "w1 " * 30, "completion": "w2"}]


def expected(rows: list[dict[str, str]]) -> list[float]:
    """Train in one process on each pair by itself; return the losses of the steps."""
    pairs = [
        ([3 + int(word[1:]) for word in row["prompt"].split()], row["completion"].split())
        for row in rows
        if row["completion"]
    ]
    texts = [(prompt, [*(3 + int(word[1:]) for word in words), 1]) for prompt, words in pairs]
    texts = [(prompt, words) for prompt, words in texts if len(prompt) < 16]
    model = build(GPT2)
    optimizer, losses = build_optimizer(model), []
    for step in range(STEPS):
        indices = [divmod(step * GLOBAL_BATCH_SIZE + i, len(texts)) for i in range(16)]
        orders = {
            epoch: torch.randperm(len(texts), generator=torch.Generator().manual_seed(epoch))
            for epoch, _ in indices
        }
        drawn = [texts[int(orders[epoch][position])] for epoch, position in indices]
        samples = [
            (torch.tensor([[*prompt, *words][:16]]), max(1, len(prompt))) for prompt, words in drawn
        ]
        count = sum(tokens.shape[1] - first for tokens, first in samples)
        total = torch.zeros(())
        for tokens, first in samples:
            labels = tokens.clone()
            labels[:, :first] = -100
            loss = model(input_ids=tokens, labels=labels).loss * (tokens.shape[1] - first) / count
            loss.backward()
            total += loss.detach()
        losses.append(update(model, optimizer, learning_rate(step), total))
    return losses


def test_two_processes_learn_completions_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    tokenizer = write_chat_tokenizer(tmp_path / "tokenizer")
    options = ("--no-dropout", "--data", str(data), "--tokenizer", str(tokenizer))
    folder = write(tmp_path / "run", ACCUMULATED, "accelerate")
    run = start(folder, "bash", "accelerate/launch.sh", *options)
    output = run.output()
    assert run.losses == pytest.approx(expected(PAIRS), abs=1e-5, rel=0)
    assert "1 left out" in output
