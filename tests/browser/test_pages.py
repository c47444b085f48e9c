"""The pages in a real browser: what a person sees, clicks and downloads."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import combinations, product
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode
from zipfile import ZipFile

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from api.main import app
from planner.domain.strategy import Layout
from planner.memory.ledger import stage_memories
from planner.request.schema import parse_request, resolve
from web.pages import render
from web.stages import draw_stages

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
GPT2 = "/plan?model=gpt2&gpus_per_node=4"
PIPELINE = "/plan?" + urlencode(
    {
        "model": "meta-llama/Llama-3.1-70B",
        "gpu": "h100-sxm-80gb",
        "gpus_per_node": "8",
        "nodes": "4",
        "framework": "megatron",
    }
)
TOPOLOGY = (TOPOLOGIES / "dgx1-v100-cube-mesh.txt").read_text()
EVERY_PAGE = {
    "form": "/",
    "plan": GPT2,
    "what-if": "/plan?model=gpt2&gpus_per_node=8&vs=gpus_per_node%3D4",
    "pipeline": PIPELINE,
    "error": "/plan?model=gpt2&gpu=h1000",
    "compare": "/compare?" + urlencode({"a": "model=gpt2&gpus_per_node=4", "b": "strategy=zero-3"}),
    "topology": "/topology?" + urlencode({"topology": TOPOLOGY}),
    "model": "/models/gpt2",
    "models": "/models",
    "gpu": "/gpus/a100-sxm-80gb",
    "instances": "/instances",
    "framework": "/frameworks/megatron",
    "accuracy": "/accuracy/torchtitan",
    "term": "/terms/zero-3",
    "rules": "/rules",
    "new": "/new",
    "docs": "/docs",
}
WIDTHS = (320, 390, 768, 1280)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
FOLDS = "() => document.querySelectorAll('details').forEach(each => each.open = true)"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The service, on a port that the system chose."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.05)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """A page, and what must not happen while it is used."""

    page: Page
    origin: str
    console_errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind in {"error", "warning"}:
            self.console_errors.append(text)

    def check(self) -> None:
        assert self.console_errors == []
        assert self.requests
        assert all(url.startswith(self.origin) for url in self.requests)


Visitor = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visitor]:
    """`visit(java_script_enabled=False)`: the form in a fresh browser context."""
    contexts = []

    def open_form(**options: object) -> Visit:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        contexts.append(context)
        opened = Visit(context.new_page(), address)
        opened.page.goto(address)
        return opened

    yield open_form
    for context in contexts:
        context.close()


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_form_leads_to_a_plan_and_its_files(
    visit: Visitor, tmp_path: Path, *, java_script_enabled: bool
) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("GPUs per node").fill("4")
    page.get_by_role("button", name="Plan it").click()
    heading = page.get_by_role("heading", level=1).inner_text()
    assert heading.split("\n")[0].startswith("DDP over 4 GPUs")
    assert page.get_by_role("list", name="What was planned").get_by_text("gpt2").is_visible()
    with page.expect_download() as download:
        page.get_by_text("Download the files").click()
    saved = tmp_path / "plan.zip"
    download.value.save_as(saved)
    with ZipFile(BytesIO(saved.read_bytes())) as archive:
        assert archive.testzip() is None
        assert {"plan/plan.json", "plan/README.md"} <= set(archive.namelist())
        assert any(name.endswith("/launch.sh") for name in archive.namelist())
    opened.check()


def test_keyboard_reaches_the_plan_and_its_rule(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.get_by_label("Model", exact=True).focus()
    page.keyboard.type("gpt2")
    page.keyboard.press("Enter")
    code = page.locator("a.code").first
    code.focus()
    name = code.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/rules/{name}")
    assert name in page.get_by_role("heading", level=1).inner_text()
    opened.check()


def test_assumption_leads_back_to_its_control(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.get_by_role("link", name="GPT-2 on 4 GPUs").click()
    page.get_by_role("link", name="change", exact=True).first.click()
    assert page.url.endswith("#gpu")
    assert page.get_by_label("GPUs per node").input_value() == "4"
    opened.check()


def test_pasted_topology_survives_an_error(visit: Visitor) -> None:
    opened = visit(java_script_enabled=False)
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("GPU", exact=True).fill("h1000")
    page.get_by_label("Topology").fill("      GPU0\nGPU0   X")
    page.get_by_role("button", name="Plan it").click()
    assert "unknown GPU 'h1000'" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Topology").input_value().split("\n")[1] == "GPU0   X"
    assert page.get_by_label("GPU", exact=True).get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize(("width", "shown"), [(320, "narrow"), (800, "narrow"), (1200, "wide")])
@pytest.mark.parametrize("name", ["dgxa100_40gb_12mlx5_tabs", "dgx1-v100-cube-mesh", "single-gpu"])
def test_one_drawing_of_the_topology_is_shown_and_fits(
    visit: Visitor, name: str, width: int, shown: str
) -> None:
    opened = visit(viewport={"width": width, "height": 740}, java_script_enabled=False)
    topology = (TOPOLOGIES / f"{name}.txt").read_text()
    opened.page.goto(f"{opened.origin}/plan?{urlencode({'model': 'gpt2', 'topology': topology})}")
    picture = opened.page.get_by_role("img", name="GPU").and_(opened.page.locator("svg.node"))
    assert picture.count() == 1
    assert shown in (picture.get_attribute("class") or "").split()
    box = picture.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    opened.check()


def stages_page(num_stages: int) -> str:
    """The picture of a pipeline by itself: no door suggests one yet."""
    payload = {
        "model": "meta-llama/Llama-2-70b-hf",
        "cluster": {"gpu": "a100-80gb", "gpus_per_node": 8, "nodes": num_stages},
        "recipe": {"framework": "megatron", "global_batch_size": 256},
    }
    job = resolve(parse_request(payload), allow_paths=False).job
    s = Layout(
        tensor_parallel_size=8,
        sequence_parallel=True,
        pipeline_parallel_size=num_stages,
        micro_batch_size=2,
        gradient_accumulation_steps=128,
    )
    memories = stage_memories(job, s)
    stages = draw_stages(
        memories, card_bytes=job.cluster.gpu.memory_bytes, usable_bytes=job.usable_bytes
    )
    head = '<!doctype html><link rel="stylesheet" href="/static/style.css"><link rel="icon" href="data:,">'
    return f"{head}<main>{render('_stages.html', stages=stages)}</main>"


TEXTS_OF_THE_PICTURE = """() => {
  const parts = document.querySelectorAll("figure .stage-name, figure .stage-total, figure text,"
    + " figure .legend li, figcaption p");
  return [...parts].filter(part => getComputedStyle(part).display !== "none").map(part => {
    const range = document.createRange();
    if (part.matches(".stage-name")) range.selectNode(part.lastChild);
    else range.selectNodeContents(part);
    const {left, right, top, bottom} = range.getBoundingClientRect();
    return {text: part.textContent.trim(), left, right, top, bottom};
  });
}"""


@pytest.mark.parametrize("width", [360, 375, 704, 1200])
@pytest.mark.parametrize("num_stages", [1, 4, 8, 16, 40])
def test_no_text_of_the_memory_picture_overlaps(
    visit: Visitor, num_stages: int, width: int
) -> None:
    opened = visit(viewport={"width": width, "height": 740}, java_script_enabled=True)
    html = stages_page(num_stages)
    opened.page.route(
        "**/picture", lambda route: route.fulfill(body=html, content_type="text/html")
    )
    opened.page.goto(f"{opened.origin}/picture")
    boxes = opened.page.evaluate(TEXTS_OF_THE_PICTURE)
    assert len(boxes) > num_stages
    for one, other in combinations(boxes, 2):
        is_beside = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
        is_above = one["bottom"] <= other["top"] + 4 or other["bottom"] <= one["top"] + 4
        assert is_beside or is_above, (one, other)
    assert all(box["left"] >= 0 and box["right"] <= width for box in boxes)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_exact_bytes_open_without_script_and_stay_on_the_screen(visit: Visitor) -> None:
    opened = visit(viewport={"width": 360, "height": 740}, java_script_enabled=False)
    opened.page.goto(f"{opened.origin}/plan?model=gpt2&gpus_per_node=4")
    table = opened.page.get_by_role("region", name="Exact bytes")
    assert not table.is_visible()
    opened.page.get_by_text("Exact bytes").click()
    assert table.get_by_role("row", name="reserved, high").is_visible()
    box = table.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 360
    opened.check()


@pytest.mark.parametrize("name", EVERY_PAGE)
def test_axe_finds_nothing_and_nothing_leaves_the_screen(visit: Visitor, name: str) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + EVERY_PAGE[name])
    folder = os.environ.get("SCREENSHOTS")
    for width, scheme in product(WIDTHS, SCHEMES if folder else SCHEMES[:1]):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder:
            page.screenshot(path=Path(folder) / f"{name}-{width}-{scheme}.png", full_page=True)
    page.evaluate(FOLDS)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_a_plan_is_at_most_2500_pixels_high_and_60_kilobytes(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 800})
    for path, most_bytes in ((PIPELINE, 100_000), (GPT2, 60_000)):
        answer = opened.page.goto(opened.origin + path)
        assert answer is not None
        assert len(answer.body()) <= most_bytes
    assert opened.page.evaluate("document.documentElement.scrollHeight") <= 2500


def test_a_plan_prints_black_on_white_from_a_dark_screen(visit: Visitor) -> None:
    opened = visit(color_scheme="dark")
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.emulate_media(media="print")
    colour = "element => getComputedStyle(element).color"
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.locator("h1").evaluate(colour) == "rgb(0, 0, 0)"
    assert page.locator("a.code").first.evaluate(colour) == "rgb(0, 58, 99)"
    printed = page.pdf(format="A4", print_background=False)
    assert printed.count(b"/Type /Page\n") <= 2


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_change_is_followed_compared_and_taken_back(
    visit: Visitor, *, java_script_enabled: bool
) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.goto(opened.origin + GPT2)
    section = page.get_by_role("region", name="What if")
    section.get_by_role("link", name="8", exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("DDP over 8 GPUs")
    banner = page.get_by_role("region", name="What the change does")
    assert "GPUs per node 4" in banner.inner_text()
    banner.get_by_role("link", name="Side by side").click()
    assert page.get_by_role("link", name="DDP over 4 GPUs").is_visible()
    page.go_back()
    page.get_by_role("link", name="Back", exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("DDP over 4 GPUs")
    opened.check()


def test_a_narrow_screen_explains_letters_and_keeps_differences_in_their_column(
    visit: Visitor,
) -> None:
    opened = visit(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    page = opened.page
    page.goto(opened.origin + EVERY_PAGE["plan"])
    for ledger in ("#memory", "#time"):
        legend = page.locator("section", has=page.locator(ledger)).locator("ul.legend")
        assert legend.first.is_visible()
    page.goto(opened.origin + EVERY_PAGE["compare"])
    row = page.locator("tr.differs").first
    one, other, difference = (cell.bounding_box() for cell in row.locator("td").all())
    assert one is not None
    assert other is not None
    assert difference is not None
    assert one["x"] < other["x"] < difference["x"]
    assert one["y"] == difference["y"]
    opened.check()
