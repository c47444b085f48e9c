from collections.abc import Sequence
from typing import Any

import pytest
from conftest import JobMaker

from planner.advice.budget import plan_within
from planner.advice.plan import make_plan
from planner.advice.rules.base import Finding, Severity
from planner.answers import suggest
from planner.domain.strategy import Layout
from planner.report.first_screen import LINES, MOST_REASONS, first_screen, reasons
from planner.report.launch import other_choices
from planner.report.layout_words import memory_figure
from planner.report.plan import options_table, plan_text
from planner.report.values import Terminal, figures_text
from planner.request.schema import parse_request, resolve
from planner.search.candidate import estimate

COMMAND = "planner suggest gpt2 --gpus 4"
SOMETIMES = ("Or", "Ranks", "Spare", "Cost", "Run")
JOBS: dict[str, dict[str, Any]] = {
    "one GPU": {"model": "gpt2"},
    "four GPUs": {"model": "gpt2", "cluster": {"gpus_per_node": 4}},
    "four nodes": {
        "model": "meta-llama/Meta-Llama-3.1-70B",
        "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 4},
    },
    "adapters": {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": {"gpu": "4090", "gpus_per_node": 1},
        "recipe": {"method": "qlora"},
    },
}


def screen(job: dict[str, Any], width: int = 100) -> str:
    resolved = resolve(parse_request(job), allow_paths=False)
    plan = make_plan(resolved.job)
    return first_screen(plan, resolved.assumptions, COMMAND, Terminal(width=width))


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_answer_is_one_screen(job: dict[str, Any]) -> None:
    lines = screen(job).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 100
    assert labels(lines) == ["Fits", "Speed", "Sure", "Run it", "Why", "Assumed", "More"]


def labels(lines: Sequence[str]) -> list[str]:
    """Return what the lines of a screen are of, without what only some of them have."""
    found = (line[2:11].strip() for line in lines[lines.index("") :])
    return [label for label in found if label and label not in SOMETIMES]


def test_what_to_type_next_stands_in_the_first_lines() -> None:
    for job in JOBS.values():
        lines = screen(job).splitlines()
        (run,) = (at for at, line in enumerate(lines) if line.startswith("  Run it   "))
        assert f"{COMMAND} --out DIR" in lines[run]
        assert not lines[run + 1]
        assert run <= 8


@pytest.mark.parametrize(
    ("size", "tone"), [(8, "fits"), (50, "tight"), (53, "tight"), (256, "does not fit")]
)
def test_a_verdict_is_shown_in_its_colour(make_job: JobMaker, size: int, tone: str) -> None:
    job = make_job("gpt2", gpus=1)
    figure = memory_figure(job, estimate(job, Layout(micro_batch_size=size)))
    tinted = Terminal(tint=lambda text, tone: f"<{tone}>{text}</>")
    assert figures_text((figure,), tinted).startswith(f"<{tone}>{figure.label}</>")
    assert figures_text((figure,), Terminal()).startswith(figure.label)


@pytest.mark.parametrize("width", [60, 72, 140])
def test_a_screen_is_folded_to_its_terminal(width: int) -> None:
    for job in JOBS.values():
        lines = [line for line in screen(job, width).splitlines() if COMMAND not in line]
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [60, 100])
def test_the_whole_plan_is_folded_too(width: int) -> None:
    for job in JOBS.values():
        resolved = resolve(parse_request(job), allow_paths=False)
        plan = make_plan(resolved.job)
        text = plan_text(plan, resolved.assumptions, "", Terminal(width=width))
        assert max(map(len, text.splitlines())) <= width


def test_what_else_there_is_has_its_gain_and_its_flag(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    for name, gain, flag in other_choices(plan):
        assert name
        assert gain
        assert flag.startswith("--")
    assert len({flag for _, _, flag in other_choices(plan)}) == len(other_choices(plan)) > 0
    lines = first_screen(plan, (), COMMAND, Terminal()).splitlines()
    (first,) = (line for line in lines if line.startswith("  Or  "))
    assert first.endswith(other_choices(plan)[0][2])


def test_other_numbers_of_gpus_stand_in_their_place(make_job: JobMaker) -> None:
    plan = plan_within([make_job("gpt2", gpus=4)], {}, "cost", max_gpus=4, deadline_seconds=None)
    assert "Numbers of GPUs" in first_screen(plan, (), COMMAND, Terminal())


def finding(code: str, severity: Severity) -> Finding:
    return Finding(code=code, name="", severity=severity, message="")


def test_a_price_below_a_cent_is_told(make_job: JobMaker) -> None:
    cluster = {"instance": "g5.xlarge", "gpu": None}
    plan = plan_within([make_job("gpt2", gpus=1, cluster=cluster)], {}, "gpus", max_gpus=2)
    options = options_table(plan)
    assert options is not None
    prices = [row.cells[-1] for row in options.rows]
    assert all(0 < float(price.removeprefix("$")) < 0.02 for price in prices)


def test_the_branch_stands_first_then_warnings() -> None:
    found = [
        finding("ONE002", Severity.ADVICE),
        finding("COM004", Severity.ADVICE),
        finding("COM001", Severity.WARNING),
        finding("BAT001", Severity.WARNING),
    ]
    shown = reasons(found)
    assert [each.code for each in shown] == ["ONE002", "BAT001", "COM001"]
    assert len(shown) == MOST_REASONS
    followed = [*found, finding("ONE005", Severity.ADVICE)]
    assert [each.code for each in reasons(followed)] == ["ONE005", "BAT001", "COM001"]


def test_the_branch_gives_way_to_what_the_answer_hangs_on() -> None:
    """A faster layout is of this job alone."""
    found = [
        finding("MUL002", Severity.ADVICE),
        finding("ONE007", Severity.ADVICE),
        finding("EFF002", Severity.ADVICE),
        finding("COM001", Severity.WARNING),
    ]
    assert [each.code for each in reasons(found, 2)] == ["EFF002", "COM001"]
    assert next(iter(reasons(found, 3))).code == "MUL002"
    mixture = [*found, finding("SHP006", Severity.WARNING)]
    assert [each.code for each in reasons(mixture, 1)] == ["SHP006"]
    offloaded = [*mixture, finding("MEM003", Severity.WARNING)]
    assert [each.code for each in reasons(offloaded, 1)] == ["MEM003"]


def test_a_cost_is_told_by_the_step_where_the_run_has_no_length() -> None:
    def costs(**recipe: int) -> str:
        request = parse_request(
            {
                "model": "gpt2",
                "cluster": {"instance": "g6e.48xlarge", "nodes": 2},
                "recipe": recipe,
                "objective": "cost",
            }
        )
        resolved, plan = suggest(request, allow_paths=False)
        return first_screen(plan, resolved.assumptions, COMMAND, Terminal())

    (line,) = [line for line in costs().splitlines() if line.startswith("  Cost ")]
    assert " a step, on demand (2026-01-21);" in line
    assert line.endswith(" on 16 GPUs")
    assert "\n  Cost " not in costs(training_tokens=10**9)


def test_reasons_that_are_left_out_are_counted(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4, gpu="4090", recipe={"global_batch_size": 16}))
    assert len(plan.findings) > MOST_REASONS
    text = first_screen(plan, (), COMMAND, Terminal())
    shown = [each.code for each in plan.findings if f"({each.code})" in text]
    assert f"{len(plan.findings) - len(shown)} more reason" in text


def test_a_second_command_is_told_by_what_it_adds() -> None:
    """Without files, with a run's length: what more there is of trust is in the whole plan."""
    request = {
        "model": "Qwen/Qwen2.5-72B",
        "cluster": {"instance": "p5.48xlarge"},
        "recipe": {
            "framework": "accelerate",
            "optimizer": "lion",
            "sequence_length": 128,
            "training_tokens": 10**11,
        },
    }
    resolved, plan = suggest(parse_request(request), allow_paths=False)
    command = "planner suggest Qwen/Qwen2.5-72B --instance p5.48xlarge --framework accelerate --optimizer lion --seq-len 128"
    text = first_screen(plan, resolved.assumptions, f"{command} --tokens 1e11", Terminal())
    (instead,) = (line for line in text.splitlines() if line.startswith("  Instead "))
    assert instead.startswith("  Instead  the same with --")
    assert " --out DIR" in instead
    assert plan.confidence.reason not in " ".join(text.split())
    whole = plan_text(plan, resolved.assumptions, command, Terminal())
    assert plan.confidence.reason in " ".join(whole.split())
