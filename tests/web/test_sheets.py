"""The pages of the catalogue: what they say, where they lead, and their JSON."""

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote, urlsplit

import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants

from api.main import create_app
from api.settings import Settings
from planner.accuracy import predict
from planner.accuracy.kept import kept
from planner.accuracy.predict import Refusal
from planner.catalog import records
from planner.catalog.news import news
from planner.catalog.packages import packages
from planner.catalog.published_runs import run_source, source_names
from planner.catalog.releases import releases_of
from planner.core.units import format_bytes, format_fraction, format_seconds
from planner.models.hub import find_model
from planner.report.catalog import gpus_text
from planner.request.model import load_model
from web.hardware_sheets import gpu_sheet, gpus_sheet, instances_sheet
from web.model_sheets import model_sheet
from web.predicted import Measure, draw_predicted

LISTS = {
    "gpus": records.gpu_names(),
    "instances": records.instance_names(),
    "links": records.link_names(),
    "frameworks": records.framework_names(),
    "models": records.model_ids(),
    "accuracy": source_names(),
}
TOPOLOGY = "        GPU0    GPU1\nGPU0     X      NV12\nGPU1    NV12     X"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of the app, with the Hub out of reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        app = create_app(Settings(processes=0))
        yield TestClient(app, raise_server_exceptions=False)


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_leads_to_each_of_its_kind_and_to_json(client: TestClient, kind: str) -> None:
    page = client.get(f"/{kind}")
    assert page.status_code == 200
    for name in LISTS[kind]:
        assert f'href="/{kind}/{name}"' in page.text, name
    assert client.get(f"/{kind}.json").json() == client.get(f"/v1/{kind}").json()


@pytest.mark.parametrize("kind", ["gpus", "instances", "links", "frameworks"])
def test_every_record_has_a_page_with_its_source(client: TestClient, kind: str) -> None:
    for name in LISTS[kind]:
        page = client.get(f"/{kind}/{name}")
        assert page.status_code == 200, name
        data = client.get(f"/{kind}/{name}.json").json()
        source = data.get("source") or data["capabilities"]["source"]
        assert " ".join(source.split()) in words(page.text)
        for href in re.findall(r'href="(/(?:gpus|instances|links)/[^"]+)"', page.text):
            assert client.get(href).status_code in {200, 307}


@pytest.mark.parametrize(
    "path",
    [
        "/gpus/h1000",
        "/links/nvlunk",
        "/instances/p9",
        "/frameworks/x",
        "/accuracy/nobody",
        "/accuracy/nobody.json",
        "/gpus/<script>",
        "/models/etc%2f..%2fpasswd",
    ],
)
def test_what_is_not_there_is_said(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code in {404, 422}
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    "name", ["gpt2", "meta-llama/Llama-2-70b-hf", "google-bert/bert-base-uncased"]
)
def test_a_model_says_its_parts_methods_and_cards(client: TestClient, name: str) -> None:
    page = client.get(f"/models/{name}")
    model, _ = load_model(name, allow_paths=False)
    text = words(page.text)
    assert f"Parameters {model.parameters:,}" in text
    for part in model.parts:
        assert f"{part.name} {part.count:,} {part.parameters:,}" in text
    sheet = model_sheet(name)
    _, by_method, held = sheet.tables
    weights = by_method.rows[0][1].text
    assert weights == format_bytes(4 * model.parameters)
    assert held.rows[0][0].text == "rtx-4090"
    counts = [[int(cell.text) for cell in row[1:]] for row in held.rows]
    assert all(row == sorted(row, reverse=True) for row in counts)
    assert all(list(column) == sorted(column, reverse=True) for column in zip(*counts, strict=True))
    assert find_model(name, allow_paths=False).name == model.name


def test_a_16_bit_peak_is_none_where_a_gpu_has_none() -> None:
    (listed,) = gpus_sheet().tables
    column = listed.headings.index("16-bit peak")
    peaks = {row[0].text: row[column].text for row in listed.rows}
    assert {name for name, peak in peaks.items() if peak == "none"} == {
        name
        for name in records.gpu_names()
        if not records.gpu(name).peak_flops.keys() & {"bf16", "fp16"}
    }
    assert (peaks["p40"], peaks["a100-sxm-80gb"]) == ("none", "312 TFLOP/s")
    assert re.search(r"p40 .*none", gpus_text([records.gpu("p40")], None))


def test_a_gpu_is_rented_as_its_instances() -> None:
    sheet = gpu_sheet("a100")
    assert sheet.title == "a100-sxm-80gb"
    (rented,) = (table for table in sheet.tables if table.title == "Rented as")
    names = {name for name in records.instance_names() if records.instance(name).gpu == sheet.title}
    assert {row[0].text for row in rented.rows} == names


def test_frameworks_name_their_releases_and_packages(client: TestClient) -> None:
    text = words(client.get("/frameworks").text)
    for name, releases in packages().items():
        assert f"{name} {releases.oldest} {releases.newest}" in text
    for name in records.framework_names():
        assert records.framework(name).capabilities.version in text
        for release in releases_of(name):
            assert release.name in text


def test_a_source_shows_every_run_that_was_measured(client: TestClient) -> None:
    name = "torchtitan"
    page = client.get(f"/accuracy/{name}").text
    runs = run_source(name).runs
    timed = [run for run in runs if run.step_seconds]
    assert f"Step time, predicted against published, of {len(timed)} runs" in page
    for run in runs:
        assert run.id in page


def test_no_page_on_accuracy_estimates_a_run(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of runs take seconds: what they give is kept."""

    def estimate(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(predict, "_predict_table", estimate)
    for name in source_names():
        assert client.get(f"/accuracy/{name}").status_code == 200
        said = client.get(f"/accuracy/{name}.json").json()
        results = kept(name).results
        assert said["runs"] == len(results)
        assert said["refused"] == sum(isinstance(each, Refusal) for each in results)


_SIDES = (["Step", "Predicted", "Off"], ["Memory", "Predicted", "Off"])


def test_dots_lie_on_the_line_where_both_are_the_same() -> None:
    step = Measure(name="Step time", show=format_seconds, unit=1.0)
    svg = str(draw_predicted([(1.0, 1.0), (10.0, 10.0), (1.0, 10.0)], step))
    (dots,) = re.findall(r'class="runs" d="([^"]+)"', svg)
    places = [tuple(map(int, each.split())) for each in re.findall(r"M(\d+ \d+)h0", dots)]
    assert len(places) == 3
    assert all(x + y == 1000 for x, y in places[:2])
    assert places[2] == (places[0][0], places[1][1])
    across = re.findall(r'<text class="tick[^"]*" x="([\d.]+)%" [^>]*>([^<]+)<', svg)
    assert [text for _, text in across] == ["1 s", "2 s", "5 s", "10 s"]
    # 1 s stands below the first dot: 12 % are the labels'.
    assert float(across[0][0]) == pytest.approx(12 + 0.088 * places[0][0], abs=0.1)


def test_a_source_has_no_columns_of_what_was_not_published(client: TestClient) -> None:
    page = client.get("/accuracy/internevo").text
    headings = re.findall(r'<th scope="col"[^>]*>([^<]+)<', page)
    assert headings == ["Run", "Step", "Predicted", "Off"]
    of_both = client.get("/accuracy/fms").text
    assert re.findall(r'<th scope="col"[^>]*>([^<]+)<', of_both)[1:] == [*_SIDES[0], *_SIDES[1]]
    assert "1 groups" not in client.get("/accuracy/torchtitan").text


def test_a_topology_alone_is_drawn(client: TestClient) -> None:
    empty = client.get("/topology")
    assert "Paste what a machine says" in empty.text
    page = client.get("/topology", params={"topology": TOPOLOGY.replace("\n", "\r\n")})
    assert page.text.count('role="img"') == 1
    assert TOPOLOGY in unescape(page.text)
    data = client.get("/topology.json", params={"topology": TOPOLOGY}).json()
    assert data == client.post("/v1/topology", json={"text": TOPOLOGY}).json()
    wrong = client.get("/topology", params={"topology": "GPU1 X"})
    assert wrong.status_code == 422
    assert "no header line" in wrong.text


def test_a_topology_that_is_not_understood_stays_in_the_form(client: TestClient) -> None:
    strange = TOPOLOGY.replace("NV12", "NV17")
    answer = client.get("/topology", params={"topology": strange})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert "\nGPU0     X      NV17" in answer.text
    named = client.get("/topology", params={"topology": strange, "gpu": "h100"})
    assert named.status_code == 200
    assert 'value="h100"' in named.text
    assert "gpu=h100" in named.text
    unknown = client.get("/topology", params={"topologie": TOPOLOGY})
    assert unknown.status_code == 422
    assert "did you mean topology?" in unknown.text
    assert client.get("/topology", params={"gpu": "<b>"}).text.count("<b>") == 0


def test_what_is_new_is_of_this_version(client: TestClient) -> None:
    (newest, *_) = news()
    assert newest.number == client.get("/openapi.json").json()["info"]["version"]
    page = words(client.get("/new").text)
    assert all(line in page for line in newest.lines)
    assert client.get("/new.json").json()["versions"][0]["lines"] == list(newest.lines)


def test_every_page_is_led_to_from_the_form(client: TestClient) -> None:
    links = set(re.findall(r'href="(/[a-z]+)"', client.get("/").text))
    assert links >= {
        "/models",
        "/gpus",
        "/instances",
        "/links",
        "/frameworks",
        "/topology",
        "/rules",
        "/terms",
        "/accuracy",
        "/new",
        "/docs",
    }
    for kind in ("rules", "terms"):
        assert client.get(f"/{kind}.json").json() == client.get(f"/v1/{kind}").json()


@pytest.mark.parametrize(
    "path",
    [
        *(f"/{kind}" for kind in (*LISTS, "rules", "terms", "new")),
        "/rules/ONE002",
        "/terms/zero-3",
        "/models/openai-community/gpt2",
        "/gpus/t4",
        "/compare?a=model%3Dgpt2&b=nodes%3D2",
        "/plan?model=gpt2",
        "/topology?topology=" + quote(TOPOLOGY),
    ],
)
def test_a_page_leads_to_the_same_as_json(client: TestClient, path: str) -> None:
    page = client.get(path)
    (led,) = set(re.findall(r'href="([^"]+)">JSON</a>', page.text))
    assert urlsplit(unescape(led)).path == f"{urlsplit(path).path}.json"
    answer = client.get(unescape(led))
    assert answer.status_code == 200
    assert answer.json()


def test_a_model_is_opened_by_its_name(client: TestClient) -> None:
    page = client.get("/models").text
    assert page.count("<option") == len(records.model_ids())
    found = client.get("/models", params={"name": " openai-community/gpt2 "})
    assert found.url.path == "/models/openai-community/gpt2"
    assert "<h1>openai-community/gpt2</h1>" in found.text
    escaped = client.get("/models", params={"name": "../<b>?x"}, follow_redirects=False)
    assert escaped.headers["location"] == "/models/../%3Cb%3E%3Fx"


def test_a_models_json_has_the_tables_of_its_page(client: TestClient) -> None:
    answer = client.get("/models/gpt2.json")
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    rest = client.get("/v1/models/gpt2").json()
    assert {name: found[name] for name in rest} == rest
    page = client.get("/models/gpt2").text
    for method in ("full", "lora", "qlora"):
        held = found["whole_on_one_gpu"][method]
        parts = [held[f"{part}_bytes"] for part in ("parameters", "gradients", "optimizer_states")]
        assert sum(parts) + held["rest_bytes"] == pytest.approx(held["reserved_bytes"], abs=3)
        assert format_bytes(held["reserved_bytes"]) in page
    assert found["fewest_gpus"]["rtx-4090"] == {"full": 1, "lora": 1, "qlora": 1}
    large = client.get("/models/meta-llama/Llama-3.1-70B.json").json()
    assert large["fewest_gpus"]["h200-sxm"]["full"] > large["fewest_gpus"]["h200-sxm"]["qlora"]


def test_the_list_of_sources_says_how_far_off_each_is(client: TestClient) -> None:
    page = client.get("/accuracy").text
    for name in source_names():
        figures = kept(name).figures
        row = page.partition(f'href="/accuracy/{name}"')[2].partition("</tr>")[0]
        assert figures.time is not None
        assert figures.coverage is not None
        assert f">{format_fraction(figures.time.median)}<" in row
        assert f">{format_fraction(figures.coverage)}<" in row


def test_prices_are_dated_where_a_column_has_no_room() -> None:
    asides = {table.title: table.aside for table in instances_sheet().tables}
    assert asides["AWS"].endswith(" instances; prices: 2026-01-21, 2026-09-29")
    assert asides["Lambda"].endswith(" instances; prices: 2026-09-20")
    assert asides["GCP"].endswith(" instances; prices: none")
