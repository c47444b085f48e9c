"""What a plan's page refuses, and where it leads instead."""

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from api.main import create_app
from planner.core.errors import MOST_PROBLEMS

GPT2 = {"model": "gpt2", "gpus_per_node": "4"}


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app())


def test_a_link_with_fields_of_another_version_leads_to_what_is_left_of_it(
    client: TestClient,
) -> None:
    said = {**GPT2, "gpus_per_node": "4", "retired_flag": "1"}
    page = client.get("/plan", params=said).text
    assert ">Plan without it</a>" in page
    assert len(page) < 60_000
    links = re.findall(r'href="(/plan[^"]*gpus_per_node[^"]*)"', page)
    assert client.get(unescape(links[0])).status_code == 200
    many = {**said, **{f"retired_{index}": "1" for index in range(150)}}
    answer = client.get("/plan", params=many)
    assert answer.status_code == 422
    assert ">Plan without them</a>" in answer.text
    assert answer.text.count("Unknown field") == MOST_PROBLEMS
    assert len(answer.text) < 80_000


@pytest.mark.parametrize("name", ["model", "why", "nope"])
def test_a_field_too_long_for_an_address_is_refused(client: TestClient, name: str) -> None:
    answer = client.post("/plan", data={**GPT2, name: "A" * 100_000}, follow_redirects=False)
    assert answer.status_code == 422
    assert "too many" in answer.text


def test_a_name_that_was_perhaps_meant_is_a_link(client: TestClient) -> None:
    page = client.get("/plan", params={**GPT2, "gpu": "h1000"}).text
    links = [unescape(href) for href in re.findall(r'<a fx-action href="([^"]*gpu=[^"]*)">', page)]
    assert "/plan?model=gpt2&gpus_per_node=4&gpu=h100" in links
    two_wrong = client.get("/plan", params={**GPT2, "gpu": "h1000", "framework": "trch"}).text
    assert "gpu=h100&" not in unescape(two_wrong)
    away = client.get("/plan", params={**GPT2, "model": "openai/gtp2"}).text
    assert "/plan?model=openai-community%2Fgpt2&gpus_per_node=4" in unescape(away)
