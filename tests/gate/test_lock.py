import hashlib
import json
import re
import shlex
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.cli import cli
from planner.core.errors import InvalidInputError
from planner.gate.documents import LOCK_NAME, read_document
from planner.gate.limits import Check
from planner.gate.lock import check_lock
from planner.request.schema import parse_request

JOB = (
    "suggest",
    "gpt2",
    "--gpus",
    "2",
    "--gpu",
    "a100",
    "--framework",
    "torch",
    "--pin",
    "zero_stage=2",
)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "plan"
    assert run(*JOB, "--out", str(path), "--lock", "--target", "torchrun").exit_code == 0
    return path


def checked(folder: Path) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    checks, _ = check_lock(read_document(str(folder), BytesIO()))
    for each in checks:
        found.setdefault(each.code, []).append(each)
    return found


def edit_lock(folder: Path, change: Any) -> None:
    path = folder / LOCK_NAME
    lock = json.loads(path.read_text())
    change(lock)
    path.write_text(json.dumps(lock))


def test_a_folder_that_nobody_touched_holds(folder: Path) -> None:
    found = checked(folder)
    assert {code: [each.level for each in checks] for code, checks in found.items()} == {
        "CHK006": ["pass"],
        "CHK007": ["pass"],
        "CHK008": ["pass"],
    }
    lock = json.loads((folder / LOCK_NAME).read_text())
    assert parse_request(lock["request"]).strategy is not None
    assert set(lock["files"]) == {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK_NAME
    }


def test_the_ends_of_lines_are_gits_and_other_files_nobodys(folder: Path) -> None:
    script = folder / "torchrun/launch.sh"
    script.write_bytes(script.read_bytes().replace(b"\n", b"\r\n"))
    (folder / "checkpoints").mkdir()
    (folder / "notes.txt").write_text("mine")
    assert [each.level for each in checked(folder)["CHK008"]] == ["pass"]


def test_an_edited_and_a_missing_file_are_found_by_line(folder: Path) -> None:
    script = folder / "torchrun/launch.sh"
    lines = script.read_text().splitlines(keepends=True)
    script.write_text("".join([*lines[:4], "echo edited\n", *lines[5:]]))
    with (folder / "torchrun/train.py").open("a") as stream:
        stream.write("# more\n")
    (folder / "README.md").unlink()
    found = {Path(each.file).name: each for each in checked(folder)["CHK008"]}
    assert {each.level for each in found.values()} == {"error"}
    assert found["launch.sh"].line == 5
    assert found["train.py"].line > 100
    assert "is gone" in found["README.md"].message


def test_a_lock_away_from_its_folder_is_told_in_one_line(folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    (folder / LOCK_NAME).rename(alone)
    result = run("check", "--locked", str(alone))
    assert result.exit_code == 4
    assert result.output.count("FAIL") == result.output.count("hint:") == 1
    assert re.search(r"\d+ files are gone: a lock is checked in its", result.output)


def test_many_that_are_gone_are_one_line_and_what_is_edited_another(folder: Path) -> None:
    gone = sorted(path for path in folder.rglob("*.py") if path.parent.name == "torchrun")
    for path in gone:
        path.unlink()
    (folder / "README.md").write_text("edited")
    first, second = checked(folder)["CHK008"]
    names = ", ".join(str(path.relative_to(folder)) for path in gone[:3])
    assert first.message == f"{len(gone)} files are gone: {names}, ..."
    assert "is not what was locked" in second.message
    result = run("check", "--locked", str(folder))
    codes = re.findall(r"CHK\d+", result.output)
    assert codes == sorted(codes)
    assert result.output.count("hint:") == 1


def test_the_command_that_writes_a_lock_again_can_be_pasted(folder: Path) -> None:
    (folder / "README.md").write_text("edited")
    (found,) = checked(folder)["CHK008"]
    command = found.hint.partition("`")[2].rpartition("`")[0]
    assert str(folder) in command
    assert run(*shlex.split(command)[1:]).exit_code == 0
    assert {each.level for checks in checked(folder).values() for each in checks} == {"pass"}


def test_a_request_that_no_command_can_say_is_left_to_the_reader(folder: Path) -> None:
    (folder / "README.md").write_text("edited")
    edit_lock(
        folder,
        lambda lock: (
            lock["request"].setdefault("recipe", {}).update(method="lora", lora={"alpha": 16})
        ),
    )
    assert {each.hint for each in checked(folder)["CHK008"]} == {
        "write it again: `planner suggest ... --out DIR --lock --force`"
    }


def test_a_file_that_is_no_file_is_gone(folder: Path) -> None:
    (folder / "README.md").unlink()
    (folder / "README.md").mkdir()
    (found,) = checked(folder)["CHK008"]
    assert "is gone" in found.message


def test_what_is_planned_otherwise_now_is_told(folder: Path) -> None:
    def older(lock: dict[str, Any]) -> None:
        lock["answer"]["chosen"]["time"]["step_seconds"] *= 2
        lock["versions"]["planner"] = "0.0.1\n\x1b[31m"

    edit_lock(folder, older)
    document = read_document(str(folder), BytesIO())
    checks, changes = check_lock(document)
    assert [each.label for each in changes] == ["step"]
    assert checks[0].level == "error"
    assert "planned otherwise now: step; locked by planner 0.0.1" in checks[0].message
    assert checks[0].message.isprintable()


def test_what_is_written_otherwise_now_is_told(folder: Path) -> None:
    def otherwise(lock: dict[str, Any]) -> None:
        lock["files"]["torchrun/old.py"] = "sha256:0"
        lock["files"].pop("README.md")

    edit_lock(folder, otherwise)
    said = [each.message for each in checked(folder)["CHK007"]]
    assert len(said) == 2
    assert said[0].endswith("README.md is written now, and not locked")
    assert said[1].endswith("torchrun/old.py is no longer written")


def test_the_last_digits_of_another_machine_are_no_difference(folder: Path) -> None:
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    plan["chosen"]["time"]["step_seconds"] *= 1 + 1e-12
    path.write_text(json.dumps(plan, indent=2) + "\n")
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    edit_lock(folder, lambda lock: lock["files"].update({"plan.json": digest}))
    assert {each.level for checks in checked(folder).values() for each in checks} == {"pass"}


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "a/../../b", "a\nb"])
def test_a_lock_cannot_reach_out_of_its_folder(folder: Path, name: str) -> None:
    edit_lock(folder, lambda lock: lock["files"].update({name: "sha256:0"}))
    with pytest.raises(InvalidInputError, match="has no file"):
        checked(folder)


def test_a_lock_of_another_type_is_refused(folder: Path) -> None:
    edit_lock(folder, lambda lock: lock["files"].update({"README.md": 3}))
    with pytest.raises(InvalidInputError, match="has no file"):
        checked(folder)
    edit_lock(folder, lambda lock: lock.update(request={"model": 3}))
    with pytest.raises(InvalidInputError, match="model"):
        checked(folder)


def test_the_command_that_holds_a_lock_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "plan; touch oops"
    said = run(*JOB, "--out", str(folder), "--lock").stderr
    command = said.partition("commit it, and `")[2].partition("` holds it")[0]
    assert shlex.split(command) == ["planner", "check", str(folder / LOCK_NAME), "--locked"]


def test_a_plan_without_files_is_locked_here_and_not_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*JOB, "--lock").exit_code == 0
    result = run("check", "--locked", LOCK_NAME)
    assert (result.exit_code, "planned as it was locked" in result.output) == (0, True)
    with pytest.raises(InvalidInputError, match="exists"):
        run(*JOB, "--lock")
    assert run(*JOB, "--lock", "--force").exit_code == 0
    (tmp_path / "plan.json").write_text(run(*JOB, "--json").stdout)
    with pytest.raises(InvalidInputError, match="is a plan, no lock"):
        run("check", "--locked", "plan.json")
