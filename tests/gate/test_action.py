"""The steps of the action are run as a runner runs them, against an API of ours on loopback."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partialmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml
from committed import plan_answer
from needed import need
from script_checks import TOOLS

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/check"
HANDED = "ghs_0123456789abcdef"
BOT = "github-actions[bot]"


@dataclass
class Api:
    """What GitHub would have, and what it was asked."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    authorized: set[str | None] = field(default_factory=set)
    refuses: bool = False

    def say(self, body: str, login: str = BOT) -> None:
        """Add a comment."""
        number = len(self.comments) + 1
        self.comments.append({"id": number, "body": body, "user": {"login": login}})

    def mine(self) -> list[str]:
        """Return the action's comments."""
        return [each["body"] for each in self.comments if "planner-check" in each["body"]]


@pytest.fixture
def api() -> Generator[Api]:
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, method: str) -> None:
            state.calls.append((method, self.path))
            state.authorized.add(self.headers["Authorization"])
            raw = self.rfile.read(int(self.headers["Content-Length"] or 0))
            body = json.loads(raw)["body"] if raw else ""
            answer: Any = {}
            if method == "POST":
                state.say(body)
            elif method == "PATCH":
                state.comments[int(self.path.rpartition("/")[2]) - 1]["body"] = body
            else:
                page = int(self.path.rpartition("page=")[2])
                answer = state.comments[100 * (page - 1) : 100 * page]
            self.send_response(403 if state.refuses else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    for method in ("GET", "POST", "PATCH"):
        setattr(Handler, f"do_{method}", partialmethod(Handler.answer, method))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def planner(tmp_path: Path) -> Path:
    """The command, of this checkout."""
    path = tmp_path / "bin/planner"
    path.parent.mkdir()
    call = "from planner.cli import main; main()"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{call}' \"$@\"\n")
    path.chmod(0o755)
    return path


def request(**parts: Any) -> str:
    return json.dumps({"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 2}, **parts})


@dataclass
class Pull:
    """A pull request: a checkout, its base, and the runner's variables."""

    folder: Path
    planner: Path
    api: Api
    event: dict[str, Any] = field(default_factory=dict)
    summary: str = ""
    status: str = ""

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(self.folder), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def opened(self, before: dict[str, str], after: dict[str, str]) -> "Pull":
        self.folder.mkdir()
        self.git("init", "-q")
        base = self.commit(before)
        self.commit(after)
        text = '"; touch owned #$(touch owned)`touch owned`\n::error::owned'
        self.event = {
            "pull_request": {"number": 7, "base": {"sha": base}, "title": text, "body": text}
        }
        return self

    def run(self, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run the steps after the installation."""
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        given = {name: each.get("default", "") for name, each in action["inputs"].items()}
        given |= {"token": HANDED, "planner": str(self.planner)}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        step = action["runs"]["steps"][-1]
        taken = {
            name: given[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, value in step["env"].items()
        }
        around = self.folder.parent
        for name in ("summary", "output"):
            (around / name).write_text("")
        (around / "event.json").write_text(json.dumps(self.event))
        (around / "script").write_text(step["run"])
        variables = {
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(around),
            "RUNNER_TEMP": str(around),
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_API_URL": self.api.url,
            "GITHUB_REPOSITORY": "someone/repository",
            "GITHUB_EVENT_PATH": str(around / "event.json"),
            "GITHUB_STEP_SUMMARY": str(around / "summary"),
            "GITHUB_OUTPUT": str(around / "output"),
        }
        ended = subprocess.run(
            [
                which("bash") or "bash",
                "--noprofile",
                "--norc",
                "-eo",
                "pipefail",
                str(around / "script"),
            ],
            cwd=self.folder,
            env=variables | taken,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        self.summary = (around / "summary").read_text()
        self.status = (around / "output").read_text()
        assert HANDED not in ended.stdout + ended.stderr + self.summary + self.status
        assert not list(around.rglob("owned"))
        return ended


@pytest.fixture
def pull(tmp_path: Path, planner: Path, api: Api) -> Pull:
    for program in ("git", "jq", "curl"):
        need(program, get=f"apt-get install {program}")
    return Pull(folder=tmp_path / "checkout", planner=planner, api=api)


def plan(tokens: int = 1024) -> str:
    answer = plan_answer()
    answer["job"]["recipe"]["sequence_length"] = tokens
    return json.dumps(answer)


def test_no_step_has_words_of_a_user_in_its_script() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
    check = subprocess.run([f"{TOOLS}/shellcheck", str(ACTION / "check.sh")], check=False)
    assert check.returncode == 0


def test_one_comment_follows_the_difference_to_the_base_branch(pull: Pull) -> None:
    for _ in range(120):
        pull.api.say("words of others", "someone")
    pull.opened({"plan.json": plan(512)}, {"plan.json": plan(1024)})
    assert pull.run(file="plan.json").returncode == 0
    (first,) = pull.api.mine()
    assert "| sequence length | 512 | 1,024 | +100 % |" in first
    assert "Different from the baseline" in pull.summary
    assert pull.status == "status=0\n"
    assert pull.api.authorized == {f"Bearer {HANDED}"}
    pull.run(file="plan.json")
    assert [method for method, _ in pull.api.calls] == ["GET", "GET", "POST", "GET", "GET"]
    pull.commit({"plan.json": plan(512)})
    pull.run(file="plan.json")
    (second,) = pull.api.mine()
    assert "Nothing differs from the baseline" in second
    assert pull.api.calls[-1] == ("PATCH", "/repos/someone/repository/issues/comments/121")


def test_nothing_changed_is_no_comment_and_another_file_another(pull: Pull) -> None:
    pull.opened({"plan.json": plan()}, {"other.json": plan()})
    assert pull.run(file="plan.json").returncode == 0
    assert pull.api.mine() == []
    assert "1 check passed" in pull.summary
    pull.run(file="other.json")
    (comment,) = pull.api.mine()
    assert "Different" not in comment


def test_a_comment_that_somebody_else_forged_is_left_alone(pull: Pull) -> None:
    pull.opened({}, {"plan.json": plan()})
    pull.run(file="plan.json")
    forged = pull.api.comments.pop()["body"]
    pull.api.say(forged, "someone")
    pull.run(file="plan.json")
    assert [each["user"]["login"] for each in pull.api.comments] == ["someone", BOT]


def test_a_broken_limit_fails_the_step_and_is_annotated(pull: Pull) -> None:
    before, after = (request(recipe={"global_batch_size": size}) for size in (64, 512))
    pull.opened({"plan.json": before}, {"plan.json": after})
    inputs = {"max_memory": "1GiB", "junit": "junit.xml", "sarif": "plan.sarif"}
    ended = pull.run(file="plan.json", max_growth="5%", **inputs)
    assert (ended.returncode, pull.status) == (4, "status=4\n")
    assert "::error file=plan.json,line=1,title=CHK002 memory::" in ended.stdout
    assert "::error file=plan.json,line=1,title=CHK003 step::" in ended.stdout
    assert (pull.folder / "junit.xml").exists()
    assert json.loads((pull.folder / "plan.sarif").read_text())["version"] == "2.1.0"


def test_a_locked_folder_is_held(pull: Pull, tmp_path: Path) -> None:
    out = tmp_path / "made"
    command = [str(pull.planner), "suggest", "gpt2", "--gpu", "a100", "--gpus", "2", "--lock"]
    command += ["--target", "torchrun"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--out", str(out)], check=True, env=environment, capture_output=True)
    made = {
        f"plan/{path.relative_to(out)}": path.read_text()
        for path in out.rglob("*")
        if path.is_file()
    }
    pull.opened(made, {"plan/torchrun/train.py": "pass\n"})
    ended = pull.run(file="plan", locked="true")
    assert ended.returncode == 4
    assert "::error file=plan/torchrun/train.py,line=" in ended.stdout


@pytest.mark.parametrize(
    "name",
    [
        "--help",
        "a;touch owned",
        "$(touch owned)",
        "a b/`touch owned`.json",
        "::error::owned",
        "a\n::error::owned",
    ],
)
def test_a_hostile_path_is_a_path(pull: Pull, name: str) -> None:
    pull.opened({name: plan(512)}, {name: plan(1024)})
    ended = pull.run(file=name)
    assert ended.returncode == 0, ended.stderr
    assert len(pull.api.mine()) == 1
    assert not [line for line in ended.stdout.splitlines() if line.startswith("::error")]


def test_a_file_that_cannot_be_read_is_said_in_the_summary(pull: Pull) -> None:
    pull.opened({}, {"plan.json": '{"model": "gpt2", "::error::x\\n::error::y": 1}'})
    ended = pull.run(file="plan.json")
    assert ended.returncode == 2
    assert "could not judge" in pull.summary
    (said,) = [line for line in (ended.stdout + ended.stderr).splitlines() if line.startswith("::")]
    assert said.startswith("::error file=plan.json,title=planner check::error: plan.json: ")
    assert pull.api.calls == []


def test_an_unknown_gpu_is_annotated_with_the_nearest_that_is_known(pull: Pull) -> None:
    wrong = json.dumps({"model": "gpt2", "cluster": {"gpu": "h1000", "gpus_per_node": 4}})
    pull.opened({}, {"plans/50%,a.json": wrong})
    ended = pull.run(file="plans/*.json")
    assert ended.returncode == 2
    (said,) = [line for line in ended.stdout.splitlines() if line.startswith("::")]
    assert said.startswith("::error file=plans/50%25%2Ca.json,title=planner check::")
    assert "'h1000' (cluster.gpu)%0Ahint: did you mean h100" in said


def test_what_was_wrong_at_the_base_does_not_stop_its_repair(pull: Pull) -> None:
    pull.opened({"plan.json": "{"}, {"plan.json": plan()})
    assert pull.run(file="plan.json").returncode == 0
    assert "1 check passed" in pull.summary


def test_without_the_right_to_comment_the_verdict_stands(pull: Pull) -> None:
    pull.api.refuses = True
    pull.opened({}, {"plan.json": plan()})
    ended = pull.run(file="plan.json")
    assert ended.returncode == 0
    assert "::warning title=planner check::the comment could not be written" in ended.stdout


def test_a_push_has_a_summary_and_no_comment(pull: Pull) -> None:
    pull.opened({}, {"plan.json": plan()})
    pull.event = {"ref": "refs/heads/main"}
    assert pull.run(file="plan.json").returncode == 0
    assert "1 check passed" in pull.summary
    assert pull.api.calls == []


def test_a_pattern_judges_each_file_and_the_worst_is_its_status(pull: Pull) -> None:
    files = {"plans/a.json": plan(), "plans/b c.json": "{}"}
    pull.opened(files, {**files, "plans/a.json": plan(512)})
    assert pull.run(file="plans/*.json", junit="../report.xml").returncode == 2
    assert pull.status.splitlines() == ["status=0", "status=2", "status=2"]
    assert (pull.folder.parent / "report-0.xml").exists()
    (comment,) = pull.api.mine()
    assert "| sequence length | 1,024 | 512 |" in comment
    ended = pull.run(file="none/*.json")
    assert (ended.returncode, pull.status) == (2, "status=2\n")
    assert "::error title=planner check::no file matches none/*.json" in ended.stdout


def test_a_pattern_of_folders_reaches_any_depth(pull: Pull) -> None:
    files = {f"plans/{name}.json": plan() for name in ("a", "b/c", "b/d/e")}
    pull.opened(files, files)
    assert pull.run(file="plans/**/*.json", sarif="new/folder/plan.sarif").returncode == 0
    written = sorted(path.name for path in (pull.folder / "new" / "folder").iterdir())
    assert written == ["plan-0.sarif", "plan-1.sarif", "plan-2.sarif"]
