"""No number of a flag ends a command in a traceback, nan and infinity least of all."""

import click
import pytest
from click.testing import CliRunner

from planner import cli
from planner.cli.numbers import FiniteRange

SUGGEST = "suggest gpt2 --gpus 2 --gpu a100"
TIMES = "doctor --times 1=43,2=40"
FLAGS = [
    (f"{SUGGEST} --samples 10", "--epochs"),
    (SUGGEST, "--padding-share"),
    (TIMES, "--start-up-seconds"),
    (TIMES, "--loader-seconds"),
    ("calibrate --measure", "--budget"),
]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e308", "-1"])
@pytest.mark.parametrize(("command", "flag"), FLAGS)
def test_no_float_flag_takes_what_is_no_number(command: str, flag: str, number: str) -> None:
    ended = CliRunner().invoke(cli.cli, [*command.split(), flag, number])
    assert ended.exit_code == 2, ended.output
    assert flag in ended.stderr


@pytest.mark.parametrize("samples", ["0", "-1", f"1{'0' * 400}"])
def test_no_number_of_samples_is_too_large_to_multiply(samples: str) -> None:
    words = [*SUGGEST.split(), "--samples", samples, "--epochs", "1.5"]
    ended = CliRunner().invoke(cli.cli, words)
    assert (ended.exit_code, "--samples" in ended.stderr) == (2, True), ended.output


def test_every_float_flag_is_finite() -> None:
    floats = {
        option: parameter.type
        for command in cli.cli.commands.values()
        for parameter in command.params
        if isinstance(parameter.type, click.types.FloatParamType)
        for option in parameter.opts
    }
    assert floats.keys() >= {flag for _, flag in FLAGS}
    assert all(isinstance(each, FiniteRange) for each in floats.values())


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("command", [SUGGEST, "probe", "sweep grid.toml"])
def test_what_is_written_has_a_name(command: str, name: str) -> None:
    ended = CliRunner().invoke(cli.cli, [*command.split(), "--out", name])
    assert (ended.exit_code, "--out" in ended.stderr) == (2, True), ended.output
