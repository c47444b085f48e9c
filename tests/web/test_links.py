"""Where the links of a plan lead: to one layout, to one change, to two plans side by side."""

import random
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants
from random_requests import random_request

from api.main import create_app
from api.settings import Settings
from planner import __version__, answers
from planner.advice.plan import Plan
from planner.core.errors import PlannerError
from planner.core.units import format_seconds
from planner.hardware.topology import parse_topology
from planner.report.plan import MOST_ROWS, shown_points
from planner.request.schema import Request, Resolved, resolve
from planner.search.candidate import Candidate
from web.form import Question, form_values, read_question
from web.jobs import draw_plan
from web.packed import packed
from web.permalink import opening, other_question, otherwise, permalink
from web.versus import Answered, versus
from web.what_if import CHANGE, as_chosen, beside_choices, what_ifs

GPT2 = {"model": "gpt2", "gpus_per_node": "4"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of the app, with the Hub out of reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        app = create_app(Settings(processes=0))
        yield TestClient(app, raise_server_exceptions=False)


def planned(query: dict[str, str]) -> tuple[Question, Resolved, Plan]:
    question = read_question(query.items())
    return question, *answers.suggest(question.request, allow_paths=False)


def layouts(plan: Plan) -> Iterator[tuple[Candidate, int | None]]:
    """Every layout that a page links, and on how many GPUs where not on the plan's."""
    for alternative in plan.alternatives[:MOST_ROWS]:
        yield alternative.candidate, None
    for point in shown_points(plan):
        is_here = point.gpus == plan.job.cluster.world_size
        yield point.candidate, None if is_here else point.gpus


def as_query(body: dict[str, Any]) -> dict[str, str]:
    """A random request as far as a form can say it."""
    said = {"model": body["model"], **body["cluster"], **body["recipe"]}
    said |= {
        name: body[name] for name in ("objective", "max_gpus", "deadline_hours") if name in body
    }
    said |= body.get("strategy", {})
    return {name: str(value) for name, value in said.items() if not isinstance(value, dict)}


def random_plans(count: int, start: int = 0) -> Iterator[tuple[dict[str, str], Plan, Question]]:
    number = start
    while count:
        number += 1
        query = as_query(random_request(number))
        try:
            question, _, plan = planned(query)
        except PlannerError:
            continue
        count -= 1
        yield query, plan, question


def drawn(plan: Plan) -> list[tuple[Candidate, int | None]]:
    """Of the layouts that a page links one on other GPUs and two on these: all links come from the same lines."""
    elsewhere: list[tuple[Candidate, int | None]] = []
    here: list[tuple[Candidate, int | None]] = []
    for candidate, gpus in layouts(plan):
        (elsewhere if gpus else here).append((candidate, gpus))
    chance = random.Random(str(plan.chosen.strategy))
    return [*elsewhere[:1], *chance.sample(here, min(2, len(here)))]


def follow(question: Question, plan: Plan) -> int:
    followed = 0
    for candidate, gpus in drawn(plan):
        query = opening(question, plan, candidate.strategy, gpus)
        _, _, found = planned(dict(parse_qsl(query)))
        assert found.chosen.strategy == candidate.strategy, query
        assert found.job.cluster.world_size == (gpus or plan.job.cluster.world_size)
        assert found.job.recipe == plan.job.recipe
        seconds = float(candidate.step_time.step_seconds)
        assert float(found.chosen.step_time.step_seconds) == pytest.approx(seconds, rel=1e-9)
        followed += 1
    return followed


@pytest.mark.parametrize("start", [0, 1000])
def test_rows_and_points_of_random_plans_open_their_layouts(start: int) -> None:
    followed = [follow(question, plan) for _, plan, question in random_plans(1, start)]
    assert sum(followed) > 0


@pytest.mark.parametrize(
    "query",
    [
        {
            "model": "gpt2",
            "gpu": "rtx-4090",
            "gpus_per_node": "8",
            "nodes": "2",
            "inter_node": "ethernet-1g",
        },
        {"model": "gpt2", "gpu": "a100", "gpus_per_node": "8", "objective": "gpus"},
        {"model": "gpt2", "gpu": "rtx-3090:2,rtx-3060:1"},
        {**GPT2, "framework": "megatron"},
        {**GPT2, "max_gpus": "8"},
        {"model": "gpt2", "gpu": "h100-pcie", "gpus_per_node": "6", "max_gpus": "4"},
        {"model": "Qwen/Qwen2.5-32B", "instance": "p4de.24xlarge"},
    ],
)
def test_rows_and_points_open_their_layouts_on_their_gpus(query: dict[str, str]) -> None:
    question, _, plan = planned(query)
    assert follow(question, plan) > 0


def test_the_page_links_every_row_and_point(client: TestClient) -> None:
    question, _, plan = planned(GPT2)
    html = client.get("/plan", params=GPT2).text
    hrefs = {unescape(href) for href in re.findall(r'href="(/plan\?[^"]*)"', html)}
    for candidate, gpus in layouts(plan):
        if candidate.strategy != plan.chosen.strategy:
            assert "/plan?" + opening(question, plan, candidate.strategy, gpus) in hrefs


@pytest.mark.parametrize(
    "query",
    [
        GPT2,
        {"model": "gpt2", "instance": "p4d.24xlarge", "nodes": "2"},
        {
            "model": "meta-llama/Llama-2-7b-hf",
            "gpu": "a100",
            "gpus_per_node": "8",
            "method": "lora",
            "lora_rank": "8",
        },
        {
            "model": "gpt2",
            "gpu": "a100",
            "gpus_per_node": "8",
            "strategy": "zero-2",
            "recompute": "full",
            "gradient_accumulation_steps": "2",
        },
    ],
)
def test_what_if_changes_one_thing(query: dict[str, str]) -> None:
    question, resolved, plan = planned(query)
    followed = 0
    beside = beside_choices(question, resolved, plan)
    for each in what_ifs(question, resolved, plan):
        changed_by = {
            "GPUs": {"gpus_per_node", "nodes"},
            "Card": {"gpu"},
            "Sequence": {"sequence_length"},
            "Batch": {"global_batch_size"},
            "Micro-batch": {"micro_batch_size"},
            "Recompute": {"recompute"},
            "ZeRO stage": {"strategy"},
            "Loss": {"loss"},
            "Method": {"method", "lora_rank"},
            "Framework": {"framework"},
        }[each.name]
        for choice in each.choices:
            if not choice.change:
                continue
            chosen = as_chosen((*beside.items(), (CHANGE, choice.change)))
            asked = read_question(chosen.items())
            now = resolve(asked.request, allow_paths=False).job
            held = {"global_batch_size", "gradient_accumulation_steps"}
            differs = {
                name
                for name in question.short | asked.short
                if question.short.get(name) != asked.short.get(name)
            }
            assert differs <= changed_by | held, choice.change
            assert differs & changed_by, choice.change
            if each.name not in {"Batch", "GPUs"}:
                assert now.recipe.global_batch_size == resolved.job.recipe.global_batch_size
            back = other_question(asked.short, asked.versus)
            assert back.short == question.short
            followed += 1
    assert followed >= 6


def test_a_batch_is_halved_where_it_still_fills_replicas_and_stages() -> None:
    query = {
        "model": "gpt2",
        "gpu": "a100",
        "gpus_per_node": "8",
        "framework": "megatron",
        "pipeline_parallel_size": "4",
        "data_parallel_size": "2",
    }
    for batch, labels in (
        ("16", ["8", "16", "32", "64"]),
        ("18", ["18", "36", "72"]),
        ("8", ["8", "16", "32"]),
    ):
        question, resolved, plan = planned({**query, "global_batch_size": batch})
        assert plan.chosen.strategy.data_parallel_size == 2
        (batches,) = (each for each in what_ifs(question, resolved, plan) if each.name == "Batch")
        assert [choice.label for choice in batches.choices] == labels


def test_half_and_double_are_nodes_where_a_node_is_whole() -> None:
    question, resolved, plan = planned({"model": "gpt2", "instance": "p4d.24xlarge", "nodes": "2"})
    (gpus,) = (each for each in what_ifs(question, resolved, plan) if each.name == "GPUs")
    assert [choice.label for choice in gpus.choices] == ["8", "16", "32", "64"]
    asked = [dict(parse_qsl(choice.change)) for choice in gpus.choices]
    assert [each.get("nodes") for each in asked] == ["1", None, "4", "8"]


def test_a_followed_change_is_shown_with_its_difference(client: TestClient) -> None:
    query = {**GPT2, "job": "pretrain"}
    changed = {**query, "gpus_per_node": "8"}
    page = client.get("/plan", params={**changed, "vs": "gpus_per_node=4"}).text
    _, _, before = planned(query)
    _, _, after = planned(changed)
    banner = page.partition('<section class="versus"')[2].partition("</section>")[0]
    assert "GPUs per node</strong> 4" in banner
    assert f"{format_seconds(before.chosen.step_time.step_seconds)}, now" in banner
    assert after.chosen.step_time.step_seconds < before.chosen.step_time.step_seconds
    assert "faster" in banner
    assert 'href="/compare?' in banner
    assert '<section class="versus"' not in client.get("/plan", params=GPT2).text


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"gpu": "l40s"}, "GPU a100-sxm-80gb → l40s"),
        ({"sequence_length": "512"}, "Sequence length 1024 → 512"),
        ({"method": "lora"}, "Method full → lora"),
        ({"nodes": "2"}, "Nodes 1 → 2"),
        ({"recompute": "full"}, "Activation recompute none → full"),
        ({"strategy": "zero-3"}, "Strategy ddp → zero-3"),
        ({"compile": "false"}, "torch.compile yes → no"),
        ({"training_tokens": "1000000000"}, "Tokens of the run not said → 1000000000"),
    ],
)
def test_what_was_not_said_is_shown_as_it_was_taken(change: dict[str, str], shown: str) -> None:
    one, other = planned(GPT2), planned({**GPT2, **change})
    told = versus(
        Answered(question=other[0], plan=other[2]), Answered(question=one[0], plan=one[2])
    )
    (said,) = told.changes
    assert "{} {} → {}".format(*said) == shown


def test_what_changed_besides_is_said_with_both_values(client: TestClient) -> None:
    query = {"model": "gpt2", "gpus_per_node": "8", "nodes": "2", "gpu": "rtx-4090"}
    query |= {"job": "pretrain"}
    page = client.get("/plan", params={**query, "vs": "gpu=h100-sxm-80gb"}).text
    banner = unescape(page.partition('<section class="versus"')[2].partition("</section>")[0])
    said = re.sub(r"<[^>]+>", "", banner.partition("Also changed: ")[2].partition("</p>")[0])
    before, after = (planned({**query, **gpu})[2] for gpu in ({"gpu": "h100-sxm-80gb"}, {}))
    links = [link for plan in (before, after) if (link := plan.job.cluster.inter_node)]
    assert f"network {links[0].name} → {links[1].name}" in said
    sizes = [plan.chosen.strategy.micro_batch_size for plan in (before, after)]
    assert (f"micro-batch {sizes[0]} → {sizes[1]}" in said) == (sizes[0] != sizes[1])
    assert "machine" not in said
    again = client.get("/plan", params={**query, "vs": "gpu=rtx-4090"}).text
    assert "Also changed" not in again


@pytest.mark.parametrize(
    "versus",
    ["gpu=h1000", "zzz=1", "model=", "&".join(f"a{i}=1" for i in range(200)), "vs=vs%3Dgpu", "<b>"],
)
def test_a_strange_comparison_is_a_problem_and_never_a_failure(
    client: TestClient, versus: str
) -> None:
    for path, query in (
        ("/plan", {**GPT2, "vs": versus}),
        ("/compare", {"a": urlencode(GPT2), "b": versus}),
        ("/compare", {"a": versus, "b": ""}),
        ("/compare.json", {"a": versus}),
    ):
        answer = client.get(path, params=query, headers={"accept": "text/html"})
        assert answer.status_code in {200, 422}
        assert (
            "<b>" not in answer.text.replace("<b>no", "").replace("<b>yes", "") or path == "/plan"
        )


def test_two_plans_stand_side_by_side(client: TestClient) -> None:
    said = {"a": urlencode(GPT2), "b": "strategy=zero-3"}
    page = client.get("/compare", params=said).text
    data = client.get("/compare.json", params=said).json()
    titles = [group["title"] for group in data["groups"]]
    assert titles[0] == "What it takes"
    for group in data["groups"]:
        for row in group["rows"]:
            assert row["one"] in unescape(page)
            assert row["other"] in unescape(page)
    assert data["b"]["query"] == urlencode({**GPT2, "strategy": "zero-3"})
    assert page.count('class="differs"') >= 3


def test_links_that_are_pasted_are_compared(client: TestClient) -> None:
    form = client.get("/compare")
    assert form.status_code == 200
    assert 'name="a"' in form.text
    assert "Two plans are compared" in client.get("/compare", params={"a": "model=gpt2"}).text
    whole = f"https://planner.example.org/plan?{urlencode(GPT2)}&planner=0.1.0#memory"
    short = f"/plan?{urlencode({**GPT2, 'strategy': 'zero-3'})}"
    pasted = client.get("/compare", params={"a": whole, "b": short})
    plain = client.get("/compare", params={"a": urlencode(GPT2), "b": "strategy=zero-3"})
    assert pasted.text == plain.text


def test_a_plan_that_there_is_not_leaves_its_side_empty(client: TestClient) -> None:
    said = {"a": urlencode(GPT2), "b": "model=meta-llama/Llama-2-70b-hf&gpu=t4&gpus_per_node=2"}
    answer = client.get("/compare", params=said)
    assert answer.status_code == 200
    assert "The second has no plan" in answer.text


def test_a_permalink_says_the_version_and_no_default(client: TestClient) -> None:
    query = {**GPT2, "nodes": "1", "method": "full", "objective": "time"}
    question = read_question(query.items())
    assert permalink(question) == f"/plan?{urlencode(GPT2)}&planner={__version__}"
    plain, said = (planned(each)[2] for each in (GPT2, query))
    assert plain.chosen == said.chosen
    not_open = read_question({**GPT2, "compile": "false", "framework": "torch"}.items())
    assert "&framework=torch" in permalink(not_open)
    assert "&compile=false" in permalink(not_open)
    page = client.get(permalink(question)).text
    assert "link was made by planner" not in page
    old = client.get("/plan", params={**GPT2, "planner": "0.0.0<b>"}).text
    assert "link was made by planner 0.0.0&lt;b&gt;" in old


def test_what_goes_unsaid_changes_nothing() -> None:
    chance = random.Random(7)
    defaults = {
        "nodes": "1",
        "method": "full",
        "objective": "time",
        "cuda_graphs": "false",
        "expert_dispatch": "all-to-all",
    }
    for name, text in defaults.items():
        query = {"model": "gpt2", "gpus_per_node": chance.choice(["1", "4"]), name: text}
        question = read_question(query.items())
        assert name not in question.short
        said = resolve(question.request, allow_paths=False)
        unsaid = resolve(read_question(question.short.items()).request, allow_paths=False)
        assert said == unsaid


def test_a_form_sent_empty_is_moved_to_its_short_address(client: TestClient) -> None:
    answer = client.get("/plan?model=gpt2&gpu=&nodes=&method=", follow_redirects=False)
    assert answer.status_code == 307
    assert answer.headers["location"] == "/plan?model=gpt2"


def test_what_is_said_otherwise_is_read_back() -> None:
    one, other = {"model": "gpt2", "gpu": "a100"}, {"model": "gpt2", "nodes": "2"}
    assert other_question(other, otherwise(one, other)).values == one


@pytest.mark.parametrize(
    "query",
    [
        {"model": "meta-llama/Llama-2-70b-hf", "gpu": "a100", "gpus_per_node": "2"},
        {"model": "meta-llama/Llama-2-70b-hf", "gpu": "t4", "gpus_per_node": "2"},
        {
            "model": "meta-llama/Llama-2-7b-hf",
            "gpu": "a100",
            "gpus_per_node": "8",
            "strategy": "ddp",
        },
    ],
)
def test_what_would_fit_is_a_link_to_a_plan(client: TestClient, query: dict[str, str]) -> None:
    answer = client.get("/plan", params={**query, "vs": "gpu=h100"})
    assert answer.status_code == 409
    alert = answer.text.partition('role="alert"')[2].partition("</div>")[0]
    found = re.findall(r'<a fx-action href="(/plan\?[^"]+)">', alert)
    assert found
    assert len(found) == alert.count(">yes</td>") + len(
        re.findall(r"<li><a[^>]+>[^<]+ fits", alert)
    )
    for href in found:
        planned(dict(parse_qsl(urlsplit(unescape(href)).query)))
        assert "vs=" not in href


TOPOLOGIES = Path(__file__).parents[1] / "topologies"


@pytest.mark.parametrize("name", sorted(file.stem for file in TOPOLOGIES.glob("*.txt")))
def test_a_topology_in_a_link_says_the_same_in_less(name: str) -> None:
    text = (TOPOLOGIES / f"{name}.txt").read_text().strip("\n")
    try:
        topology = parse_topology(text)
    except PlannerError:
        return
    question = read_question([("model", "gpt2"), ("topology", text)])
    linked = packed(question.short)["topology"]
    assert len(linked) <= len(text)
    values = form_values([("topology", linked)])
    assert parse_topology(values["topology"]) == topology
    assert packed(values) == {"topology": linked}
    assert question.short["topology"] == text


@pytest.mark.parametrize(("beside", "plans"), [({}, 1), ({"vs": "gpus_per_node=2"}, 2)])
def test_a_page_makes_no_plan_that_it_does_not_show(
    monkeypatch: pytest.MonkeyPatch, beside: dict[str, str], plans: int
) -> None:
    asked = []
    suggest = answers.suggest

    def counted(request: Request, *, allow_paths: bool) -> tuple[Resolved, Plan]:
        asked.append(request)
        return suggest(request, allow_paths=allow_paths)

    monkeypatch.setattr(answers, "suggest", counted)
    draw_plan(tuple({**GPT2, **beside}.items()), "http://testserver/")
    assert len(asked) == plans


@pytest.mark.parametrize(
    "asked",
    [
        {
            "model": "meta-llama/Llama-2-7b-hf",
            "gpu": "rtx-4090",
            "gpus_per_node": "8",
            "framework": "torch",
        },
        {"model": "gpt2", "gpus_per_node": "4", "framework": "nanotron"},
    ],
    ids=["far faster otherwise", "without files"],
)
def test_what_is_named_in_place_of_a_plan_is_what_its_link_opens(asked: dict[str, str]) -> None:
    page = draw_plan(tuple(asked.items()), "http://testserver/")
    found = re.search(
        r'<p class="instead">(?:Or|Instead): <a fx-action href="/plan\?([^"]+)">[^<]+</a>: ([^<]+)\.</p>',
        page,
    )
    assert found
    query, words = unescape(found[1]), unescape(found[2])
    opened = draw_plan(tuple(parse_qsl(query)), "http://testserver/")
    (step,) = re.findall(r", ([\d.,]+ \w+) per step", words)
    assert f'<p class="amount">{step}</p>' in opened
    assert "Download the files" in opened
