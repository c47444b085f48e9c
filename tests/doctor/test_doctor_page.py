"""docs/doctor.md is what the commands print and the tables hold; `--update-golden` rewrites it."""

import tomllib
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import pytest

from planner import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/doctor.md"
SUBJECTS = sorted((ROOT / "data/symptoms").glob("*.toml"))
SCRIPT = """\
from accelerate import Accelerator


def main():
    accelerator = Accelerator()
    train_loader = make_loader()
    model, optimizer, ready_loader = accelerator.prepare(model, optimizer, train_loader)
    for step, batch in enumerate(train_loader):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
LOG = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 88, in <module>
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 23.64 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 22.54 GiB memory in use. Of the allocated memory 18.10 GiB is allocated by PyTorch, and 3.90 GiB is reserved by PyTorch but unallocated.
[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
COMMANDS = {
    "replicated": "--times 1=43.1,2=43.1,4=48.2 --batch-per-gpu 128 --fixed epochs",
    "start-up": "--times 1=43.1,4=28.1 --batch-per-gpu 128 --fixed epochs",
    "communication": "--times 1=200,4=80 --start-up-seconds 10",
    "script": "train.py",
    "log": "--error run.log",
}


def printed(arguments: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.argv", ["planner", "doctor", *arguments.split()])
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), suppress(SystemExit):
        cli.main()
    return f"```console\n$ planner doctor {arguments}\n{said.getvalue().rstrip()}\n```\n"


def subjects() -> str:
    """Return the table of what messages are about."""
    read = (tomllib.loads(path.read_text(encoding="utf-8")) for path in SUBJECTS)
    rows = [
        f"| {each['title']} | {len(known)} | {known[0]['title']} ({known[0]['code']}) |"
        for each in read
        if (known := each["symptom"])
    ]
    return "\n".join(["| about | messages | such as |", "| --- | --- | --- |", *rows, ""])


def replaced(page: str, name: str, body: str) -> str:
    head, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(f"<!-- /{name} -->")
    assert begin, name
    assert end, name
    return f"{head}{begin}{body}{end}{tail}"


def test_the_page_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("run.log").write_text(LOG)
    blocks = {name: printed(words, monkeypatch) for name, words in COMMANDS.items()}
    blocks["script"] = f"```python\n{SCRIPT}```\n\n{blocks['script']}"
    expected = text = PAGE.read_text(encoding="utf-8")
    for name, body in (blocks | {"messages": subjects()}).items():
        expected = replaced(expected, name, body)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(expected, encoding="utf-8")
        text = expected
    assert text == expected
