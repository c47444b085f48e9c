"""Where nothing fits, a small table: what was tried, whether it fits, its step and its price."""

import json
from functools import cache
from typing import Any

import pytest

from planner import answers
from planner.core.errors import NothingFitsError, WayOut
from planner.report.values import Terminal, table_text
from planner.report.ways_out import ways_out_table
from planner.request.schema import parse_request

LLAMA_70B: dict[str, Any] = {
    "model": "meta-llama/Llama-2-70b-hf",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 2},
}


def refused(request: dict[str, Any]) -> NothingFitsError:
    return _refused(json.dumps(request))


@cache
def _refused(request: str) -> NothingFitsError:
    """Some twenty plans are made for one such answer: five tests read the same."""
    with pytest.raises(NothingFitsError) as caught:
        answers.suggest(parse_request(json.loads(request)), allow_paths=False)
    return caught.value


def ways_of(request: dict[str, Any]) -> dict[str, WayOut]:
    return {each.flag: each for each in refused(request).ways_out}


def test_the_job_as_asked_stands_first_then_what_fits_then_what_does_not() -> None:
    ways = refused(LLAMA_70B).ways_out
    assert (ways[0].name, ways[0].flag) == ("fine-tuning of all weights", "")
    assert [each.fits for each in ways] == [
        False,
        *sorted((w.fits for w in ways[1:]), reverse=True),
    ]
    assert {"--method qlora", "--nodes 64"} <= {each.flag for each in ways if each.fits}
    assert {"--method lora", "--optimizer adamw-8bit"} <= {w.flag for w in ways if not w.fits}
    assert all(each.reserved_bytes < ways[0].reserved_bytes for each in ways[1:])
    assert all(each.fits == (each.reserved_bytes <= each.usable_bytes) for each in ways)


@pytest.mark.parametrize("flag", ["--method qlora", "--nodes 64", "--offload optimizer+parameters"])
def test_a_line_is_the_plan_that_its_flag_asks_for(flag: str) -> None:
    way = ways_of(LLAMA_70B)[flag]
    section, _, name = way.field.partition(".")
    value = int(way.value) if way.value.isdigit() else way.value
    asked = {**LLAMA_70B, section: {**LLAMA_70B.get(section, {}), name: value}}
    _, plan = answers.suggest(parse_request(asked), allow_paths=False)
    assert way.step_seconds == float(plan.chosen.step_time.step_seconds)
    assert way.reserved_bytes == round(float(plan.chosen.memory.reserved_bytes))
    assert way.sequences == plan.job.recipe.global_batch_size
    steps = way.tokens / plan.job.text_tokens_per_step
    gpu_seconds = steps * way.step_seconds * plan.job.cluster.world_size
    assert way.gpu_hours == pytest.approx(gpu_seconds / 3600)


def test_the_price_is_that_of_the_run_in_dollars_where_an_instance_has_one() -> None:
    request = {
        "model": "meta-llama/Llama-2-70b-hf",
        "cluster": {"instance": "g5.12xlarge"},
        "recipe": {"training_tokens": 10**8},
    }
    way = ways_of(request)["--method qlora"]
    resolved, _ = answers.suggest(
        parse_request({**request, "recipe": {"training_tokens": 10**8, "method": "qlora"}}),
        allow_paths=False,
    )
    instance = resolved.job.cluster.instance
    assert instance is not None
    assert way.tokens == 10**8
    assert way.usd == pytest.approx(way.gpu_hours / 4 * instance.usd_per_hour)
    text = table_text(ways_out_table([way]), Terminal())
    assert "100 M tokens" in text
    assert f"${way.usd:,.0f}" in text


def test_the_table_is_small_and_in_json_too() -> None:
    error = refused(LLAMA_70B)
    lines = table_text(ways_out_table(error.ways_out), Terminal()).splitlines()
    assert len(lines) == 2 + len(error.ways_out) <= 12
    assert max(map(len, lines)) <= 100
    described = answers.describe_error(error)
    assert [each["fits"] for each in described["ways_out"]] == [w.fits for w in error.ways_out]


def test_where_only_the_wished_layout_does_not_fit_nothing_else_is_tried() -> None:
    request = {
        "model": "gpt2",
        "cluster": {"gpu": "rtx-3060", "gpus_per_node": 2},
        "strategy": {"micro_batch_size": 512},
    }
    error = refused(request)
    assert [each.field for each in error.remedies] == ["strategy"]
    assert not error.ways_out
