"""Published steps of GRPO, and setups that ran, beside what the planner says: `docs/accuracy/post_training.md`."""

import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_docs import check_block

from planner.accuracy.rollout_runs import RolloutRun, predicted, rollout_runs, without
from planner.advice.plan import Plan
from planner.answers.suggestion import suggest
from planner.catalog.records import read
from planner.catalog.rollout import rollout
from planner.core.units import format_bytes
from planner.request.schema import parse_request
from planner.rollout.step import BETWEEN, GENERATION, HANDOVER, SCORING, TRAINING, GrpoStep

PAGE = Path(__file__).parents[2] / "docs/accuracy/post_training.md"
WITHIN = 0.30


@cache
def steps() -> tuple[tuple[RolloutRun, GrpoStep], ...]:
    return tuple((run, predicted(run, without(run.said["model"]))) for run in rollout_runs())


def errors() -> list[float]:
    return [step.step_seconds / run.said["step_seconds"] - 1 for run, step in steps()]


def in_range() -> float:
    return statistics.fmean(
        step.low_seconds <= run.said["step_seconds"] <= step.high_seconds for run, step in steps()
    )


def test_steps_of_a_model_left_out_are_within_30_percent() -> None:
    far = [abs(error) for error in errors()]
    assert len(far) >= 25
    assert statistics.median(far) <= WITHIN / 2
    assert statistics.fmean(error <= WITHIN for error in far) >= 0.9
    assert 0.75 <= in_range() <= 0.9


def test_what_an_answer_says_of_published_steps_is_so() -> None:
    said = rollout().engine
    assert said.published_steps == len(errors())
    assert said.median_error == round(statistics.median(map(abs, errors())), 2)


@cache
def timed() -> tuple[tuple[RolloutRun, GrpoStep], ...]:
    """Return the runs whose phases were timed, which no constant was set on."""
    found = rollout_runs("nemo_rl_phases")
    return tuple((run, predicted(run, without(run.said["model"]))) for run in found)


def errors_of(phase: str) -> list[float]:
    return [step.seconds_of(phase) / run.said[phase] - 1 for run, step in timed()]


def test_generation_is_near_by_itself_and_what_an_answer_says_of_phases_is_so() -> None:
    said = rollout().engine
    assert said.timed_phases == len(timed())
    assert said.generation_error == round(statistics.median(map(abs, errors_of(GENERATION))), 2)
    assert said.training_error == round(statistics.median(map(abs, errors_of(TRAINING))), 2)
    assert max(map(abs, errors_of(GENERATION))) <= WITHIN
    for run, step in timed():
        assert step.low_seconds <= run.said["step_seconds"] <= step.high_seconds


def setups() -> list[Mapping[str, Any]]:
    record = read("measurements/post_training", "verl")
    return [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]


@cache
def planned(index: int) -> Plan:
    said = setups()[index]
    recipe = {
        "job": "grpo",
        "method": said["method"],
        "sequence_length": said["prompt_tokens"] + said["completion_tokens"],
        "max_completion_length": said["completion_tokens"],
        "global_batch_size": said["batch"],
        "num_generations": 5,
        "beta": 0.001,
    }
    if said["method"] == "lora":
        recipe["lora"] = {"rank": 32, "targets": "all-linear"}
    cluster = {name: said[name] for name in ("gpu", "gpus_per_node", "nodes")}
    request = {"model": said["model"], "cluster": cluster, "recipe": recipe}
    return suggest(parse_request(request), allow_paths=False)[1]


@pytest.mark.parametrize("index", range(len(setups())))
def test_a_setup_that_ran_is_said_to_fit(index: int) -> None:
    found = planned(index).rollout
    assert found is not None
    usable = found.chosen.job.usable_bytes
    assert max(found.chosen.training_bytes, found.chosen.generating_bytes) <= usable


def engine_size(index: int) -> int:
    found = planned(index).rollout
    assert found is not None
    assert found.chosen.engine is not None
    return found.chosen.engine.tensor_parallel_size


def alike() -> list[int]:
    """Return the setups whose engine is as large as the one that ran."""
    ran = [said["generation_tensor_parallel_size"] for said in setups()]
    return [index for index, size in enumerate(ran) if engine_size(index) == size]


def test_most_engines_are_as_large_as_those_that_ran_and_none_leaves_a_node() -> None:
    assert len(alike()) >= 7
    assert all(
        engine_size(index) <= min(said["gpus_per_node"], said["generation_tensor_parallel_size"])
        for index, said in enumerate(setups())
    )


def test_the_page_is_what_the_code_says(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    check_block("steps", steps_table(), update=update, page=PAGE)
    check_block("phases", phases_table(), update=update, page=PAGE)
    check_block("setups", setups_table(), update=update, page=PAGE)


def steps_table() -> str:
    lines = [
        "| release | model | GPUs | tokens, mean of most | completions | published | predicted | error |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for (run, step), error in zip(steps(), errors(), strict=True):
        said = run.said
        lines.append(
            f"| {said['release']} | {said['model']} | {run.gpus} x {said['gpu']} |"
            f" {said['mean_tokens']:,} of {said['most_tokens']:,} | {said['completions']:,} |"
            f" {said['step_seconds']:.0f} s | {step.step_seconds:.0f} s"
            f" ({step.low_seconds:.0f} to {step.high_seconds:.0f}) | {error:+.0%} |"
        )
    median = statistics.median(map(abs, errors()))
    near = statistics.fmean(abs(error) <= WITHIN for error in errors())
    text = (
        f"Median error {median:.0%}, {near:.0%} within {WITHIN:.0%}, {in_range():.0%} inside of the"
        f" range, {statistics.median(errors()):+.0%} in the median with its sign."
    )
    return "\n".join((*lines, "", text, ""))


def phases_table() -> str:
    """Return each phase as it was timed, and as it is predicted."""
    phases = (GENERATION, HANDOVER, SCORING, TRAINING)
    lines = [
        "| model | GPUs | generation | weights | log-probabilities | training | between | step |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run, step in timed():
        said = run.said
        rest = said["step_seconds"] - sum(said[name] for name in phases)
        pairs = (
            *((said[name], step.seconds_of(name)) for name in phases),
            (rest, step.seconds_of(BETWEEN)),
            (said["step_seconds"], step.step_seconds),
        )
        cells = " | ".join(f"{was} s, {now:.0f} said" for was, now in pairs)
        lines.append(f"| {said['model']} | {run.gpus} x {said['gpu']} | {cells} |")
    text = ", ".join(
        f"{name} {statistics.median(errors_of(of)):+.0%}"
        for name, of in (
            *(("generation", GENERATION), ("log-probabilities", SCORING)),
            ("training", TRAINING),
        )
    )
    return "\n".join((*lines, "", f"In the median {text}.", ""))


def setups_table() -> str:
    lines = [
        "| model | GPUs | method | tokens | completions | planned | engine, verl's | training | generating |",
        "| --- | --- | --- | --- | ---: | --- | --- | ---: | ---: |",
    ]
    for index, said in enumerate(setups()):
        plan = planned(index)
        assert plan.rollout is not None
        setup = plan.rollout.chosen
        lines.append(
            f"| {said['model']} | {said['gpus_per_node'] * said['nodes']} x {said['gpu']} |"
            f" {said['method']} | {said['prompt_tokens']} + {said['completion_tokens']:,} |"
            f" {said['batch']:,} | {plan.chosen.strategy.family}, {setup.mode} |"
            f" {engine_size(index)}, {said['generation_tensor_parallel_size']} |"
            f" {format_bytes(setup.training_bytes)} | {format_bytes(setup.generating_bytes)} |"
        )
    text = f"All {len(setups())} are said to fit, {len(alike())} with as large an engine as verl's."
    return "\n".join((*lines, "", text, ""))
