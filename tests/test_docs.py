"""The README cannot lie: its output and its figures are regenerated and compared.

`pytest --update-golden tests/test_docs.py` rewrites them; read the diff.
"""

import ast
import pkgutil
import re
import shlex
import statistics
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from itertools import chain
from pathlib import Path

import pytest
from conftest import JobMaker

import planner.hardware.probe
from planner import __version__, cli
from planner.catalog.news import news
from planner.core.units import GIB
from planner.domain.strategy import Layout, Recompute
from planner.memory.ledger import estimate_memory
from planner.report.first_screen import LINES
from planner.report.values import WIDTH

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ACCURACY = ROOT / "docs/accuracy"
USING = ROOT / "docs/using.md"
CI = ROOT / "docs/ci.md"
CONTRIBUTING = ROOT / ".github/CONTRIBUTING.md"
PAGES = (README, CONTRIBUTING, ROOT / "data/README.md", *sorted((ROOT / "docs").rglob("*.md")))
OTHER_FOLDERS = ("api", "web", "data", "tests", "docs")
STRANGERS_QUESTIONS = {
    "the time of an all-reduce",
    "a rule",
    "what FSDP keeps",
    "where a topology dump is read",
    "the Slurm script",
}
EXAMPLE = ROOT / "docs/example-plan.md"
FIRST_SCREENS = ROOT / "docs/first-screens.md"
DEMO = ("suggest", "gpt2", "--gpus", "4")
SCREENS = {
    "four-3090": "gpt2 --gpus 4 --gpu 3090",
    "eight-h100": "meta-llama/Llama-3.1-8B --gpus 8 --gpu h100",
    "dpo": "Qwen/Qwen2.5-7B --gpus 8 --gpu h100 --job dpo",
    "qlora": "meta-llama/Llama-3.1-8B --gpus 1 --gpu 4090 --method qlora",
    "two-nodes": "meta-llama/Llama-3.1-70B --gpus 8 --nodes 2 --gpu h100",
    "experts": "mistralai/Mixtral-8x7B-v0.1 --gpus 8 --nodes 2 --gpu a100 --framework megatron",
    "bert": "bert-large-uncased --gpus 4 --gpu v100",
    "t5": "google/flan-t5-xl --gpus 4 --gpu a100",
    "too-large": "meta-llama/Llama-2-7b-hf --gpus 1 --gpu 4090",
    "slow-network": "gpt2 --gpus 4 --nodes 2 --gpu 3090 --inter-node ethernet-1g",
    "largest": "meta-llama/Llama-3.1-405B --gpus 8 --nodes 2048 --gpu h100",
}
"""Jobs whose first screens are read; those whose block docs/first-screens.md has are shown there."""


def check_block(marker: str, body: str, *, update: bool, page: Path = README) -> None:
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    expected = pattern.sub(lambda match: match[1] + body + match[2], text)
    if update:
        page.write_text(expected, encoding="utf-8")
        text = expected
    assert text == expected, "what was meant: pytest --update-golden tests/test_docs.py"


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.mark.parametrize(
    ("page", "command"), [(README, DEMO), (EXAMPLE, (*DEMO, "--verbose"))], ids=["readme", "whole"]
)
def test_the_terminal_blocks_are_the_commands_real_output(
    page: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    check_block("demo", console(command, monkeypatch), update=update, page=page)


@pytest.mark.parametrize("job", SCREENS)
def test_a_first_screen_is_short_and_what_the_page_shows(
    job: str, monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    block = console(("suggest", *SCREENS[job].split()), monkeypatch)
    assert len(block.splitlines()) <= LINES + len(["```console", "$ planner", "```"])
    assert max(map(len, block.splitlines()[2:])) <= WIDTH or "\nerror: " in block
    if f"<!-- {job} -->" in FIRST_SCREENS.read_text(encoding="utf-8"):
        check_block(job, block, update=update, page=FIRST_SCREENS)


def console(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a command and what it prints, as a block of a page."""
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: None)
    monkeypatch.setattr("sys.argv", ["planner", *command])
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed), suppress(SystemExit):
        cli.main()
    return f"```console\n$ planner {' '.join(command)}\n{printed.getvalue().rstrip()}\n```\n"


def test_the_accuracy_table_is_what_the_measurements_give(
    make_job: JobMaker, *, update: bool
) -> None:
    measured = tomllib.loads((ROOT / "data/measurements/pytorch_peaks.toml").read_text())
    lines = [
        "| model | layout | measured | estimated | error |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    errors = []
    for row in measured["rows"]:
        run = dict(zip(measured["columns"], row, strict=True))
        ranks, batch, stage = run["ranks"], run["micro_batch_size"], run["zero_stage"]
        recipe = {name: run[name] for name in ("precision", "attention", "sequence_length")}
        job = make_job(
            run["model"], gpus=ranks, recipe=recipe | {"global_batch_size": batch * ranks}
        )
        strategy = Layout(
            data_parallel_shard_size=ranks if stage else 1,
            zero_stage=stage,
            micro_batch_size=batch,
            recompute=Recompute(run["recompute"]),
        )
        peak = estimate_memory(job, strategy).peak_bytes / GIB
        errors.append(abs(peak / run["peak_gib"] - 1))
        layout = f"ZeRO-{stage} on {ranks} GPUs" if stage else "one GPU"
        recompute = ", recompute" if run["recompute"] == "full" else ""
        lines.append(
            f"| {run['model']} | {layout}, {run['precision']}, {run['attention']}, {batch} x"
            f" {run['sequence_length']:,}{recompute} | {run['peak_gib']:.2f} GiB | {peak:.2f} GiB"
            f" | {peak / run['peak_gib'] - 1:+.1%} |"
        )
    summary = f"Median error {statistics.median(errors):.1%}, largest {max(errors):.1%}."
    body = "\n".join((*lines, "", summary)) + "\n"
    check_block("accuracy", body, update=update, page=ACCURACY / "memory.md")


def rows_of(page: str, marker: str) -> list[list[str]]:
    """Return the cells of a generated table, without its head."""
    text = (ACCURACY / page).read_text(encoding="utf-8")
    block = text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]
    rows = [line[1:-1].split("|") for line in block.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def percent(cell: str) -> float:
    return abs(float(cell.rstrip(" %")))


def between(rows: Sequence[Sequence[str]], column: int) -> str:
    """Return the best and the worst cell of a column, each with the name of its row."""
    ordered = sorted((row for row in rows if row[column]), key=lambda row: percent(row[column]))
    best, worst = ((row[column], row[0]) for row in (ordered[0], ordered[-1]))
    return f"{best[0]} ({best[1]}) to {worst[0]} ({worst[1]})"


def of_own_files(page: str, gpu: str) -> str:
    """Return how far off the steps of the planner's files were on one GPU, from the table of its page."""
    errors = [float(row[4].rstrip("* ").rstrip("%")) for row in rows_of(page, "runs") if row[4]]
    middle = statistics.median(map(abs, errors))
    return (
        f"[One {gpu}](docs/accuracy/{page}), {len(errors)} runs: the predicted step is {middle:.0f} % off at the median,"
        f" {min(errors):+.0f} % to {max(errors):+.0f} % at worst."
    )


def accuracy_lines() -> Iterator[str]:
    """Yield README's table, from the tables of the pages that other tests keep true."""
    yield " ".join(of_own_files(f"{gpu.lower()}.md", gpu) for gpu in ("H100", "H200"))
    yield ""
    yield "| predicted | against | median error (best source to worst) | nine in ten within |"
    yield "| --- | --- | --- | --- |"
    errors = sorted(percent(row[-1]) for row in rows_of("memory.md", "accuracy"))
    p90 = statistics.quantiles(errors, n=10, method="inclusive")[-1]
    yield (
        f"| [memory](docs/accuracy/memory.md) | {len(errors)} jobs under PyTorch's fake tensors |"
        f" {statistics.median(errors):.1f} % | {p90:.1f} % |"
    )
    runs = "docs/accuracy/runs.md"
    read = [row for row in rows_of("runs.md", "memory") if row[2]]
    count = sum(int(row[2]) for row in read)
    spans = f"{between(read, 3)} | {between(read, 4)}"
    yield f"| [memory]({runs}#memory) | {count:,} readings of published runs | {spans} |"
    timed = rows_of("runs.md", "time")
    count = sum(int(row[1]) for row in timed)
    spans = f"{between(timed, 3)} | {between(timed, 5)}"
    yield f"| [step time]({runs}#step-time) | {count:,} published runs | {spans} |"
    rows = [row for row in rows_of("runs.md", "left-out") if row[2] != "its other half"]
    left_out = [[f"{row[0]}, {row[1]}", *row[2:]] for row in rows]
    link = f"{runs}#step-time-of-a-source-left-out"
    yield f"| [step time]({link}) | a source nothing was fitted on | {between(left_out, 2)} | |"
    chosen = rows_of("runs.md", "choice")
    count = sum(int(row[1]) for row in chosen)
    spans = f"of the step lost: {between(chosen, 3)} | {between(chosen, 4)}"
    yield f"| [fastest layout]({runs}#choice) | {count:,} groups of published runs | {spans} |"
    seen = rows_of("collectives.md", "within")[-1]
    for against, column in (("NCCL on a measured machine", 2), ("NCCL on one never seen", 6)):
        cells = f"{seen[column]} | {seen[column + 1]}".replace("%", " %")
        yield f"| [collective](docs/accuracy/collectives.md) | {against} | {cells} |"


def test_the_readmes_figures_are_those_of_the_pages(*, update: bool) -> None:
    check_block("accuracy", "\n".join(accuracy_lines()) + "\n", update=update)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_every_command_has_help_and_is_told_of() -> None:
    text = README.read_text(encoding="utf-8") + USING.read_text(encoding="utf-8")
    for name, command in cli.cli.commands.items():
        assert command.help
        assert f"planner {name}" in text


@pytest.mark.parametrize("page", [README, USING, CI], ids=lambda page: page.stem)
def test_every_shown_command_line_is_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("node.json", "requests.jsonl"):
        (tmp_path / name).touch()
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"^\$ (?:.* \| )?planner (\S+)(.*)$", text, re.MULTILINE)
    assert shown
    for name, arguments in shown:
        with cli.cli.commands[name].make_context(name, shlex.split(arguments)):
            pass


def test_a_line_that_is_quoted_is_in_the_plan() -> None:
    reading = README.read_text(encoding="utf-8").partition("## How to read a plan")[2]
    guide, _, plan = EXAMPLE.read_text(encoding="utf-8").partition("<!-- demo -->")
    quoted = re.findall(r"`(\d[^`]+)`", reading.partition("\n## ")[0] + guide)
    assert quoted
    assert [line for line in quoted if line not in plan] == []


def test_the_tree_is_the_folders() -> None:
    tree = README.read_text(encoding="utf-8").split("## The tree")[1].split("```")[1]
    folders = {path.parent.name for path in (ROOT / "planner").glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == folders
    assert set(re.findall(r"^(\w+)/ ", tree, re.MULTILINE)) == {"planner", *OTHER_FOLDERS}
    assert not [
        path
        for path in (ROOT / "planner").glob("*.py")
        if path.stem not in {"__init__", "__main__"}
    ]


def test_every_folder_says_in_one_line_what_it_is() -> None:
    folders = [
        path for room in ("planner", "api", "web") for path in (ROOT / room).rglob("__init__.py")
    ]
    for path in folders:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert docstring.splitlines() == [docstring], path


def where_is() -> dict[str, tuple[Path, str]]:
    """Return what CONTRIBUTING says is where: a file or folder, and what to look for in it."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    section = text.partition("## Where is ...\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| `(.+?)` \| `(.+?)` \|$", section, re.MULTILINE)
    return {what: (ROOT / where, sought) for what, where, sought in rows}


def test_what_a_stranger_asks_for_is_where_it_is_said_to_be() -> None:
    places = where_is()
    assert set(places) >= STRANGERS_QUESTIONS
    for what, (place, sought) in places.items():
        files = [place] if place.is_file() else [path for path in place.iterdir() if path.is_file()]
        assert any(sought in path.read_text(encoding="utf-8") for path in files), what


def test_what_a_parallel_dimension_takes_is_what_expert_parallelism_took() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    section = text.partition("## Add a parallel dimension\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`(planner/[\w/]+\.py)`", section))
    named = re.compile(r"expert_parallel|\"expert\"|EXPERT_EXCHANGE")
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "planner").rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    }
    assert told == modules
    assert f"named in {len(modules)} modules" in section


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    wanted = [re.match(r"[\w.-]+", each) for each in (*project["dependencies"], *extras)]
    reasons = (ROOT / "docs/decisions/0005-dependencies.md").read_text(encoding="utf-8")
    names = {match[0] for match in wanted if match} - {"trainplan"}
    assert {name for name in names if not re.search(rf"\b{name}\b", reasons)} == set()


def test_every_decision_is_listed() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    assert pages
    assert re.findall(r"\((0[^)]+)\)", index) == [page.name for page in pages]


def anchors(page: Path) -> set[str]:
    """Return what a link may name after `#`: the titles, as GitHub writes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_every_path_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([^):#]*)(?:#([^)]+))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), anchor
    for name in re.findall(r"`((?:planner|api|web|data|docs|tests)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(planner(?:\.[a-z_]\w*)+)`", text):
        assert pkgutil.resolve_name(name), name


def test_the_changelog_is_what_is_told_of_each_version(*, update: bool) -> None:
    told = [
        f"## {each.number} ({each.date})\n\n" + "\n".join(f"- {line}" for line in each.lines)
        for each in news()
    ]
    body = "\n\n".join(["# Changelog", *told]) + "\n"
    page = ROOT / "docs/CHANGELOG.md"
    if update:
        page.write_text(body, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == body
    assert news()[0].number == __version__
