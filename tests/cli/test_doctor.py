import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from started import planner

WRONG = """
from accelerate import Accelerator

def main():
    accelerator = Accelerator()
    ready = accelerator.prepare(loader)
    for batch in loader:
        pass
"""
RIGHT = WRONG.replace("ready =", "loader =")
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 31.47 GiB of which"
    " 1.00 GiB is free. Of the allocated memory 29.00 GiB is allocated by PyTorch, and 0 bytes is"
    " reserved by PyTorch but unallocated."
)
REMARK = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
REQUEST = {"model": "gpt2", "cluster": {"gpu": "v100", "gpus_per_node": 2}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "binary").write_bytes(b"\x00" * 100)
    (tmp_path / "empty.log").write_text("\n")
    (tmp_path / "healthy.log").write_text(f"{REMARK}\n{{'loss': 1.2}}\n")
    (tmp_path / "run.log").write_text(f"step 1\n{OUT_OF_MEMORY}\n\x1b[31mred\n")
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["wrong.py"], 4, "line 7    DOC001"),
        (["right.py"], 0, "nothing found"),
        (["right.py", "wrong.py"], 4, "wrong.py: 1 fault"),
        (["wrong.py", "--format", "github"], 4, "::error file=wrong.py,line=7,title=DOC001"),
        (["--error", "run.log"], 0, "CUDA out of memory, line 2"),
        (["--error", "run.log", "--plan", "request.json"], 0, "the plan's peak is"),
        (["--error", "right.py"], 0, "Nothing known in"),
        (["--error", "healthy.log"], 0, "No error is in the log"),
        (["--error", "empty.log"], 0, "The log is empty"),
        (["--error", ""], 2, "no file is named"),
        (["--times", "1=43.1,2=43.1,4=48.2", "--fixed", "epochs"], 0, "Work replicated"),
        (["--times", "1=43.1,4=28.1", "--batch-per-gpu", "128"], 0, "512 on 4 GPUs"),
        ([], 2, "one of them"),
        (["wrong.py", "--error", "run.log"], 2, "one of them"),
        (["--times", "1=2,2=1", "--format", "github"], 2, "is for scripts"),
        (["--times", "1=2"], 2, "give two or more"),
        (["--times", "1=2,2=2", "--start-up-seconds", "5"], 2, "(--start-up-seconds)"),
        (["--error", "none.log"], 2, "No such file"),
        (["--error", "binary"], 2, "is binary, no log"),
        (["binary"], 2, "is binary, no script"),
        (["request.json"], 2, "planner check FILE"),
        (["/dev/null"], 2, "is no script"),
        (["none.py"], 2, "No such file"),
        (["."], 2, "hint:"),
        (["a\x00b"], 2, "hint:"),
    ],
)
def test_each_door_answers(
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, out, err = planner("doctor", *arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert ended == code, err
    assert said in " ".join(f"{out}{err}".split()) or said in out + err
    assert "\x1b[31m" not in out


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["wrong.py"], "scripts"),
        (["--error", "run.log"], "log"),
        (["--times", "1=2,2=1"], "timings"),
    ],
)
def test_each_answer_is_one_json_document(
    arguments: list[str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = planner("doctor", *arguments, "--json", monkeypatch=monkeypatch, capsys=capsys)
    answer = json.loads(out)
    assert answer["kind"] == kind
    assert answer["schema_version"]


def test_json_of_a_log_names_line_and_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = planner(
        "doctor", "--error", "run.log", "--json", monkeypatch=monkeypatch, capsys=capsys
    )
    answer = json.loads(out)
    assert answer["cause"]["line"] == 2
    assert answer["cause"]["symptom"]["code"] == "ERR005"
    assert answer["numbers"]["wanted_bytes"] == 20 * 2**30


def test_a_log_of_remarks_alone_has_no_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = planner(
        "doctor", "--error", "healthy.log", "--json", monkeypatch=monkeypatch, capsys=capsys
    )
    answer = json.loads(out)
    assert answer["cause"] is None
    (remark,) = answer["besides"]
    assert (remark["kind"], remark["symptom"]["code"]) == ("remark", "ERR081")


def test_a_log_may_come_from_stdin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(OUT_OF_MEMORY.encode())))
    code, out, _ = planner("doctor", "--error", "-", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "(ERR005)" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["DOC001"], "accelerator.prepare"),
        (["TIM003"], "every process does all"),
        (["ERR042"], "use_reentrant"),
        (["Expected to mark a variable ready only once"], "ERR042"),
        (["wrap-class-not-found"], "ERR047"),
        (["CUDA", "out", "of", "memory"], "OOM"),
        (["CUDA", "out", "of", "memory"], "As a message: planner explain ERR005"),
    ],
)
def test_explain_knows_the_codes_and_the_messages(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = planner("explain", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert said in out
