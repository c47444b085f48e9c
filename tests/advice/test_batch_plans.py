"""Batches: every way to make one, its steps, its rate, and what is warned of."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from planner.advice.batch_arithmetic import (
    BatchSplit,
    run_steps,
    scaled_rates,
    scheduler_end,
    splits,
)
from planner.cli import cli
from planner.core.errors import InvalidInputError


def ask(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, ["batch", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def read(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["batch", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


@given(
    ranks=st.integers(1, 64),
    micro=st.integers(1, 64),
    steps=st.integers(1, 64),
)
def test_both_ways_agree(ranks: int, micro: int, steps: int) -> None:
    (made,) = splits(ranks, micro_batch_size=micro, accumulation_steps=steps)
    ways = splits(ranks, global_batch_size=made.global_batch_size)
    assert made in ways
    assert {way.global_batch_size for way in ways} == {ranks * micro * steps}
    assert splits(
        ranks, global_batch_size=made.global_batch_size, accumulation_steps=steps
    ) == splits(ranks, global_batch_size=made.global_batch_size, micro_batch_size=micro)


def test_every_way_is_listed_once() -> None:
    ways = splits(4, global_batch_size=1024)
    pairs = [(way.micro_batch_size, way.gradient_accumulation_steps) for way in ways]
    assert pairs == [(2**n, 2 ** (8 - n)) for n in range(8, -1, -1)]


@pytest.mark.parametrize(
    ("given_sizes", "said", "hint"),
    [
        ({"global_batch_size": 30, "micro_batch_size": 10}, "passes of 20", "20 or 40"),
        ({"global_batch_size": 3, "accumulation_steps": 2}, "passes of 4", "nearest that do: 4"),
        ({}, "needs --global-batch-size", ""),
        ({"micro_batch_size": 2**24, "accumulation_steps": 9}, "global batch of", "at most"),
    ],
)
def test_what_does_not_divide_is_refused_with_what_does(
    given_sizes: dict[str, int], said: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        splits(2, **given_sizes)
    assert hint in caught.value.hint


@given(
    samples=st.integers(1, 10**6),
    ranks=st.integers(1, 32),
    micro=st.integers(1, 32),
    steps=st.integers(1, 32),
)
def test_steps_are_those_of_whole_batches(samples: int, ranks: int, micro: int, steps: int) -> None:
    split = BatchSplit(
        micro_batch_size=micro, gradient_accumulation_steps=steps, data_parallel_size=ranks
    )
    run = run_steps(split, samples, 1)
    assert run.steps == -(-samples // split.global_batch_size)
    assert 0 < run.last_step_samples <= split.global_batch_size
    assert (samples + run.padded_samples) % ranks == 0


def test_the_table_of_the_titans_is_69_hundredths_of_an_epoch() -> None:
    answer = ask("--gpus", "2", "--batch-per-gpu", "4", "--samples", "2319", "--max-steps", "200")
    assert answer["run"]["steps_per_epoch"] == 290
    assert "200 counts optimizer steps" in answer["warnings"][0]
    assert "1,600 samples (0.69 epochs)" in answer["warnings"][0]
    assert "give 100" in answer["warnings"][0]


def test_rates_follow_the_batch_or_its_root() -> None:
    root, linear = scaled_rates(3e-5, 128, 512)
    assert [root.learning_rate, linear.learning_rate] == pytest.approx([6e-5, 12e-5])
    assert "1706.02677" in linear.source
    assert "2205.10287" in root.source
    answer = ask("--gpus", "4", "--batch-per-gpu", "128", "--learning-rate", "3e-5")
    assert answer["tuned"]["batch"] == 128
    assert [round(rate["factor"]) for rate in answer["learning_rates"]] == [2, 4]


def test_a_models_rate_is_that_of_a_published_run() -> None:
    arguments = ("bert-base-uncased", "--gpus", "2", "--batch-per-gpu", "64")
    tuned = ask(*arguments, "--task", "sequence-classification")["tuned"]
    assert (tuned["learning_rate"], tuned["batch"]) == (2e-5, 32)
    assert "BERT" in tuned["source"]
    assert ask("gpt2", "--batch-per-gpu", "8", "--method", "lora")["tuned"]["learning_rate"] == 2e-4


def test_a_schedule_that_accelerate_steps_ends_early() -> None:
    assert scheduler_end(122, 4) == 31
    answer = ask("--gpus", "4", "--batch-per-gpu", "2", "--samples", "488", "--epochs", "2")
    assert answer["run"]["steps"] == 122
    assert answer["accelerate_schedule_ends_at_step"] == 31
    assert "schedule of 488 steps" in " ".join(answer["settings"]["accelerate"])
    assert ask("--batch-per-gpu", "2", "--samples", "9")["accelerate_schedule_ends_at_step"] is None


@pytest.mark.parametrize(("batch", "is_warned"), [("32", False), ("256", False), ("512", True)])
def test_few_steps_are_warned_of(batch: str, *, is_warned: bool) -> None:
    """Boytsov's runs of 40,000 samples at 8 per GPU, twice: 16 accumulated lost 4.2 points of F1."""
    arguments = ("--gpus", "4", "--batch-per-gpu", "8", "--global-batch-size", batch)
    answer = ask(*arguments, "--samples", "40000", "--epochs", "2")
    assert any("BAT002" in warning for warning in answer["warnings"]) is is_warned


def test_a_batch_that_grew_is_warned_of() -> None:
    arguments = ("--batch-per-gpu", "8", "--learning-rate", "3e-5")
    assert "8 times the batch" in ask("--gpus", "8", *arguments)["warnings"][0]
    assert ask("--gpus", "4", *arguments)["warnings"] == []


def test_what_is_printed_begins_with_the_four_numbers() -> None:
    text = read("--global-batch-size", "1024", "--dp", "4", "--chunks", "32")
    assert text.startswith("8 per GPU x 32 accumulation x 4 data parallel = 1,024 samples")
    assert "no_sync() on all but the last of each 32" in text
    assert "9 ways" in read("--global-batch-size", "1024", "--gpus", "4")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpus", "4", "--dp", "3", "--batch-per-gpu", "1"),
        ("--batch-per-gpu", "1", "--from-batch", "4"),
        ("--batch-per-gpu", "0"),
        ("--batch-per-gpu", "1", "--epochs", "nan"),
        ("--batch-per-gpu", "1", "--samples", "10", "--epochs", "0"),
        (),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["batch", *arguments])
    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, InvalidInputError | SystemExit)
