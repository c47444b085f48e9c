"""Help is one screen of what is used most, in groups and panels; --help-all has the rest."""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.catalog import records
from planner.cli import cli
from planner.cli.options import JobCommand
from planner.report.flags import flags

LINES = 40
OF_JOBS = ("suggest", "estimate", "memory", "replicas")


def shown(*words: str) -> str:
    """What a command prints on 80 columns, which click's runner has."""
    ended = CliRunner().invoke(cli, words)
    assert ended.exit_code == 0
    return ended.stdout


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z0-9-]+", text))


@pytest.mark.parametrize("command", ["", *OF_JOBS])
def test_help_is_one_screen(command: str) -> None:
    assert len(shown(*command.split(), "--help").splitlines()) <= LINES


@pytest.mark.parametrize("command", OF_JOBS)
def test_all_of_it_has_every_flag_of_a_request(command: str) -> None:
    found = cli.commands[command]
    assert isinstance(found, JobCommand)
    listed = flags_in(shown(command, "--help-all"))
    mine = {option for each in found.params for option in each.opts if option.startswith("--")}
    assert mine | {"--help", "--help-all"} <= listed
    assert flags_in(shown(command, "--help")) < listed
    assert len(mine) > len(OF_JOBS) * 10


def test_what_is_used_most_is_there_unasked() -> None:
    usual = flags_in(shown("suggest", "--help"))
    assert usual >= {"--gpus", "--nodes", "--gpu", "--seq-len", "--strategy", "--out", "--json"}
    assert "--tp" not in usual
    assert "--tp" in flags_in(shown("estimate", "--help"))
    assert flags()["cluster.gpus_per_node"].split()[0] in usual


def test_every_command_is_in_one_group_and_some_only_where_all_are_asked_for() -> None:
    listed = re.findall(r"^  ([a-z]+)  ", shown("--help-all"), re.MULTILINE)
    assert sorted(listed) == sorted(cli.commands)
    some = re.findall(r"^  ([a-z]+)  ", shown("--help"), re.MULTILINE)
    assert {"suggest", "check", "probe", "list"} <= set(some) < set(listed)


def test_help_takes_the_width_there_is_up_to_120(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    widest = []
    for columns in ("60", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        cli.main(["suggest", "--help-all"], standalone_mode=False)
        widest.append(max(map(len, capsys.readouterr().out.splitlines())))
    assert widest[0] <= 60
    assert 80 < widest[1] <= 120


@pytest.mark.parametrize("words", ["gpus h100", "models gpt2", "links ndr", "instances p5 --json"])
def test_a_list_is_what_its_old_name_prints(words: str) -> None:
    assert shown("list", *words.split()) == shown(*words.split())


def test_a_flag_of_other_tools_is_answered_with_what_it_is_here() -> None:
    mine = {option for each in cli.commands["suggest"].params for option in each.opts}
    for typed, meant in records.read("request", "flags")["meant"].items():
        assert f"--{typed}" not in mine, typed
        assert flags_in(meant) <= mine, meant
        ended = CliRunner().invoke(cli, ["suggest", "gpt2", f"--{typed}"])
        assert (ended.exit_code, meant in ended.stderr) == (2, True), typed
    for other in (["model", "gpt2", "--lora"], ["suggest", "gpt2", "--bogus"]):
        assert "No such option" in CliRunner().invoke(cli, other).stderr


def test_a_flag_is_meant_with_or_without_its_dashes() -> None:
    for typed in ("--num-gpus", "--num_gpus", "--numgpus", "--NumGPUs"):
        ended = CliRunner().invoke(cli, ["suggest", "gpt2", typed, "4"])
        assert (ended.exit_code, "write --gpus." in ended.stderr) == (2, True), typed


def test_a_command_of_other_tools_is_answered_with_what_it_is_here() -> None:
    for typed, meant in records.read("request", "flags")["commands"].items():
        assert typed not in cli.commands, typed
        assert meant.partition(" ")[0] in cli.commands, meant
        ended = CliRunner().invoke(cli, [typed, "gpt2"])
        assert (ended.exit_code, f"write planner {meant}." in ended.stderr) == (2, True), typed
    ended = CliRunner().invoke(cli, ["gpt2", "--gpus", "4"])
    assert (ended.exit_code, "write planner suggest gpt2." in ended.stderr) == (2, True)
    assert "explain" in CliRunner().invoke(cli, ["explian"]).stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("four", "--gpus 4"),
        ("Sixteen", "--gpus 16"),
        ("4x", "--gpus 4"),
        ("8 GPUs", "--gpus 8"),
        ("4.0", "--gpus 4"),
        ("1,024", "--gpus 1024"),
        ("many", "8"),
        ("", "8"),
    ],
)
def test_what_is_no_whole_number_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    ended = CliRunner().invoke(cli, ["suggest", "gpt2", "--gpus", typed])
    assert (ended.exit_code, f" {meant}." in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    "command",
    ["suggest gpt2 --topology", "topology", "suggest --batch", "calibrate --runs"],
)
def test_no_command_waits_for_who_writes_to_a_named_pipe(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended = CliRunner().invoke(cli, [*command.split(), str(pipe)])
    assert ended.exit_code != 0
    assert "named pipe" in f"{ended.stderr}{ended.exception}"


def test_gpus_with_their_name_belong_to_another_flag() -> None:
    ended = CliRunner().invoke(cli, ["suggest", "gpt2", "--gpus", "2x3090"])
    assert (ended.exit_code, "--gpu 2x3090" in ended.stderr) == (2, True)
