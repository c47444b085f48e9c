import ast
import json
import re
import shlex
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from huggingface_hub import constants

import web
from api.main import create_app
from api.settings import Settings
from planner import answers
from planner.accuracy.evidence import evidence_table, nearest_evidence
from planner.advice import rules
from planner.catalog import records
from planner.catalog.findings import findings
from planner.cli import cli
from planner.cli.options import build_request
from planner.cli.plans import suggest
from planner.core.errors import InvalidInputError, InvalidRequestError
from planner.core.units import format_bytes, format_rate, format_seconds
from planner.domain.strategy import Layout
from planner.explain import glossary
from planner.generate.write_bundle import bundle_files
from planner.hardware.topology import Nic, Topology, dump, parse_topology
from planner.report.flags import flags
from planner.report.plan import MOST_ROWS
from planner.report.summary import chips, heading, tiles
from planner.request.schema import parse_request
from planner.search.candidate import estimate
from web.chart import Total, meter, rows, stacked_bar
from web.controls import EXAMPLES, fieldsets, labels
from web.form import command_line, control_of, read_question
from web.pages import capitalized, render
from web.result import result
from web.wording import in_labels

GPT2 = {"model": "gpt2", "gpus_per_node": "4"}
TOPOLOGY = "        GPU0    GPU1\nGPU0     X      NV12\nGPU1    NV12     X"
HTML = {"accept": "text/html"}
TOPOLOGIES = Path(__file__).parents[1] / "topologies"
MARKUP = "\"><script>alert(1)</script>'"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A client of the app, with the Hub out of reach."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


class Page(HTMLParser):
    """What a test asks of a page: its elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


def squeezed(text: str) -> str:
    """A text without case, spaces and backticks: a page begins with a capital, and sets code as code."""
    return re.sub(r"[\s`]+", "", text).lower()


def pinned(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without what no two runs share."""
    return {**answer, "id": None, "search": {**answer["search"], "seconds": 0}}


def test_form_labels_every_control(client: TestClient) -> None:
    page = Page(client.get("/").text)
    controls = page.all("input", "select", "textarea")
    named = {control["id"] for control in controls if not control.get("aria-label")}
    assert named == {label["for"] for label in page.all("label")}
    assert {control["name"] for control in controls} == set(labels())
    described = {i for c in controls for i in c.get("aria-describedby", "").split()}
    assert described <= {attributes.get("id") for _, attributes in page.elements}


def test_form_has_a_control_for_every_field_that_can_be_assumed() -> None:
    shards = {"data_parallel_replicate_size", "data_parallel_shard_size"}
    without = {"packed"}  # which the share of padding says, too
    assert {control_of(field) for field in flags()} | shards == {*labels(), *without}


def test_form_offers_what_is_estimated(client: TestClient) -> None:
    groups = (*fieldsets(are_folded=False), *fieldsets(are_folded=True))
    selects = {group.name: group.choices for group in chain(*(g.controls for g in groups))}
    torch = records.framework("torch")
    assert {"torch", *(selects["framework"] or ())} == set(records.framework_names())
    assert list(selects["optimizer"] or ()) == list(torch.optimizers)
    assert {*torch.precisions, "fp8"} == set(selects["precision"] or ())
    options = {option["value"] for option in Page(client.get("/").text).all("option")}
    assert {"megatron", "adamw-8bit", "qlora", "config", "all-linear"} <= options


def test_every_option_of_a_select_can_be_asked_and_is_listed_once(client: TestClient) -> None:
    html = client.get("/").text
    for name, inside in re.findall(r'<select id="(\w+)".*?>(.*?)</select>', html, re.DOTALL):
        options = re.findall(r'<option value="(.*?)".*?>(.*?)</option>', inside)
        texts = [unescape(text) for _, text in options]
        assert len(texts) == len(set(texts)) > 1, name
        assert options[0][0] == "", name
        for value, _ in options[1:]:
            read_question([("model", "gpt2"), (name, unescape(value))])
    attention = html.partition('<select id="attention"')[2].partition("</select>")[0]
    assert re.findall(r'value="(.*?)"', attention)[1:] == ["eager", "sdpa", "flash"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("method", "full"),
        ("weights_dtype", "fp32"),
        ("objective", "time"),
        ("expert_dispatch", "all-to-all"),
    ],
)
def test_what_holds_unsaid_is_an_empty_select(client: TestClient, name: str, text: str) -> None:
    html = client.get("/", params={name: text}).text
    inside = html.partition(f'<select id="{name}"')[2].partition("</select>")[0]
    assert (
        inside
        == client.get("/").text.partition(f'<select id="{name}"')[2].partition("</select>")[0]
    )
    assert read_question([("model", "gpt2"), (name, text)]).request is not None


def test_form_offers_the_catalogue(client: TestClient) -> None:
    options = {option["value"] for option in Page(client.get("/").text).all("option")}
    assert {"openai-community/gpt2", "h100-sxm-80gb", "infiniband-ndr", "zero-3"} <= options


def test_no_page_leaves_the_origin_or_has_a_script_inside(client: TestClient) -> None:
    for path in (
        "/",
        f"/plan?{'&'.join(f'{k}={v}' for k, v in GPT2.items())}",
        "/rules",
        "/terms",
        "/terms/zero",
        "/docs",
    ):
        html = client.get(path).text
        page = Page(html)
        assert not page.all("iframe", "style")
        scripts = [script["src"] for script in page.all("script")]
        assert scripts == ["/static/fixi-0.9.4.js", "/static/page.js"]
        assert html.count("<script") == html.count("defer></script>") == 2
        for _, attributes in page.elements:
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            for name in ("href", "src", "action"):
                assert attributes.get(name, "/").startswith(("/", "#"))


def test_examples_give_plans(client: TestClient) -> None:
    links = [link["href"] for link in Page(client.get("/").text).all("a")]
    examples = [link for link in links if link.startswith("/plan?")]
    assert len(examples) == len(EXAMPLES)
    for link in examples:
        assert client.get(link).status_code == 200


def test_empty_fields_mean_nothing(client: TestClient) -> None:
    empty = dict.fromkeys(labels(), " ")
    plain = client.get("/plan", params=GPT2)
    padded = client.get("/plan", params={**empty, **GPT2})
    assert padded.status_code == 200
    assert padded.text == plain.text


def test_a_text_that_may_be_pasted_has_no_example_in_its_place(client: TestClient) -> None:
    areas = Page(client.get("/").text).all("textarea")
    assert [area["name"] for area in areas] == ["model", "topology", "machine"]
    assert all(area["placeholder"].startswith("none: ") for area in areas)


def test_result_page_says_what_the_library_says(client: TestClient) -> None:
    html = client.get("/plan", params=GPT2).text
    request = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    page = Page(re.sub(r'<a class="term"[^>]*>([^<]*)</a>', r"\1", html))
    chosen = plan.chosen
    assert heading(plan.job, chosen) == "DDP over 4 GPUs"
    assert page.text.index("DDP over 4 GPUs fits") < page.text.index("Memory")
    for chip in chips(plan.job, chosen):
        assert chip in page.text
    for tile in tiles(plan.job, chosen):
        assert f"{tile.label} {tile.amount} {tile.rest}" in page.text
        assert tile.trust in page.text
    for assumption in resolved.assumptions:
        assert assumption.text in page.text
        assert f'href="/?model=gpt2&amp;gpus_per_node=4#{control_of(assumption.field)}"' in html
    ledgers = ((chosen.memory.terms, format_bytes), (chosen.step_time.terms, format_seconds))
    for terms, show in ledgers:
        for term in terms:
            if term.amount:
                name = term.name.replace("_", " ")
                assert f"{name} {show(term.amount)} {term.how}" in page.text
                assert term.source in page.text
    # The word is a link, and what a page says is joined with spaces.
    reason, command, _ = plan.confidence.reason.partition("; planner accuracy --source ")
    assert command
    assert f"How sure : {plan.confidence.level}; {reason}. Nearest published runs" in page.text
    assert plan.confidence.like
    for source in plan.confidence.like.sources:
        assert f'<a href="/accuracy/{source}">{source}</a>' in html
    for finding in plan.findings:
        assert in_labels(finding.message) in page.text
        assert f'href="/rules/{finding.code}"' in html
    for other in plan.alternatives[:MOST_ROWS]:
        assert other.reason in page.text.replace(" , ", ", ").replace(" ; ", "; ")


def test_a_plan_stands_beside_the_nearest_published_runs(client: TestClient) -> None:
    html = client.get("/plan", params={"model": "gpt2", "gpus_per_node": "4"}).text
    asked = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
    _, plan = answers.suggest(asked, allow_paths=False)
    shown = unescape(html.partition('id="evidence"')[2].partition("</table>")[0])
    found = nearest_evidence(plan.job, plan.chosen)
    assert len(found) == 3
    for row in evidence_table(found).rows:
        assert all(cell in shown for cell in row.cells)
        assert f'href="/accuracy/{row.cells[-1]}"' in shown


def test_the_title_and_the_preview_carry_the_answer(client: TestClient) -> None:
    html = client.get("/plan", params={"model": "gpt2", "gpus_per_node": "4"}).text
    asked = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
    _, plan = answers.suggest(asked, allow_paths=False)
    title = unescape(html.partition("<title>")[2].partition("</title>")[0])
    preview = unescape(html.partition('property="og:title" content="')[2].partition('"')[0])
    step = format_seconds(plan.chosen.step_time.step_seconds)
    for said in (plan.job.model.name, "4 x a100-sxm-80gb", "DDP over 4 GPUs", "fits", step):
        assert said in title
        assert said in preview


def test_a_step_of_grpo_is_drawn_phase_by_phase_and_estimated_whole(client: TestClient) -> None:
    asked = {"model": "Qwen/Qwen2.5-0.5B", "gpus_per_node": "2", "job": "grpo"}
    html = client.get("/plan", params=asked).text
    phases = html.partition('id="phases"')[2].partition("</details>")[0]
    assert phases.count("<rect") == phases.count("<li>") >= 4
    assert html.index('id="phases"') < html.index('id="memory"')
    part = client.get("/estimate", params=asked).text
    assert "Step of GRPO" in part
    assert "Optimizer step" not in part


def test_trust_names_controls_not_flags(client: TestClient) -> None:
    query = {"model": "gpt2", "gpus_per_node": "4", "framework": "megatron"}
    page = Page(client.get("/plan", params=query).text)
    assert "“Release” would say which megatron" in page.text
    assert "--framework-version" not in page.text


def test_an_open_number_of_gpus_is_a_table_of_them(client: TestClient) -> None:
    query = {"model": "gpt2", "gpu": "a100", "gpus_per_node": "4", "objective": "gpus"}
    query |= {"training_tokens": "12000000000", "deadline_hours": "8"}
    page = Page(client.get("/plan", params=query).text)
    plan = client.get("/plan.json", params=query).json()
    assert "Numbers of GPUs" in page.text
    for option in plan["options"]:
        assert format_seconds(option["step_seconds"]) in page.text
    assert f"over {plan['job']['cluster']['world_size']} GPU" in page.text


def test_result_page_says_what_was_rejected(client: TestClient) -> None:
    query = {"model": "meta-llama/Llama-2-7b-hf", "gpu": "a100-80gb", "gpus_per_node": "8"}
    page = Page(client.get("/plan", params=query).text)
    assert re.search(r"MEM001 ddp \D*needs \d+ GiB of 79.1 GiB", page.text)


def test_json_is_what_rest_answers(client: TestClient) -> None:
    body = {"model": "gpt2", "cluster": {"gpus_per_node": 4}, "strategy": {"family": "zero-2"}}
    rest = client.post("/v1/suggest", json=body).json()
    page = client.get("/plan.json", params={**GPT2, "strategy": "ZeRO-2"}).json()
    assert pinned(page) == pinned(rest)
    assert page["chosen"]["strategy"]["zero_stage"] == 2


@pytest.mark.parametrize(
    "query",
    [
        GPT2,
        {"model": "gpt2"},
        {**GPT2, "strategy": "zero-2", "data_parallel_shard_size": "4", "recompute": "full"},
        {"model": "google-bert/bert-base-uncased", "gpu": "v100", "gpus_per_node": "8"},
        {
            **GPT2,
            "nodes": "2",
            "inter_node": "infiniband-ndr",
            "sequence_length": "512",
            "global_batch_size": "64",
            "precision": "bf16",
            "attention": "eager",
            "framework": "accelerate",
            "strategy": "zero-3",
            "micro_batch_size": "2",
            "recompute": "full",
        },
        {"model": "gpt2", "instance": "p4d.24xlarge", "nodes": "2"},
        {**GPT2, "method": "lora", "lora_rank": "8", "lora_targets": "c_attn, c_proj"},
        {**GPT2, "method": "qlora", "lora_targets": "all-linear", "optimizer": "paged-adamw"},
        {**GPT2, "weights_dtype": "config", "framework": "deepspeed"},
        {"model": "gpt2", "gpu": "3090:2,3060:1"},
        {**GPT2, "compile": "true"},
        {"model": "bert-base-uncased", "task": "sequence-classification"},
        {**GPT2, "tensor_parallel_size": "2", "objective": "memory"},
        {**GPT2, "objective": "cost", "max_gpus": "8"},
        {
            "model": "gpt2",
            "gpu": "a100",
            "gpus_per_node": "8",
            "objective": "gpus",
            "training_tokens": "3000000000",
            "deadline_hours": "1.5",
        },
    ],
)
def test_commands_on_the_page_give_the_same_plan(client: TestClient, query: Any) -> None:
    html = client.get("/plan", params=query).text
    expected = pinned(client.get("/plan.json", params=query).json())
    command, curl = (
        shlex.split(unescape(code))
        for code in re.findall(r'<code id="(?:command|curl)">(.*?)</code>', html, re.DOTALL)
    )
    printed = CliRunner().invoke(cli, [*command[1:], "--json"])
    assert command[0] == "planner"
    by_command = pinned(json.loads(printed.stdout))
    assert by_command["chosen"] == expected["chosen"]
    by_rest = client.post(curl[2].removeprefix("http://testserver"), content=curl[-1]).json()
    assert pinned(by_rest) == expected


@pytest.mark.parametrize(
    ("value", "flag"), [("true", "--peer-to-peer"), ("false", "--no-peer-to-peer")]
)
def test_a_switch_becomes_its_flag(value: str, flag: str) -> None:
    question = read_question([("model", "gpt2"), ("peer_to_peer", value)])
    assert command_line(question, "t4", 2).split()[-1] == flag


def test_topology_is_read_however_the_browser_ends_lines(client: TestClient) -> None:
    query = {"model": "gpt2", "gpus_per_node": "2", "topology": TOPOLOGY.replace("\n", "\r\n")}
    html = client.get("/plan", params=query).text
    assert "--topology topology.txt" in html
    assert "Save the topology" in html
    body = {"model": "gpt2", "cluster": {"gpus_per_node": 2, "topology": TOPOLOGY}}
    rest = client.post("/v1/suggest", json=body).json()
    assert pinned(client.get("/plan.json", params=query).json()) == pinned(rest)


@pytest.mark.parametrize(
    ("query", "status", "control", "says"),
    [
        ({}, 422, "model", "is missing"),
        ({"model": "openai/gtp2"}, 502, "model", "did you mean openai-community/gpt2"),
        ({"model": "../../etc/passwd"}, 422, "model", "is not a model id"),
        ({"model": "$(reboot)"}, 422, "model", "is not a model id"),
        ({"model": "a\nb"}, 422, "model", "is not a model id"),
        ({"model": "gpt2", "gpu": "h1000"}, 422, "gpu", "did you mean"),
        ({"model": "gpt2", "gpus_per_node": "0"}, 422, "gpus_per_node", "not 0"),
        ({"model": "gpt2", "nodes": "many"}, 422, "nodes", "must be a whole number, not 'many'"),
        ({**GPT2, "global_batch_size": "10"}, 422, "global_batch_size", "8 or 12"),
        ({"model": "gpt2", "topology": "GPU1 X"}, 422, "topology", "no header line"),
        ({**GPT2, "strategy": "zero-4"}, 422, "strategy", "did you mean zero-"),
        ({**GPT2, "strategy": "?"}, 422, "strategy", "known: ddp"),
        ({**GPT2, "attention": "fast"}, 422, "attention", "flash"),
        ({"model": "gpt2", "intra_node": "string"}, 422, "intra_node", "unknown link"),
        ({**GPT2, "framework": "tensorflow"}, 422, "framework", "known: accelerate"),
        ({**GPT2, "optimizer": "adam"}, 422, "optimizer", "did you mean adamw"),
        (
            {**GPT2, "precision": "fp8", "framework": "torch"},
            422,
            "precision",
            "not estimated for torch",
        ),
        ({**GPT2, "method": "dora"}, 422, "method", "'lora'"),
        ({**GPT2, "weights_dtype": "fp8"}, 422, "weights_dtype", "config"),
        ({**GPT2, "lora_rank": "8"}, 422, "lora_rank", "has no adapters"),
        ({**GPT2, "method": "lora", "lora_rank": "0"}, 422, "lora_rank", "not 0"),
        (
            {**GPT2, "method": "lora", "lora_rank": "r"},
            422,
            "lora_rank",
            "must be a whole number, not 'r'",
        ),
        ({**GPT2, "method": "lora", "lora_targets": "nope"}, 422, "lora_targets", "c_attn"),
        ({**GPT2, "method": "lora", "lora_targets": ","}, 422, "lora_targets", "1 or more"),
        ({**GPT2, "lora_targets": ",".join("q" * 65)}, 422, "lora_targets", "at most 64"),
    ],
)
def test_error_is_shown_above_the_form_and_at_its_control(
    client: TestClient, query: Any, status: int, control: str, says: str
) -> None:
    answer = client.get("/plan", params=query)
    page = Page(answer.text)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    alert = page.text.index("Plan a training run")
    assert says in page.text[alert : page.text.index("What to train")]
    wrong = {c["name"] for c in page.all("input", "select", "textarea") if "aria-invalid" in c}
    assert wrong == {control}
    assert any(attributes.get("id") == f"{control}-problem" for _, attributes in page.elements)


def test_error_keeps_what_was_typed(client: TestClient) -> None:
    query = {
        "model": "my/model",
        "gpu": "h1000",
        "topology": TOPOLOGY,
        "recompute": "sometimes",
        "precision": "bf16",
    }
    html = client.get("/plan", params=query).text
    values = [control.get("value") for control in Page(html).all("input")]
    assert {"my/model", "h1000"} <= set(values)
    assert TOPOLOGY in html
    selected = [o["value"] for o in Page(html).all("option") if "selected" in o]
    assert selected == ["bf16", "sometimes"]
    assert '<details class="more" open>' in html


def test_unknown_parameters_are_all_named_with_the_nearest(client: TestClient) -> None:
    text = Page(client.get("/plan", params={"modle": "gpt2", "gpsu": "4", "zzzzz": "1"}).text).text
    for says in ("Unknown field 'modle'", "did you mean model", "Unknown field 'zzzzz'"):
        assert says in text
    short = Page(client.get("/plan", params={"model": "gpt2", "gpus": "4"}).text).text
    assert "did you mean gpus_per_node?" in short
    assert "without" not in text.partition("Unknown field")[2].partition("What to train")[0]


def test_nothing_fits_is_a_conflict_with_a_way_out(client: TestClient) -> None:
    query = {"model": "meta-llama/Llama-2-70b-hf", "gpu": "t4", "gpus_per_node": "2"}
    answer = client.get("/plan", params=query)
    assert answer.status_code == 409
    assert "<title>Nothing fits: meta-llama/Llama-2-70b-hf on t4 - planner</title>" in answer.text
    assert 'property="og:description" content="The smallest layout (' in answer.text
    alert = answer.text.partition('role="alert"')[2].partition("</div>")[0]
    assert alert.lower().count("nothing fits") == 1
    table = alert.partition("<caption>What was tried")[2]
    assert '<th scope="row">Fine-tuning of all weights</th>' in table
    assert re.search(
        r'<a fx-action href="/plan\?[^"]+method=qlora[^"]*">QLoRA of rank 16</a>', table
    )
    assert "--" not in table
    needed = [float(x) for x in re.findall(r'<rect class="part-[\w]+" width="([\d.]+)%"', table)]
    (usable,) = {float(x) for x in re.findall(r'<line class="limit" x1="([\d.]+)%"', table)}
    fits = re.findall(r'<td data-label="Fits">(yes|no)</td>', table)
    assert [each <= usable for each in needed] == [each == "yes" for each in fits]
    assert {*fits} == {"yes", "no"}
    assert "aria-invalid" not in answer.text


@pytest.mark.parametrize("name", [*labels(), MARKUP])
def test_markup_is_escaped_in_every_field(client: TestClient, name: str) -> None:
    for path in ("/", "/plan", "/plan.zip"):
        html = client.get(path, params={**GPT2, name: MARKUP}, headers=HTML).text
        assert "<script>" not in html
        assert path != "/" or name == MARKUP or escape("<script>alert(1)</script>") in html


def test_markup_is_escaped_in_paths(client: TestClient) -> None:
    for path in ("/rules/<script>", "/terms/<script>", "/<script>", "/static/<script>"):
        answer = client.get(path, headers=HTML)
        assert answer.status_code == 404
        assert "<script>" not in answer.text


def test_yes_and_no_and_fields_without_a_control_are_understood() -> None:
    query = {**GPT2, "sequence_parallel": "False", "tensor_parallel_size": "1", "zero_stage": "1"}
    question = read_question(query.items())
    expected = {"sequence_parallel": False, "tensor_parallel_size": 1, "zero_stage": 1}
    assert question.payload["strategy"] == expected


def test_zip_holds_the_bundle_and_is_the_same_every_time(client: TestClient) -> None:
    first, second = (client.get("/plan.zip", params=GPT2) for _ in range(2))
    assert first.content == second.content
    assert first.headers["content-type"] == "application/zip"
    assert 'filename="plan.zip"' in first.headers["content-disposition"]
    request = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    expected = bundle_files(plan, answers.answer_plan(resolved, plan, None))
    with ZipFile(BytesIO(first.content)) as archive:
        assert archive.namelist() == sorted(f"plan/{name}" for name in expected)
        for entry in archive.infolist():
            text = archive.read(entry).decode()
            if not entry.filename.endswith("plan.json"):
                assert text == expected[entry.filename.removeprefix("plan/")]
            mode = entry.external_attr >> 16
            assert mode == (0o100755 if entry.filename.endswith(".sh") else 0o100644)
        plan_json = json.loads(archive.read("plan/plan.json"))
    whole = client.get("/plan.json", params=GPT2).json()
    assert plan_json["chosen"]["strategy"] == whole["chosen"]["strategy"]
    assert "search" not in plan_json


def test_the_zip_has_what_the_form_names_and_the_plan_links_to_the_rest(client: TestClient) -> None:
    named = {**GPT2, "targets": "torchrun", "launchers": "slurm"}
    with ZipFile(BytesIO(client.get("/plan.zip", params=named).content)) as archive:
        folders = {name.split("/")[1] for name in archive.namelist() if name.count("/") > 1}
    assert folders == {"torchrun", "launchers"}
    page = Page(client.get("/plan", params=GPT2).text)
    links = [link["href"] for link in page.all("a") if link["href"].startswith("/plan.zip")]
    assert [link.rpartition("targets=")[2] for link in links[1:]] == [
        "torchrun",
        "llama-factory",
    ]
    wrong = client.get("/plan.zip", params={**GPT2, "targets": "nanotrn"})
    assert wrong.status_code == 422
    assert "did you mean nanotron or megatron?" in wrong.text


@pytest.mark.parametrize(
    "choice", [{"framework": "composer"}, {"framework": "torchtitan", "precision": "fp8"}]
)
def test_page_says_why_there_are_no_files_to_download(
    client: TestClient, choice: dict[str, str]
) -> None:
    query = {**GPT2, "gpu": "h100", **choice}
    answer = client.get("/plan", params=query)
    refused = client.get("/plan.zip", params=query)
    problem = refused.json()
    assert answer.status_code == 200
    assert refused.status_code == 422
    page = Page(answer.text)
    assert f"Nothing to download: {problem['detail']}" in page.text
    assert not [link for link in page.all("a") if link["href"].startswith("/plan.zip")]
    assert "--out DIR" not in page.text


def test_error_of_a_download_is_a_page_for_a_browser_and_a_problem_for_a_program(
    client: TestClient,
) -> None:
    query = {"model": "gpt2", "gpus_per_node": "0"}
    page = client.get("/plan.zip", params=query, headers=HTML)
    problem = client.get("/plan.zip", params=query)
    data = client.get("/plan.json", params=query, headers=HTML)
    assert page.status_code == problem.status_code == data.status_code == 422
    assert "Plan a training run" in page.text
    assert problem.json()["field"] == data.json()["field"] == "cluster.gpus_per_node"


def test_every_rule_has_a_page(client: TestClient) -> None:
    links = {link["href"] for link in Page(client.get("/rules").text).all("a")}
    for rule in rules.RULES:
        assert f"/rules/{rule.code}" in links
        text = Page(client.get(f"/rules/{rule.code}").text).text
        for part in ("Why", "Instead", "Source"):
            assert part in text
        source = rule.text.split("\n\n")[-1].removeprefix("Source: ")
        assert squeezed(source) in squeezed(text)
        assert "`" not in text


def test_every_term_has_a_page(client: TestClient) -> None:
    links = {link["href"] for link in Page(client.get("/terms").text).all("a")}
    assert "/terms" in {link["href"] for link in Page(client.get("/rules").text).all("a")}
    for entry in glossary.entries():
        assert f"/terms/{entry.name}" in links
        answer = client.get(f"/terms/{entry.name}")
        assert answer.status_code == 200
        page = Page(answer.text)
        for text in ("Why", "When", "Costs", "Watch out", entry.title, entry.source):
            assert text in page.text
        for name in entry.names:
            assert name.text in page.text
        for link in page.all("a"):
            if link["href"].startswith(("/terms/", "/rules/")):
                assert client.get(link["href"]).status_code == 200


def test_an_unknown_term_is_a_page_with_the_nearest(client: TestClient) -> None:
    answer = client.get("/terms/tensor-paralelism")
    assert answer.status_code == 404
    assert "tensor parallel" in answer.text
    assert answer.headers["content-type"].startswith("text/html")


def test_every_finding_has_a_page(client: TestClient) -> None:
    listed = client.get("/rules").text
    for code, text in {**findings("topology"), **findings("probe")}.items():
        assert f'href="/rules/{code}"' in listed
        page = client.get(f"/rules/{code.lower()}")
        assert page.status_code == 200
        assert squeezed(text.split("\n\n")[0]) in squeezed(Page(page.text).text)


def node_section(page: str) -> str:
    """The part of a result page that shows a node's wiring, or nothing."""
    return page.partition('<section aria-labelledby="node">')[2].partition("</section>")[0]


def test_topology_is_shown_with_what_it_is_worth(client: TestClient) -> None:
    matrix = (TOPOLOGIES / "dgx1-v100-cube-mesh.txt").read_text()
    query = {"model": "gpt2", "gpu": "v100-sxm2-32gb", "topology": matrix}
    section = node_section(client.get("/plan", params=query).text)
    body = {"model": "gpt2", "cluster": {"gpu": "v100-sxm2-32gb", "topology": matrix}}
    cluster = answers.suggest(parse_request(body), allow_paths=False)[1].job.cluster
    text = Page(section).text
    assert section.count('role="img"') == 1
    for ranks in (2, 4, 8):
        link = cluster.link(ranks)
        rate = format_rate(link.bytes_per_second)
        assert f"{ranks} GPUs {link.name} {rate} {link.provenance}" in text
    devices = ",".join(map(str, cluster.gpu_order))
    assert cluster.gpu_order != tuple(range(8))
    assert f"CUDA_VISIBLE_DEVICES={devices}" in text


def test_topology_of_an_instance_is_shown(client: TestClient) -> None:
    page = client.get("/plan", params={"model": "gpt2", "instance": "p3.8xlarge"}).text
    assert "GPU3" in node_section(page)


def test_plan_without_a_topology_shows_no_wiring(client: TestClient) -> None:
    page = client.get("/plan", params=GPT2).text
    assert node_section(page) == ""
    assert 'class="wiring"' not in page


def test_findings_of_a_topology_are_said_once_with_a_link(client: TestClient) -> None:
    matrix = (TOPOLOGIES / "rtx5060ti_4gpu_phb_tabs.txt").read_text()
    (finding,) = parse_topology(matrix).findings
    page = client.get("/plan", params={"model": "gpt2", "topology": matrix}).text
    assert Page(page).text.count(finding.message) == 1
    assert f'href="/rules/{finding.code}"' in node_section(page)
    assert "Local rank and GPU index are the same." in page


def test_one_gpu_has_no_rings(client: TestClient) -> None:
    matrix = (TOPOLOGIES / "single-gpu.txt").read_text()
    section = node_section(client.get("/plan", params={"model": "gpt2", "topology": matrix}).text)
    assert "GPU0" in section
    assert "<table" not in section


def test_markup_in_a_pasted_topology_is_escaped(client: TestClient) -> None:
    nics = (Nic(name=MARKUP, pcie={0: "PIX"}),)
    pasted = dump(Topology(num_gpus=1, nvlink={}, pcie={}, nics=nics))
    page = client.get("/plan", params={"model": "gpt2", "topology": pasted})
    assert page.status_code == 200
    assert "<script>" not in page.text
    assert escape(MARKUP, quote=False).split("'")[0].replace('"', "&#34;") in page.text


def test_unknown_rule_is_a_page_with_a_hint(client: TestClient) -> None:
    answer = client.get("/rules/ONE09")
    assert answer.status_code == 404
    assert "did you mean ONE00" in answer.text


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/rules/ONE0022", "/rules/ONE002"),
        ("/terms/zerro", "/terms/zero"),
        ("/gpus/a1000", "/gpus/a100"),
        ("/links/nvlnk-5", "/links/nvlink-5"),
        ("/models/openai-community/gtp2", "/models/openai-community/gpt2"),
    ],
)
def test_a_name_that_was_perhaps_meant_is_a_link_to_its_page(
    client: TestClient, path: str, meant: str
) -> None:
    answer = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code in {404, 502}
    assert f'<a href="{meant}">See {meant.split("/", 2)[2]}</a>' in answer.text
    assert client.get(meant).status_code == 200


def test_a_field_that_was_perhaps_meant_is_a_link_with_its_value(client: TestClient) -> None:
    refused = client.get("/plan", params={"model": "gpt2", "gpus": "4"})
    meant = "/plan?model=gpt2&amp;gpus_per_node=4"
    assert f'<a fx-action href="{meant}">Plan it with gpus_per_node</a>' in refused.text
    assert ">Plan without it</a>" in refused.text
    taken = client.get("/plan", params={"model": "gpt2", "gpus": "4", "gpus_per_node": "2"})
    assert "Plan it with" not in taken.text


def test_docs_list_every_route_and_field_of_the_description(client: TestClient) -> None:
    html = client.get("/docs").text
    text, described = Page(html).text, client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in text
    assert set(re.findall(r'href="#(\w+)"', html)) - {"main"} <= set(
        re.findall(r'id="(\w+)"', html)
    )
    assert "Tokens per sequence." in text
    assert "gpus_per_node integer" in text
    assert '"bf16-mixed"' in text
    assert "X-HF-Token in the header" in text
    assert all(tag["description"].partition("\n")[0] in text for tag in described["tags"])
    assert re.search(r'<code>recipe</code> <span class="note"><a href="#RecipeRequest">', html)


def test_head_is_answered(client: TestClient) -> None:
    assert client.head("/").status_code == 200


def test_every_control_has_a_width_that_the_page_knows() -> None:
    style = (Path(__file__).parents[2] / "web" / "static" / "style.css").read_text()
    known = {int(columns) for columns in re.findall(r"\.span-(\d+) {", style)}
    groups = (*fieldsets(are_folded=False), *fieldsets(are_folded=True))
    assert {control.columns for group in groups for control in group.controls} <= known
    for group in groups:
        row = 0
        for control in group.controls:
            row = control.columns if row == 12 else row + control.columns
            assert row <= 12, control.name


def test_controls_share_no_name() -> None:
    groups = (*fieldsets(are_folded=False), *fieldsets(are_folded=True))
    names = [control.name for group in groups for control in group.controls]
    assert len(names) == len(set(names)) == len(labels())


def pipeline_page(stages: int) -> str:
    """The page of a layout that nobody would suggest yet."""
    query = {"model": "meta-llama/Llama-2-7b-hf", "gpu": "a100", "gpus_per_node": "8", "nodes": "2"}
    question = read_question(query.items())
    resolved, plan = answers.suggest(question.request, allow_paths=False)
    s = Layout(
        data_parallel_replicate_size=16 // stages,
        pipeline_parallel_size=stages,
        gradient_accumulation_steps=256 * stages // 16,
    )
    chosen = estimate(plan.job, s)
    shown = replace(plan, chosen=chosen)
    page = result(question, resolved, shown, refusal=None, base_url="/")
    return render("plan.html", **page, versus=None)


@pytest.mark.parametrize("stages", [2, 4, 16])
def test_every_pipeline_stage_has_its_bar_and_its_bytes(stages: int) -> None:
    html = pipeline_page(stages)
    page = Page(html)
    bars = [svg["aria-label"] for svg in page.all("svg") if "stage" in svg.get("class", "")]
    assert [label.split(":")[0] for label in bars] == [f"stage {n}" for n in range(stages)]
    assert f"Memory of one GPU at its peak {stages} pipeline stages" in page.text
    table = html.partition('<details class="exact">')[2].partition("</details>")[0]
    assert table.partition("</thead>")[0].count('<th scope="col">') == 1 + stages
    assert re.search(r"Stage \d+, the fullest: ", page.text)
    assert ("Does not fit: stage" in page.text) == any("does not fit" in bar for bar in bars)


def test_one_stage_is_shown_without_a_number(client: TestClient) -> None:
    page = Page(client.get("/plan", params=GPT2).text)
    (bar,) = (svg for svg in page.all("svg") if "stage" in svg.get("class", ""))
    assert "usable" in page.text
    request = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
    memory = answers.suggest(request, allow_paths=False)[1].chosen.memory
    low, likely, high = map(
        format_bytes, (memory.low_bytes, memory.reserved_bytes, memory.high_bytes)
    )
    assert bar["aria-label"].startswith(f"{likely}, likely {low} to {high}, of ")
    assert "stage 0" not in bar["aria-label"]
    assert "Beside the training peak" in page.text
    for group in ("One GPU, between two steps", "Host memory of a node", "What would fit"):
        assert group in page.text


@pytest.mark.parametrize("ledger", ["memory", "step_time"])
def test_bar_is_as_long_as_its_terms_and_letters_them(ledger: str) -> None:
    request = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 4}})
    _, plan = answers.suggest(request, allow_paths=False)
    terms = getattr(plan.chosen, ledger).terms
    total = sum(term.amount for term in terms)
    parts = rows(terms, format_bytes)
    svg = str(stacked_bar(parts, Total(amount=total, low=total, high=total, full=2 * total)))
    lengths = [float(width) for width in re.findall(r'<rect [^>]* width="([\d.]+)%"', svg)]
    starts = [float(x) for x in re.findall(r'<rect [^>]*x="([\d.]+)%"', svg)]
    assert sum(lengths) == pytest.approx(50, abs=0.01)
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert ends[:-1] == pytest.approx(starts[1:], abs=0.002)
    assert [part.letter for part in parts] == list("ABCDEFGHIJKL"[: len(parts)])
    assert "limit" not in svg
    for part in parts:
        assert f"{part.letter}: {part.name} {part.shown}" in svg


def test_meter_shows_the_range_and_the_limit() -> None:
    svg = str(meter(Total(amount=40, low=20, high=60, full=80, limit=72), "<40>"))
    assert '<line x1="25%" x2="75%"' in svg
    assert 'class="limit" x1="90%"' in svg
    assert 'cx="50%"' in svg
    assert 'aria-label="&lt;40&gt;"' in svg


def test_a_run_of_some_tokens_has_hours_and_a_price(client: TestClient) -> None:
    page = client.get("/plan?model=gpt2&instance=p4d.24xlarge&training_tokens=10000000000").text
    assert "Run of 10.0 B tokens" in page
    assert "GPU-hours" in page
    assert "on demand (2026-01-21)" in page


@pytest.mark.parametrize(
    ("text", "batch"), [("1,024", 1024), ("1024", 1024), ("1,02", None), ("1,024.5", None)]
)
def test_a_number_is_read_as_pages_write_it(text: str, batch: int | None) -> None:
    asked = {"model": "gpt2", "global_batch_size": text}.items()
    if batch:
        assert read_question(asked).request.recipe.global_batch_size == batch
        return
    with pytest.raises(InvalidInputError, match=f"cannot read '{text}' as a global batch"):
        read_question(asked)


@pytest.mark.parametrize(
    ("name", "text", "flag"),
    [
        ("sequence_length", "2k", "--seq-len"),
        ("sequence_length", "4096", "--seq-len"),
        ("global_batch_size", "0.5M", "--global-batch-size"),
        ("global_batch_size", "524288tokens", "--global-batch-size"),
        ("global_batch_size", "512", "--global-batch-size"),
        ("training_tokens", "1.5T", "--tokens"),
        ("deadline_hours", "36h", "--deadline"),
        ("deadline_hours", "7d", "--deadline"),
        ("precision", "fp16", "--precision"),
        ("precision", "BF16", "--precision"),
    ],
)
def test_the_form_reads_what_a_terminal_does(name: str, text: str, flag: str) -> None:
    question = read_question({"model": "gpt2", "gpu": "a100", name: text}.items())
    flags = suggest.make_context("suggest", ["gpt2", "--gpu", "a100", flag, text]).params
    assert question.request == build_request(flags.pop("model"), flags)
    assert text.lower() in question.values[name].lower()
    words = shlex.split(command_line(question, "a100", 1))
    again = suggest.make_context("suggest", words[2:]).params
    assert question.request == build_request(again.pop("model"), again)


def test_all_that_a_form_cannot_read_is_said_at_once() -> None:
    asked = {
        "model": "gpt2",
        "sequence_length": "many",
        "deadline_hours": "soon",
        "strategy": "zero-9",
        "nodes": "two",
    }
    with pytest.raises(InvalidRequestError) as caught:
        read_question(asked.items())
    hints = {problem.field: problem.hint for problem in caught.value.problems}
    assert hints == {
        "recipe.sequence_length": "such as 4096, or 128k for 131072",
        "deadline_hours": "such as 36h, 7d or 90m",
        "strategy.family": "did you mean zero-3 or zero-2 or zero-1?",
        "cluster.nodes": "such as 8",
    }


@pytest.mark.parametrize("text", ["300B", "300,000,000,000", "0.3t", "300000000000"])
def test_tokens_of_a_run_are_read_as_people_type_them(text: str) -> None:
    question = read_question({"model": "gpt2", "training_tokens": text}.items())
    assert question.payload["recipe"]["training_tokens"] == 300 * 10**9


@pytest.mark.parametrize("text", ["300,00", "many", "1,2,3", "-5B"])
def test_what_is_no_amount_of_tokens_is_refused_as_typed(client: TestClient, text: str) -> None:
    answer = client.get("/plan", params={"model": "gpt2", "training_tokens": text})
    assert answer.status_code == 422
    assert f"cannot read &#39;{text}&#39;" in answer.text


def test_a_note_on_foreign_gpus_keeps_their_name_and_no_price(client: TestClient) -> None:
    query = {
        "model": "gpt2",
        "instance": "p5.48xlarge",
        "gpu": "a100",
        "training_tokens": "1000000000",
    }
    page = client.get("/plan", params=query).text
    assert ">a100-sxm-80gb as given, not the h100-sxm-80gb" in page
    assert "on demand" not in page
    assert capitalized("the network") == "The network"


def test_the_pages_take_values_from_reports_and_no_text() -> None:
    """What a terminal shows is laid out already: a page that read it would have to take it apart."""
    imported = [
        name.name
        for module in Path(web.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("planner.report")
        for name in node.names
    ]
    assert "communication_figure" in imported
    assert [name for name in imported if name.endswith("text")] == []
