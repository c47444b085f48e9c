"""What the scripts read: kinds of files, columns; and what they say of data they cannot use."""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from datasets import Dataset
from launched import TINY, write
from several import load
from texts import END, FIRST_WORD, write_tokenizer

pytestmark = pytest.mark.usefixtures("preloaded")

Read = Callable[..., tuple[Any, Any]]
VOCABULARY = 96
LINES = [" ".join(f"w{(line * word) % 80}" for word in range(20)) for line in range(40)]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the script, which is alone in its process group."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    module = load(write(tmp_path, TINY, "torchrun") / "torchrun" / "train.py")
    module.join(argparse.Namespace(cpu=True))
    yield module
    dist.destroy_process_group()


@pytest.fixture
def read(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return the script's reading of what is named on its command line."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer")

    def of(*arguments: object) -> tuple[Any, Any]:
        named = ("--tokenizer", tokenizer, *arguments)
        monkeypatch.setattr("sys.argv", ["train.py", *map(str, named)])
        samples: tuple[Any, Any] = script.read_samples(script.parse_arguments(), VOCABULARY)
        return samples

    return of


def tokens_of(samples: Any, places: range) -> list[list[int]]:
    return [samples[place]["input_ids"].tolist() for place in places]


def test_every_kind_of_file_gives_the_same_rows(read: Read, tmp_path: Path) -> None:
    rows = Dataset.from_dict({"body": LINES})
    rows.to_csv(tmp_path / "a.csv")
    rows.to_parquet(tmp_path / "a.parquet")
    rows.to_json(tmp_path / "a.jsonl")
    (tmp_path / "a.json").write_text(json.dumps([{"body": line} for line in LINES]))
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    (tmp_path / "folder" / "part").mkdir(parents=True)
    rows.select(range(20)).to_parquet(tmp_path / "folder" / "0.parquet")
    rows.select(range(20, 40)).to_parquet(tmp_path / "folder" / "part" / "1.parquet")
    expected = tokens_of(read("--data", tmp_path / "a.txt")[0], range(60))
    for name in ("a.csv", "a.parquet", "a.jsonl", "a.json"):
        samples, _ = read("--data", tmp_path / name, "--text-column", "body")
        assert tokens_of(samples, range(60)) == expected
    folder, _ = read("--data", tmp_path / "folder", "--text-column", "body", "--num-proc", 2)
    assert len(folder.rows) == 2 * (20 * 21 // 16)  # each process packs its part


def words(lines: list[str]) -> list[int]:
    """Return the tokens of lines, the end after each."""
    return [
        token
        for line in lines
        for token in [*(FIRST_WORD + int(word[1:]) for word in line.split()), END]
    ]


@pytest.mark.parametrize(("name", "kind"), [("a.bin", "uint16"), ("a.npy", "int64")])
def test_files_of_tokens_are_read_as_they_are(
    read: Read, name: str, kind: str, tmp_path: Path
) -> None:
    """As much as the same text is, packed; in two files, neither of which is whole sequences long."""
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    whole = np.array(words(LINES), kind)
    expected, _ = read("--data", tmp_path / "a.txt")
    single = tmp_path / name
    np.save(single, whole) if single.suffix == ".npy" else whole.tofile(single)
    samples, _ = read("--data", single)
    assert tokens_of(samples, range(60)) == tokens_of(expected, range(60))
    (tmp_path / "parts").mkdir()
    for number, part in enumerate((whole[:330], whole[330:])):
        part.astype("uint16").tofile(tmp_path / "parts" / f"{number}.bin")
    rows, _ = read("--data", tmp_path / "parts")
    assert len(rows.rows) == 330 // 16 + (len(whole) - 330) // 16
    assert rows.rows[20]["input_ids"].tolist() == whole[330:346].tolist()
    whole[3] = VOCABULARY
    whole.tofile(tmp_path / "other.bin")
    if name == "a.bin":
        with pytest.raises(SystemExit, match=r"other.bin has tokens beyond the 96 of the model"):
            read("--data", tmp_path / "other.bin")


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ('{"body": "w1"}', (), "no column named text, but body"),
        ('{"messages": [{"role": "user"}]}', (), "no column named text, but messages"),
        ('{"text": null}', (), "too short for one sequence of 16"),
        ('{"text": ', (), "a.jsonl: "),
        ("", (), "a.jsonl is empty"),
        ('{"text": "w1"}\n{"text": 5}', (), "a.jsonl: row [12] holds [0-9w]*, which is no text"),
        ('{"text": ["w1", "w2"]}', (), "row 1 holds ..w1., .w2.., which is no text"),
        (
            '{"text": "w1"}',
            ("--eval-every", "1", "--eval-data", "nowhere"),
            "no nowhere: paths are",
        ),
        ('{"text": "w1"}', ("--eval-data", "a.jsonl"), "no a.jsonl: paths are"),
        ('{"text": "w1"}', ("--eval-every", "1"), "no share of 0.01 can be held out of 1 rows"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_a_line(
    read: Read, text: str, arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(text and text + "\n")
    with pytest.raises(SystemExit, match=says):
        read("--data", tmp_path / "a.jsonl", *arguments)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--steps", "0", "--steps 0 is too small"),
        ("--lr", "nan", "--lr nan is too small"),
        ("--workers", "-1", "--workers -1 is too small"),
        ("--beta2", "1", "--beta2 1.0 is not below 1"),
        ("--num-proc", "-1", "--num-proc -1 is too small"),
        ("--keep", "two", "invalid int value: 'two'"),
        ("--log", "no folder/log", "--log no folder/log is no file of a folder"),
    ],
)
def test_a_value_that_would_end_the_run_later_ends_it_at_once(
    read: Read, option: str, value: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "a file").touch()
    with contextlib.chdir(tmp_path), pytest.raises(SystemExit, match=says):
        read(option, value)


@pytest.mark.parametrize("option", ["--data", "--eval-data"])
def test_what_is_no_file_of_text_is_refused(read: Read, option: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    (tmp_path / "a.xml").write_text("<a/>")
    named = {"--data": tmp_path / "a.txt", "--eval-every": 1, option: tmp_path / "a.xml"}
    with pytest.raises(SystemExit, match=r"a\.xml: no files of one kind"):
        read(*(each for pair in named.items() for each in pair))


def test_a_run_says_how_often_it_reads_its_data(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    samples, _ = read("--data", tmp_path / "a.txt", "--steps", 100)
    rows = len(samples.rows)
    assert f"{rows} samples, read {100 * 16 / rows:.2f} times in all\n" in capsys.readouterr().out


def test_epochs_are_counted_in_samples(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    read("--data", tmp_path / "a.txt", "--epochs", 2, "--batch-size", 4)
    assert "52 samples, read 2.00 times in all\n" in capsys.readouterr().out


def test_a_share_is_held_out_and_not_trained_on(read: Read, tmp_path: Path) -> None:
    """Of forty texts the last ten."""
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    share = ("--eval-every", 1, "--eval-share", 0.25)
    samples, held_out = read("--data", tmp_path / "a.txt", *share)
    assert len(samples.rows) == 30 * 21 // 16
    rows = 10 * 21 // 16
    expected = np.reshape(words(LINES[30:])[: rows * 16], (rows, 16)).tolist()
    assert tokens_of(held_out, range(rows)) == expected
    assert (held_out[rows]["labels"] == -100).all()
    assert (held_out[rows - 1]["labels"][1:] != -100).all()
