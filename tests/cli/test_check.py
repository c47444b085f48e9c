import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from started import planner

from planner import cli

REQUEST = {"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 2}}
TOO_LARGE = {"model": "meta-llama/Llama-2-70b-hf", "cluster": {"gpu": "t4", "gpus_per_node": 1}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    (tmp_path / "large.json").write_text(json.dumps(TOO_LARGE))
    (tmp_path / "wrong.json").write_text(json.dumps(REQUEST | {"cluster": {"gpu": "no-such"}}))
    (tmp_path / "unknown.json").write_text('{"modle": "gpt2", "model": "gpt2", "recipes": {}}')
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["check", "request.json"], 0, "1 check passed"),
        (["check", "request.json", "--max-memory", "100%"], 0, "2 checks passed"),
        (["check", "request.json", "--max-memory", "1GiB"], 4, "FAIL  CHK002"),
        (["check", "large.json", "--max-memory", "1GiB"], 3, "FAIL  CHK001  nothing fits: "),
        (["check", "wrong.json"], 2, "wrong.json: unknown GPU 'no-such' (cluster.gpu)"),
        (["check", "unknown.json"], 2, "error: unknown.json: unknown field 'modle'\n"),
        (["check", "unknown.json"], 2, "error: unknown.json: unknown field 'recipes'\n"),
        (["check", "large.json", "request.json"], 3, "1 check passed"),
        (["check", "request.json", "--baseline", "request.json"], 0, "Nothing differs"),
        (["check", "request.json", "--max-step", "nan"], 2, "hint: such as 900ms"),
        (["check", "request.json", "--max-cost", "5"], 2, "(--max-cost)"),
        (["check", "request.json", "--max-step", "+5%"], 2, "--baseline FILE"),
        (["check", "request.json", "--max-growth", "5%"], 2, "hint: add --baseline FILE"),
        (["check", "request.json", "--write", "pdf=x"], 2, "FORMAT=FILE"),
        (["check", "request.json", "--write", "text=no/such/x"], 2, "cannot write"),
        (["check", "request.json", "--locked"], 2, "no lock"),
        (["check", "request.json", "--baseline", "large.json"], 3, "no plan to compare"),
        (["check", "large.json"], 3, " too much"),
        (["check", "request.json", "--gpus", "4"], 2, "request.json says that itself (--gpus N)"),
        (["check", "request.json", "--seq-len", "128"], 2, "(--seq-len N)"),
        (["check", "request.json", "--model", "gpt2"], 2, "(--model)"),
        (["check", "none.json"], 2, "No such file"),
        (["check", "."], 2, "a folder without a plan"),
        (["check"], 2, "nothing to check"),
        (["diff", "request.json", "request.json"], 0, "Nothing differs from request.json"),
        (["diff", "request.json", "request.json", "--format", "markdown"], 0, "Nothing differs"),
        (["diff", "-", "-"], 2, "read once"),
    ],
)
def test_each_outcome_has_its_exit_code_and_its_words(
    arguments: Sequence[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, out, err = planner(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert ended == code, out + err
    assert said in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize("flags", [["--json"], ["--format", "json"], ["--format=json"]])
def test_json_is_an_object_whatever_happens(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = planner("check", "request.json", *flags, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, json.loads(out)["ok"]) == (0, True)
    code, out, _ = planner("check", "none.json", *flags, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, json.loads(out)["error"]["field"]) == (2, "FILE")
    code, out, _ = planner(
        "diff", "request.json", "request.json", *flags, monkeypatch=monkeypatch, capsys=capsys
    )
    assert json.loads(out) == {"schema_version": "1.0", "changes": []}


def test_other_formats_are_written_beside_what_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = [f"--write={name}=out.{name}" for name in ("markdown", "junit", "sarif", "github")]
    arguments = ("check", "request.json", "--max-step", "1us", *written)
    code, out, _ = planner(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "CHK003" in out) == (4, True)
    for name in ("markdown", "junit", "sarif", "github"):
        text = (folder / f"out.{name}").read_text()
        assert "CHK003" in text
        assert "\x1b" not in text


def test_a_request_is_read_from_a_pipe_by_the_real_command() -> None:
    code = "import sys; from planner.cli import main; sys.argv = ['planner', 'check', '-']; main()"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, input=json.dumps(REQUEST), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("-: openai-community/gpt2 on 2 x a100")


def test_the_shell_completes_the_commands_their_flags_and_formats() -> None:
    shell = ShellComplete(cli.cli, {}, "planner", "_PLANNER_COMPLETE")

    def offered(words: list[str], start: str) -> set[str]:
        return {each.value for each in shell.get_completions(words, start)}

    assert offered([], "ch") == {"check"}
    assert offered(["check"], "--max-") == {
        "--max-memory", "--max-step", "--max-gpu-hours", "--max-cost", "--max-growth"
    }  # fmt: skip
    assert offered(["check", "--format"], "") == {
        "text", "json", "markdown", "github", "junit", "sarif"
    }  # fmt: skip
    assert offered(["diff", "--format"], "") == {"text", "json", "markdown"}
    assert offered(["suggest"], "--loc") == {"--lock"}


Started = Callable[..., tuple[int, str, str]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Started:
    return partial(planner, monkeypatch=monkeypatch, capsys=capsys)


def test_a_warning_fails_where_that_is_asked(folder: Path, started: Started) -> None:
    text = "output_dir: o\nper_device_train_batch_size: 1\nwarmup_ratio: 0.1\n"
    (folder / "args.yaml").write_text(text)
    assert started("check", "args.yaml")[0] == 0
    assert started("check", "args.yaml", "--fail-on", "warning")[0] == 4


def test_no_gpu_is_assumed_where_one_is_required(folder: Path, started: Started) -> None:
    text = "output_dir: o\nper_device_train_batch_size: 1\nmodel_name_or_path: gpt2\n"
    (folder / "args.yaml").write_text(text)
    command = ("check", "args.yaml", "--gpus", "2")
    assert "as no GPU is named (--gpu)" in " ".join(started(*command)[1].split())
    assert started(*command, "--require-gpu")[0] == 2
    code, out, _ = started(*command, "--require-gpu", "--gpu", "h100")
    assert code == 0
    assert "no GPU is named" not in out


def test_each_annotation_is_of_one_file(folder: Path, started: Started) -> None:
    text = "output_dir: o\nper_device_train_batch_size: 64\nmodel_name_or_path: gpt2-xl\n"
    (folder / "args.yaml").write_text(text)
    (folder / "run.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    command = ("check", "run.sh", "args.yaml", "--gpu", "t4", "--gpus", "2", "--format", "github")
    places = set(re.findall(r"file=(.*?),line", started(*command)[1]))
    assert places
    assert places <= {"args.yaml", "run.sh"}
