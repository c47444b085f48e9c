"""An answer that is late: the best so far, said so and kept nowhere."""

import re
from html import unescape
from itertools import count
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator

from api.main import create_app
from api.settings import Settings
from planner.advice import budget, choice, plan
from planner.advice.choice import Contender
from planner.answers import suggest
from planner.core import deadline
from planner.core.errors import TookTooLongError
from planner.request.schema import parse_request
from planner.search.search import LateSearchError

OPEN = {"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 8}, "max_gpus": 8}


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time is over when the second number of GPUs would be looked at."""
    seen: list[list[Contender]] = []

    def until_one(*arguments: Any) -> Any:
        if seen:
            raise LateSearchError(None)
        seen.append(list(choice.contenders(*arguments)))
        return seen[0]

    with monkeypatch.context() as patch:
        patch.setattr(budget, "contenders", until_one)
        yield patch


def validate_as_described(client: TestClient, said: object) -> None:
    described = client.get("/openapi.json").json()
    late = described["paths"]["/v1/suggest"]["post"]["responses"]["504"]["content"]
    schema = late["application/problem+json"]["schema"]
    Draft202012Validator({**schema, "components": described["components"]}).validate(said)


@pytest.mark.usefixtures("hurried")
def test_the_best_so_far_is_in_the_problem_as_it_is_described(client: TestClient) -> None:
    answer = client.post("/v1/suggest", json=OPEN)
    said = answer.json()
    assert (answer.status_code, said["type"]) == (504, "urn:planner:took-too-long")
    assert said["detail"] == (
        "no answer within 20 s: 1 of 4 numbers of GPUs were looked at; the best so far is 8 GPUs"
    )
    assert [option["gpus"] for option in said["best_so_far"]["options"]] == [8]
    assert said["hint"].endswith("as a job (POST /v1/jobs) it may take minutes")
    assert "etag" not in answer.headers
    validate_as_described(client, said)


def test_it_is_not_kept(client: TestClient, hurried: pytest.MonkeyPatch) -> None:
    assert client.post("/v1/suggest", json=OPEN).status_code == 504
    hurried.undo()
    whole = client.post("/v1/suggest", json=OPEN)
    assert whole.status_code == 200
    assert [option["gpus"] for option in whole.json()["options"]] == [1, 2, 4, 8]


@pytest.mark.usefixtures("hurried")
def test_no_launch_files_are_written_of_half_an_answer(client: TestClient) -> None:
    assert client.post("/v1/bundle", json=OPEN).status_code == 504


def test_of_a_search_that_was_cut_off_the_best_layout_so_far_is_given(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an estimate, of those that the first of many tables has."""
    cluster = {"gpu": "h100", "gpus_per_node": 8, "nodes": 4}
    asked = {"model": "meta-llama/Llama-2-7b-hf", "cluster": cluster, "id": 7}
    with monkeypatch.context() as hurried:
        looked = count()
        hurried.setattr(deadline, "is_over", lambda: next(looked) > 0)
        answer = client.post("/v1/suggest", json=asked)
    said = answer.json()
    assert (answer.status_code, "etag" in answer.headers) == (504, False)
    assert re.search(
        r"^no answer within 20 s: [\d,]+ layouts were looked at; the best layout so far",
        said["detail"],
    )
    best = said["best_so_far"]
    assert (best["id"], best["fits"]) == (7, True)
    validate_as_described(client, said)
    whole = client.post("/v1/suggest", json=asked).json()["chosen"]
    assert best["time"]["step_seconds"] > 0.999 * whole["time"]["step_seconds"]


def test_the_page_names_the_best_layout_so_far_and_leads_to_it(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"model": "meta-llama/Llama-2-7b-hf", "gpu": "h100", "gpus_per_node": "8", "nodes": "4"}
    with monkeypatch.context() as hurried:
        looked = count()
        hurried.setattr(deadline, "is_over", lambda: next(looked) > 0)
        late = client.get("/plan", params=asked)
        looked = count()
        body = {"model": asked["model"], "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": 4}}
        best = client.post("/v1/suggest", json=body).json()["best_so_far"]
    assert late.status_code == 504
    assert f"Best layout so far: {best['family']}</h2>" in late.text
    (link,) = re.findall(r'href="([^"]*)">Plan this layout', late.text)
    answer = client.get(unescape(link).replace("/plan?", "/plan.json?"))
    assert answer.status_code == 200
    assert answer.json()["chosen"]["strategy"] == best["strategy"]


@pytest.mark.usefixtures("hurried")
def test_the_page_of_open_numbers_of_gpus_leads_to_the_best_of_them(client: TestClient) -> None:
    asked = {"model": "gpt2", "gpu": "a100", "gpus_per_node": "8", "max_gpus": "8"}
    page = client.get("/plan", params=asked).text
    assert "<dd>8 GPUs</dd>" in page
    (link,) = re.findall(r'href="([^"]*)">Plan this layout', page)
    assert "max_gpus" not in link
    assert client.get(unescape(link)).status_code == 200


def test_a_choice_whose_plan_is_not_made_in_time_is_given(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> None:
        raise LateSearchError(None)

    asked = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
    with monkeypatch.context() as hurried:
        hurried.setattr(plan, "on_fewer_gpus", late)
        said = client.post("/v1/suggest", json=asked).json()
    assert "the layout was chosen" in said["detail"]
    chosen = client.post("/v1/suggest", json=asked).json()["chosen"]
    assert said["best_so_far"]["strategy"] == chosen["strategy"]


def test_what_is_asked_of_a_process_ends_by_the_deadline(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a thread, which nobody could end otherwise."""
    monkeypatch.setattr(deadline, "monotonic", lambda: 1e12)
    answer = client.post("/v1/suggest", json={"model": "gpt2", "objective": "memory"})
    assert answer.status_code == 504
    said = answer.json()
    assert "best_so_far" not in said
    assert said["detail"] == "no answer within 20 s"
    assert said["hint"].startswith("ask for fewer GPUs")


def test_a_time_that_is_short_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept to write the answer is not all of it."""
    asked = parse_request({"model": "gpt2", "objective": "memory"})
    monkeypatch.setattr(deadline, "monotonic", lambda: 0.2)
    with deadline.until(0.3, 0.3):
        suggest(asked, allow_paths=False)
    monkeypatch.setattr(deadline, "monotonic", lambda: 0.25)
    with deadline.until(0.3, 0.3), pytest.raises(TookTooLongError, match=r"within 0\.3 s"):
        suggest(asked, allow_paths=False)


def test_of_open_numbers_of_gpus_none_of_which_was_looked_at_is_said_what_to_do(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "monotonic", lambda: 1e12)
    said = client.post("/v1/suggest", json=OPEN).json()
    assert said["detail"] == "no answer within 20 s: 0 of 4 numbers of GPUs were looked at"
    assert said["hint"].startswith("ask for fewer GPUs")
