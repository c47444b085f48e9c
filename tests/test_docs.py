"""The README cannot lie: its output and its figures are regenerated and compared.

`pytest --update-golden tests/test_docs.py` rewrites them; read the diff.
"""

import re
import statistics
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import JobMaker

import planner.hardware.probe
from planner import cli
from planner.core.units import GIB
from planner.domain.strategy import Layout, Recompute
from planner.memory.ledger import estimate_memory

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DEMO = ("suggest", "gpt2", "--gpus", "4")


def check_block(marker: str, body: str, *, update: bool, page: Path = README) -> None:
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    expected = pattern.sub(lambda match: match[1] + body + match[2], text)
    if update:
        page.write_text(expected, encoding="utf-8")
        text = expected
    assert text == expected


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def test_the_terminal_block_is_the_commands_real_output(
    monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    monkeypatch.setattr(planner.hardware.probe, "probe", lambda: None)
    monkeypatch.setattr("sys.argv", ["planner", *DEMO])
    output = CliRunner().invoke(cli.cli, DEMO).stdout.rstrip()
    check_block("demo", f"```console\n$ planner {' '.join(DEMO)}\n{output}\n```\n", update=update)


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
    check_block("accuracy", "\n".join((*lines, "", summary)) + "\n", update=update)


def test_every_command_has_help_and_is_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    for name, command in cli.cli.commands.items():
        assert command.help
        assert f"planner {name}" in text


def test_the_tree_is_the_folders() -> None:
    tree = README.read_text(encoding="utf-8").split("## The tree")[1].split("```")[1]
    folders = {path.parent.name for path in (ROOT / "planner").glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == folders
    assert not [path for path in (ROOT / "planner").glob("*.py") if path.stem != "__init__"]


def test_every_decision_is_listed_and_every_link_leads_somewhere() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    assert pages
    for page in pages:
        assert f"({page.name})" in index
    for link in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / link).exists()
