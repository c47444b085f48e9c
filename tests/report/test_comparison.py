"""Two plans side by side, as values."""

import pytest

from planner import answers
from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_pace, format_seconds
from planner.memory.phases import PHASES
from planner.report.comparison import ComparedRow, comparison, pace, room
from planner.request.schema import parse_request


def plan(**request: object) -> Plan:
    return answers.suggest(parse_request(request), allow_paths=False)[1]


@pytest.fixture(scope="module")
def one() -> Plan:
    return plan(model="gpt2", cluster={"gpus_per_node": 4}, recipe={"training_tokens": 10**9})


@pytest.fixture(scope="module")
def other() -> Plan:
    return plan(
        model="gpt2",
        cluster={"gpus_per_node": 4},
        recipe={"training_tokens": 10**9, "framework": "megatron"},
        strategy={"zero_stage": 1, "tensor_parallel_size": 2},
    )


def rows(one: Plan, other: Plan) -> dict[str, dict[str, ComparedRow]]:
    return {group.title: {row.name: row for row in group.rows} for group in comparison(one, other)}


def test_a_plan_beside_itself_differs_in_nothing(one: Plan) -> None:
    assert not [row for group in comparison(one, one) for row in group.rows if row.differs]


def test_rows_say_both_values_and_the_difference(one: Plan, other: Plan) -> None:
    found = rows(one, other)
    step = found["What it takes"]["step"]
    seconds = [each.chosen.step_time.step_seconds for each in (one, other)]
    assert [step.one, step.other] == [format_seconds(each) for each in seconds]
    assert step.difference == format_pace(seconds[1], seconds[0])
    assert step.differs
    assert found["What was asked"]["framework"].other == "megatron"
    assert found["What was asked"]["framework"].differs
    assert not found["What was asked"]["model"].differs
    assert "whole run" in found["What it takes"]
    figures = {name: row for name, row in found["What it takes"].items() if row.differs}
    assert [name for name, row in figures.items() if not row.difference] == []
    assert figures["MFU"].difference.partition(" ")[2] in {"points more", "points less"}
    assert figures["headroom"].difference.endswith(("GiB more", "GiB less"))


def test_every_term_that_one_of_them_has_is_a_row(one: Plan, other: Plan) -> None:
    found = rows(one, other)
    for title, ledgers in (
        ("Memory of a GPU at its peak", (one.chosen.memory, other.chosen.memory)),
        ("Time of one optimizer step", (one.chosen.step_time, other.chosen.step_time)),
    ):
        names = {term.name for ledger in ledgers for term in ledger.terms if term.amount}
        assert found[title].keys() - {"moment of the peak"} == {
            name.replace("_", " ") for name in names
        }
    exchange = found["Time of one optimizer step"]["tensor parallel exchange"]
    assert exchange.one == "none"
    assert exchange.difference == f"{exchange.other} more"


def test_a_term_that_another_moment_holds_is_not_said_to_be_none(one: Plan, other: Plan) -> None:
    asked = {
        "model": "meta-llama/Llama-2-7b-hf",
        "cluster": {"gpus_per_node": 4},
        "recipe": {
            "sequence_length": 2048,
            "framework": "torch",
            "loss": "standard",
            "compile": False,
        },
    }
    at_the_loss = plan(**asked, strategy={"recompute": "full", "micro_batch_size": 8})
    at_a_block = plan(**asked, strategy={"recompute": "selective", "micro_batch_size": 2})
    memory = rows(at_the_loss, at_a_block)["Memory of a GPU at its peak"]
    moments = memory["moment of the peak"]
    assert (moments.one, moments.other) == (PHASES[1], PHASES[2])
    assert memory["logits and loss"].other == "not held then"
    assert memory["logits and loss"].one.endswith("GiB")
    of_megatron = rows(one, other)["Memory of a GPU at its peak"].values()
    assert {row.name for row in of_megatron if "none" in {row.one, row.other}}


def test_a_change_in_a_line_names_both_figures(one: Plan, other: Plan) -> None:
    before, after = one.chosen, other.chosen
    assert format_seconds(before.step_time.step_seconds) in pace(one, other)
    assert format_bytes(after.memory.reserved_bytes) in room(before, after)
    assert room(before, before).startswith("as much memory")
    assert pace(one, one).startswith("as fast")


def test_steps_of_other_batches_are_compared_per_token(one: Plan) -> None:
    larger = plan(model="gpt2", cluster={"gpus_per_node": 4}, recipe={"global_batch_size": 2048})
    tokens = [each.job.recipe.global_batch_size for each in (one, larger)]
    seconds = [float(each.chosen.step_time.step_seconds) for each in (one, larger)]
    assert seconds[1] > seconds[0]
    assert seconds[1] / tokens[1] < seconds[0] / tokens[0]
    said = pace(one, larger)
    expected = format_pace(seconds[1] / tokens[1], seconds[0] / tokens[0])
    assert said.startswith(f"{expected} per token (")
    assert "slower" not in said
