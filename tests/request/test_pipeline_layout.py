"""`pipeline_layout` through every door: the body, flags, --pin, a page, and what it does to memory and time."""

from typing import Any
from urllib.parse import parse_qsl

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from api.main import create_app
from api.settings import Settings
from planner import answers, cli
from planner.calibrate.logs.plans import request_of_plan
from planner.core.errors import InvalidRequestError, PlannerError
from planner.request.schema import Resolved, parse_request, resolve
from planner.search.candidate import Candidate, memory_of_stages
from web.form import read_question

LLAMA = "meta-llama/Llama-3.1-8B"
DEALT = [7, 9, 9, 7]
INTERLEAVED: dict[str, Any] = {"virtual_pipeline_size": 2, "pipeline_schedule": "interleaved-1f1b"}


def asked(framework: str = "megatron", **strategy: Any) -> dict[str, Any]:
    return {
        "model": LLAMA,
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"framework": framework, "sequence_length": 4096, "global_batch_size": 64},
        "strategy": {"pipeline_parallel_size": 4, **strategy},
    }


def estimated(**strategy: Any) -> tuple[Resolved, Candidate]:
    return answers.estimate_request(parse_request(asked(**strategy)), allow_paths=False)


def layers(**strategy: Any) -> tuple[int, ...]:
    request = parse_request(asked(**strategy))
    return resolve(request, allow_paths=False).job.pipeline_layout


def test_a_list_deals_the_blocks_and_the_longest_stage_sets_the_pace() -> None:
    even, dealt = estimated()[1], estimated(pipeline_layout=DEALT)[1]
    long = estimated(pipeline_layout=[5, 5, 5, 17])[1]
    # The first stage holds the most micro-batches: 7 blocks in place of 8 free memory.
    assert dealt.memory.peak_bytes < even.memory.peak_bytes
    assert long.step_time.step_seconds > even.step_time.step_seconds > dealt.step_time.step_seconds


@pytest.mark.parametrize("layout", [[1, 1, 1, 29], [1, 29, 1, 1], [2, 9, 19, 2], [19, 2, 2, 9]])
def test_the_peak_is_that_of_the_fullest_stage_however_blocks_are_dealt(layout: list[int]) -> None:
    resolved, candidate = estimated(pipeline_layout=layout)
    stages = memory_of_stages(resolved.job, candidate)
    assert candidate.memory.reserved_bytes == max(each.reserved_bytes for each in stages)


def test_as_the_framework_deals_them_is_as_without() -> None:
    even, dealt = estimated()[1], estimated(pipeline_layout=[8, 8, 8, 8])[1]
    assert dealt.memory.peak_bytes == even.memory.peak_bytes
    assert dealt.step_time.step_seconds == even.step_time.step_seconds


def test_chunks_of_a_stage_add_up() -> None:
    chunks = [3, 4, 5, 4, 4, 5, 4, 3]
    _, interleaved = estimated(pipeline_layout=chunks, **INTERLEAVED)
    _, whole = estimated(pipeline_layout=[7, 9, 9, 7], **INTERLEAVED | {"virtual_pipeline_size": 1})
    assert interleaved.memory.peak_bytes > whole.memory.peak_bytes
    assert layers(pipeline_layout=chunks, **INTERLEAVED) == tuple(chunks)


@pytest.mark.parametrize(
    ("name", "stages", "dealt"),
    [
        # 32 blocks and 1 are 33: three stages of 11; and 2 are 34: two of 17.
        ("loss-aware", 3, (11, 11, 10)),
        ("embedding-and-loss-aware", 2, (16, 16)),
    ],
)
def test_what_stands_beside_the_blocks_counts_as_one(
    name: str, stages: int, dealt: tuple[int, ...]
) -> None:
    assert layers(pipeline_layout=name, pipeline_parallel_size=stages) == dealt


@pytest.mark.parametrize(
    "layout", ["even", "", "7,9,x", "1", [8], [-1, 33], [8.5, 7.5], {"a": 1}, [[8]], 4, [5000, 2]]
)
def test_what_is_no_layout_is_refused(layout: object) -> None:
    with pytest.raises(InvalidRequestError, match="pipeline_layout"):
        parse_request(asked(pipeline_layout=layout))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asked(pipeline_layout=[8, 8, 8]), "3 entries, of 4 stages"),
        (asked(pipeline_layout=[8, 8, 8, 9]), "33 blocks, and the model has 32"),
        (asked(pipeline_layout=[0, 16, 8, 8]), "without a block"),
        (asked(pipeline_layout=[0, 8, 8, 8, 0, 8, 0, 0], **INTERLEAVED), "without a block"),
        (asked(pipeline_layout="loss-aware"), "4 chunks do not divide 32 blocks and 1"),
        (asked(pipeline_parallel_size=1, pipeline_layout=[16, 16]), "pipeline_parallel_size is 1"),
        (asked(pipeline_layout=DEALT, pipeline_schedule="gpipe"), "not for gpipe"),
        (asked("torch", pipeline_layout=DEALT), "torch .* takes no pipeline_layout"),
        (asked("nanotron", pipeline_layout=DEALT), "nanotron .* takes no pipeline_layout"),
        (asked() | {"why": {"pipeline_layout": DEALT}}, "another pipeline_layout"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_the_reason(
    request_: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PlannerError, match=reason):
        answers.suggest(parse_request(request_), allow_paths=False)


@pytest.mark.parametrize(
    "words", ["--pp 4 --pipeline-layout 7,9,9,7", "--pin pp=4,pipeline_layout=7+9+9+7"]
)
def test_flags_hold_it_and_the_files_say_it(words: str, tmp_path: Any) -> None:
    line = ["suggest", LLAMA, "--gpus", "8", "--gpu", "h100", "--framework", "megatron"]
    out = ["--out", str(tmp_path / "plan"), "--global-batch-size", "64"]
    result = CliRunner().invoke(cli.cli, [*line, *words.split(), *out])
    assert result.exit_code == 0, result.output
    script = (tmp_path / "plan" / "megatron" / "launch.sh").read_text()
    wanted = "|".join(["E" + 7 * "t", 9 * "t", 9 * "t", 7 * "t" + "L"])
    assert f"--pipeline-model-parallel-layout '{wanted}'" in script
    assert "--decoder-first-pipeline-num-layers" not in script


def test_an_answer_says_it_and_is_asked_again_with_it() -> None:
    resolved, plan = answers.suggest(parse_request(asked(pipeline_layout=DEALT)), allow_paths=False)
    answer = answers.answer_plan(resolved, plan, None)
    again = answers.answer_estimate(parse_request(request_of_plan(answer)), allow_paths=False)
    assert again["strategy"] == answer["chosen"]["strategy"]
    assert again["strategy"]["pipeline_layout"] == DEALT
    assert again["memory"] == answer["chosen"]["memory"]
    others = [each["strategy"]["pipeline_layout"] for each in answer["alternatives"]]
    assert others == [DEALT] * len(others) != []


def test_an_answer_says_of_a_named_one_what_it_deals() -> None:
    request = asked(pipeline_layout="loss-aware", pipeline_parallel_size=3)
    request["cluster"]["gpus_per_node"] = 3
    answer = answers.answer_estimate(parse_request(request), allow_paths=False)
    assert answer["strategy"]["pipeline_layout"] == [11, 11, 10]


@pytest.mark.parametrize(
    ("why", "dealt"),
    [
        ({"zero_stage": 0}, [5, 5, 5, 17]),
        ({"pipeline_parallel_size": 4, "recompute": "full"}, [5, 5, 5, 17]),
        ({"pipeline_parallel_size": 2}, None),
        ({"pipeline_parallel_size": 2, "virtual_pipeline_size": 2}, None),
        ({"pipeline_parallel_size": 1}, None),
    ],
)
def test_a_question_about_another_pipeline_is_not_about_the_blocks_of_this_one(
    why: dict[str, Any], dealt: list[int] | None
) -> None:
    """Two stages of four of which one has 17 blocks would have 10 and 22."""
    request = asked(pipeline_layout=[5, 5, 5, 17])
    resolved, plan = answers.suggest(parse_request(request | {"why": why}), allow_paths=False)
    answer = answers.answer_suggestion(parse_request(request | {"why": why}), resolved, plan)
    assert answer["why"] is not None
    strategy = dict(answer["why"]["strategy"] or {})
    assert strategy["pipeline_layout"] == dealt
    assert strategy["pipeline_parallel_size"] == why.get("pipeline_parallel_size", 4)
    again = answers.answer_estimate(
        parse_request({**asked(), "strategy": strategy}), allow_paths=False
    )
    assert again["time"]["step_seconds"] == answer["why"]["step_seconds"]


def test_what_no_request_deals_is_null() -> None:
    plain = answers.answer_estimate(parse_request(asked()), allow_paths=False)
    assert plain["strategy"]["pipeline_layout"] is None


def test_the_service_and_a_page_take_it() -> None:
    client = TestClient(create_app(Settings(processes=0)))
    answer = client.post("/v1/estimate", json=asked(pipeline_layout=DEALT)).json()
    peaks = [stage["peak_bytes"] for stage in answer["memory"]["stages"]]
    assert peaks[0] < client.post("/v1/estimate", json=asked()).json()["memory"]["peak_bytes"]
    query = {"model": LLAMA, "framework": "megatron", "pipeline_parallel_size": "4"}
    question = read_question(list((query | {"pipeline_layout": "7,9,9,7"}).items()))
    again = read_question(parse_qsl(question.query))
    assert again.request.strategy is not None
    assert again.request.strategy.pipeline_layout == DEALT
