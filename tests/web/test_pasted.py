"""What is pasted into the form: sent in a body, carried by every link."""

import json
import zlib
from base64 import urlsafe_b64encode
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants

from api.main import create_app
from api.settings import Settings
from planner import answers
from planner.hardware.topology import parse_topology
from planner.request.schema import parse_request
from web.form import read_question
from web.packed import packed, unpacked

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
HTML = {"accept": "text/html"}
MACHINE: dict[str, Any] = {
    "kind": "planner-machine",
    "version": 1,
    "created": "2026-11-01",
    "name": "ours",
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 4},
    "memory_bytes_per_second": 1.1e12,
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A client of the app, with the Hub out of reach."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    app = create_app(Settings(processes=0))
    return TestClient(app, raise_server_exceptions=False, follow_redirects=False)


def test_a_form_leads_to_the_shortest_address(client: TestClient) -> None:
    filled = {"model": ["gpt2", ""], "gpus_per_node": "4", "topology": "", "machine": " "}
    answer = client.post("/plan", data=filled)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/plan?model=gpt2&gpus_per_node=4"


def test_every_link_of_a_measured_machines_plan_carries_it(client: TestClient) -> None:
    pasted = json.dumps(MACHINE, indent=2)
    sent = client.post("/plan", data={"model": "gpt2", "machine": pasted})
    answer = client.get(sent.headers["location"])
    assert answer.status_code == 200
    assert "Measured on machine ours" in answer.text
    assert "planner suggest gpt2 --machine machine.json" in unescape(answer.text)
    links = [part.partition('"')[0] for part in unescape(answer.text).split('href="')[1:]]
    plans = [link for link in links if link.startswith(("/plan", "/?"))]
    assert len(plans) > 15
    for link in plans:
        (said,) = parse_qs(urlsplit(link).query)["machine"]
        assert json.loads(unpacked(said)) == MACHINE


def test_json_of_a_measured_machine_is_what_rest_answers(client: TestClient) -> None:
    sent = client.post("/plan", data={"model": "gpt2", "machine": json.dumps(MACHINE)})
    shown = client.get(sent.headers["location"].replace("/plan?", "/plan.json?")).json()
    asked = parse_request({"model": "gpt2", "machine": MACHINE})
    resolved, plan = answers.suggest(asked, allow_paths=False)
    expected = answers.answer_plan(resolved, plan, None)
    assert shown["machine"] == json.loads(json.dumps(expected["machine"]))
    assert shown["chosen"] == json.loads(json.dumps(expected["chosen"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{oops", "not JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ('{"kind": "other"}', "no machine file"),
        (json.dumps({**MACHINE, "version": 2}), "of version 2"),
        (json.dumps({**MACHINE, "memory_bytes_per_second": -1}), "memory_bytes_per_second"),
        ("z1.AAAA", "not JSON"),
    ],
)
def test_a_bad_machine_file_is_told_at_its_field(client: TestClient, text: str, said: str) -> None:
    sent = client.post("/plan", data={"model": "gpt2", "machine": text})
    answer = client.get(sent.headers["location"], headers=HTML)
    assert answer.status_code == 422
    problem = answer.text.partition('id="machine-problem"')[2].partition("</p>")[0]
    assert said in unescape(problem)


CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1376,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def test_a_pasted_config_is_planned_as_rest_plans_it(client: TestClient) -> None:
    sent = client.post("/plan", data={"model": ["", json.dumps(CONFIG, indent=2)]})
    answer = client.get(sent.headers["location"])
    assert answer.status_code == 200
    assert "planner suggest config.json" in unescape(answer.text)
    shown = client.get(sent.headers["location"].replace("/plan?", "/plan.json?")).json()
    resolved, plan = answers.suggest(parse_request({"model": CONFIG}), allow_paths=False)
    expected = json.loads(json.dumps(answers.answer_plan(resolved, plan, None)))
    assert shown["chosen"] == expected["chosen"]
    form = client.get(sent.headers["location"].replace("/plan?", "/?")).text
    area = form.partition('<textarea name="model"')[2].partition("</textarea>")[0]
    assert json.loads(unescape(area.partition(">")[2])) == CONFIG


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{oops", "not JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested deeper than 64 levels"),
        ('{"hidden_size": NaN}', "NaN is not a JSON number"),
        ("{}", "no model_type"),
        (json.dumps({**CONFIG, "hidden_size": -1}), "hidden_size is -1"),
        (json.dumps({"a": "x" * 2**20}), "no model_type"),
    ],
)
def test_a_bad_config_is_told_in_one_line_at_its_field(
    client: TestClient, text: str, said: str
) -> None:
    sent = client.post("/plan", data={"model": text})
    answer = client.get(sent.headers["location"], headers=HTML)
    assert answer.status_code == 422
    problem = answer.text.partition('id="model-problem"')[2].partition("</p>")[0]
    assert unescape(problem).count(said) == 1
    assert answer.text.count('aria-invalid="true"') == 1
    assert '<details class="fold" open>' in answer.text


def test_a_name_and_a_config_are_not_guessed_between(client: TestClient) -> None:
    both = {"model": ["gpt2", json.dumps(CONFIG)]}
    assert client.post("/plan", data=both, headers=HTML).status_code == 422


def test_a_file_too_long_for_a_link_is_told_with_what_was_typed(client: TestClient) -> None:
    points = [[number * 7919 % 100_003, number * 104_729 % 99_991] for number in range(9_000)]
    text = json.dumps({**MACHINE, "software": points})
    answer = client.post("/plan", data={"model": "gpt2", "machine": text}, headers=HTML)
    assert answer.status_code == 422
    assert "too many for a link" in answer.text
    assert 'value="gpt2"' in answer.text


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"model=gpt2", "text/plain", 422),
        (b"model=%ff%fe", "application/x-www-form-urlencoded", 303),
        (b"\xff\xfe", "application/x-www-form-urlencoded", 422),
        (b"a=1&" * 300, "application/x-www-form-urlencoded", 422),
        (b"machine=" + b"1" * 2**22, "application/x-www-form-urlencoded", 413),
    ],
)
def test_what_is_no_form_is_refused(
    client: TestClient, content: bytes, kind: str, status: int
) -> None:
    answer = client.post("/plan", content=content, headers={**HTML, "content-type": kind})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "name", ["a100_8gpu_18nic_oci_numa4_spaces", "gb200_4gpu_8nic_multinuma_spaces"]
)
def test_a_link_carries_of_a_legend_the_names_of_adapters_alone(name: str) -> None:
    text = (TOPOLOGIES / f"{name}.txt").read_text()
    linked = unpacked(packed({"topology": text})["topology"])
    assert parse_topology(linked) == parse_topology(text)
    assert "Connection traversing" in text
    assert "Connection traversing" not in linked


def test_what_unpacks_to_more_than_is_read_stays_packed() -> None:
    bomb = "z1." + urlsafe_b64encode(zlib.compress(b" " * 2**23)).decode()
    assert unpacked(bomb) == bomb
    cut = packed({"machine": json.dumps(MACHINE) * 9})["machine"][:-8]
    assert unpacked(cut) == cut
    with pytest.raises(Exception, match="not JSON"):
        read_question([("model", "gpt2"), ("machine", bomb)])
