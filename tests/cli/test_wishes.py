from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from planner import cli
from planner.cli import wishes
from planner.core.errors import InvalidInputError


@pytest.mark.parametrize(
    "words",
    [
        ("--dp 2", "--pin dp=4"),
        ("--micro-batch-size 8", "--pin mbs=4"),
        ("--strategy zero-1", "--pin zero=3"),
        ("--strategy tp+pp", "--tp 1"),
        ("--strategy zero-1", "--pin hsdp"),
        ("--dp 4", "--pin dp=2x4"),
        ("--pin dp=4", "--pin dp=2"),
        ("--strategy zero-3+offload", "--offload none"),
        ("--sequence-parallel", "--pin sp=false"),
    ],
)
def test_words_that_contradict_each_other_are_both_named(words: tuple[str, str]) -> None:
    arguments = ["suggest", "gpt2", "--gpus", "4", *" ".join(words).split()]
    error = CliRunner().invoke(cli.cli, arguments).exception
    assert isinstance(error, InvalidInputError)
    assert error.message == f"{words[0]} and {words[1]} contradict each other"


@pytest.mark.parametrize(
    "said",
    [
        [{"data_parallel_size": 4}, {"data_parallel_size": 4}],
        [{"family": "fsdp"}, {"tensor_parallel_size": 2}],
        [{"family": "tp"}, {"zero_stage": 1}],
        [{"family": "tp+pp"}, {"tensor_parallel_size": 4}],
        [{"family": "hsdp"}, {"zero_stage": 3}],
        [
            {"data_parallel_size": 8},
            {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 4},
        ],
    ],
)
def test_what_says_more_of_a_layout_is_no_contradiction(said: list[Mapping[str, Any]]) -> None:
    found = wishes.together([(str(fields), fields) for fields in said])
    assert found == {name: value for fields in said for name, value in fields.items()}


@pytest.mark.parametrize("flag", ["--pin", "--why"])
def test_a_wish_that_cannot_be_read_names_the_flag_it_was_typed_for(flag: str) -> None:
    error = CliRunner().invoke(cli.cli, ["suggest", "gpt2", flag, "foo=1"]).exception
    assert isinstance(error, InvalidInputError)
    assert (error.field, "names: tp" in error.hint) == (flag, True)


def test_of_two_questions_none_is_left_unanswered_in_silence() -> None:
    arguments = ["suggest", "gpt2", "--why", "tp=2", "--why", "pp=2"]
    error = CliRunner().invoke(cli.cli, arguments).exception
    assert isinstance(error, InvalidInputError)
    assert (error.field, error.message) == ("--why", "2 questions at once: tp=2, pp=2")


@pytest.mark.parametrize(
    "text",
    ['{"tensor_parallel_size": NaN}', '{"family": -Infinity}', '{"family": ' + "[" * 100_000],
)
def test_a_strategy_of_what_no_json_has_is_refused(text: str) -> None:
    arguments = ["estimate", "gpt2", "--gpus", "4", "--gpu", "a100", "--strategy", text]
    error = CliRunner().invoke(cli.cli, arguments).exception
    assert isinstance(error, InvalidInputError)
    assert "is no JSON object" in error.message
