"""The pages in a real browser: what a person sees, clicks and downloads."""

import os
import re
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode
from zipfile import ZipFile

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import FOLDS, GPT2, Visitor, choose, see_title
from every_page import EVERY_PAGE, MANY_ADAPTERS, PIPELINE, TOPOLOGIES, WIRED
from playwright.sync_api import Page, expect

from planner.domain.strategy import Layout
from planner.memory.ledger import stage_memories
from planner.request.schema import parse_request, resolve
from web.pages import STATIC, render
from web.stages import draw_stages

pytest_plugins = ["chromium"]

WIDTHS = (320, 390, 768, 1280)
KEPT = Path(os.environ.get("SCREENSHOTS", Path(__file__).parents[2] / "build" / "screenshots"))
"""What every kind of page looks like, on a telephone and a desk, in both schemes."""
KEPT_WIDTHS = WIDTHS if "SCREENSHOTS" in os.environ else (390, 1280)
SMALLEST_TYPE = 9.5
"""Pixels of a drawing's text on the narrowest screen."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_form_leads_to_a_plan_and_its_files(
    visit: Visitor, tmp_path: Path, *, java_script_enabled: bool
) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("GPUs per node").fill("4")
    page.get_by_role("button", name="Plan it").click()
    see_title(page, "DDP over 4 GPUs")
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


TABBED = """() => {
  const {tagName, innerText, id, className} = document.activeElement;
  return `${tagName} ${id} ${className} ${innerText ?? ""}`;
}"""


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab, once around the page at most, until what has the focus is named so."""
    for _ in range(160):
        page.keyboard.press("Tab")
        if re.search(wanted, page.evaluate(TABBED)):
            return
    raise AssertionError(f"Tab never reaches {wanted}")


@pytest.mark.parametrize(
    ("width", "java_script_enabled"), [(320, True), (390, False), (768, True), (1280, False)]
)
def test_keyboard_alone_reaches_a_plan_its_files_a_change_and_a_rule(
    visit: Visitor, width: int, *, java_script_enabled: bool
) -> None:
    opened = visit(
        viewport={"width": width, "height": 800}, java_script_enabled=java_script_enabled
    )
    page = opened.page
    tab_to(page, "^INPUT model ")
    page.keyboard.type("gpt2")
    tab_to(page, "^INPUT gpus_per_node ")
    page.keyboard.type("4")
    page.keyboard.press("Enter")
    see_title(page, "DDP over 4 GPUs")
    tab_to(page, "^A  button Download")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "plan.zip"
    tab_to(page, "^SELECT if-gpus")
    page.keyboard.press("ArrowDown")
    tab_to(page, "^BUTTON if-plan")
    page.keyboard.press("Enter")
    # The estimate has the title already, the search the address: what it puts on the page takes the focus.
    page.wait_for_url("**vs=**")
    see_title(page, "DDP over 8 GPUs")
    tab_to(page, "^A  code ")
    name = page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Enter")
    see_title(page, name)
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


@pytest.mark.parametrize("width", [320, 800, 1200])
@pytest.mark.parametrize("name", ["dgxa100_40gb_12mlx5_tabs", "dgx1-v100-cube-mesh", "single-gpu"])
def test_the_drawing_of_the_topology_fits_and_is_read(
    visit: Visitor, name: str, width: int
) -> None:
    opened = visit(viewport={"width": width, "height": 740}, java_script_enabled=False)
    topology = (TOPOLOGIES / f"{name}.txt").read_text()
    opened.page.goto(f"{opened.origin}/plan?{urlencode({'model': 'gpt2', 'topology': topology})}")
    picture = opened.page.get_by_role("img", name="GPU").and_(opened.page.locator("svg.node"))
    assert picture.count() == 1
    box = picture.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    units = float((picture.get_attribute("viewBox") or "").split()[2])
    assert 11 * box["width"] / units >= SMALLEST_TYPE
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


def take_picture(page: Page, path: Path, width: int) -> None:
    """Keep what the whole page looks like; what sticks to an edge of the window stays at its place."""
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": height})
    page.screenshot(path=path)
    page.set_viewport_size({"width": width, "height": 800})


@pytest.mark.parametrize("name", EVERY_PAGE)
def test_axe_finds_nothing_and_nothing_leaves_the_screen(visit: Visitor, name: str) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + EVERY_PAGE[name])
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in SCHEMES if width in KEPT_WIDTHS else ():
            page.emulate_media(color_scheme=scheme)
            take_picture(page, KEPT / f"{name}-{width}-{scheme}.png", width)
    axe_finds_nothing(page)


def axe_finds_nothing(page: Page) -> None:
    page.evaluate(FOLDS)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize(("width", "java_script_enabled"), [(320, False), (1280, True)])
def test_a_configuration_is_checked_and_its_page_is_for_everybody(
    visit: Visitor, width: int, *, java_script_enabled: bool
) -> None:
    opened = visit(
        viewport={"width": width, "height": 800}, java_script_enabled=java_script_enabled
    )
    page = opened.page
    page.goto(f"{opened.origin}/check")
    page.get_by_label("File", exact=True).fill(
        '{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'
    )
    page.get_by_label("Command line").fill("deepspeed --num_gpus 8 train.py --deepspeed ds.json")
    page.get_by_role("button", name="Check them").click()
    expect(page.get_by_role("link", name="CFG010")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if java_script_enabled:
        axe_finds_nothing(page)
    opened.check()


def test_a_plan_is_at_most_2600_pixels_high_and_60_kilobytes(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 800})
    scripts = sum(len(file.read_bytes()) for file in STATIC.glob("*.js"))
    for path, most_bytes in (
        (PIPELINE, 100_000),
        (EVERY_PAGE["pipeline of 32 stages"], 110_000),
        (WIRED, 80_000),
        (MANY_ADAPTERS, 100_000),
        (GPT2, 60_000),
    ):
        answer = opened.page.goto(opened.origin + path)
        assert answer is not None
        assert len(answer.body()) + scripts <= most_bytes, path[:80]
    assert opened.page.evaluate("document.documentElement.scrollHeight") <= 2600


@pytest.mark.parametrize("path", [GPT2, PIPELINE, EVERY_PAGE["pipeline of 32 stages"]])
def test_a_plan_prints_black_on_white_from_a_dark_screen(visit: Visitor, path: str) -> None:
    opened = visit(color_scheme="dark")
    page = opened.page
    page.goto(opened.origin + path)
    page.emulate_media(media="print")
    colour = "element => getComputedStyle(element).color"
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.locator("h1").evaluate(colour) == "rgb(0, 0, 0)"
    assert page.locator("a.code").first.evaluate(colour) == "rgb(0, 58, 99)"
    printed = page.pdf(format="A4", print_background=False)
    # How sure, with its published runs, and what is offered, may take a pipeline's plan to a third.
    assert printed.count(b"/Type /Page\n") <= 3


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_change_is_followed_compared_and_taken_back(
    visit: Visitor, *, java_script_enabled: bool
) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.goto(opened.origin + GPT2)
    choose(page, "GPUs", "8")
    see_title(page, "DDP over 8 GPUs")
    banner = page.get_by_role("region", name="What the change does")
    assert "GPUs per node 4" in banner.inner_text()
    banner.get_by_role("link", name="Side by side").click()
    assert page.get_by_role("link", name="DDP over 4 GPUs").is_visible()
    page.go_back()
    page.get_by_role("link", name="Back", exact=True).click()
    see_title(page, "DDP over 4 GPUs")
    opened.check()


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_layout_that_was_not_chosen_is_asked_about_and_opened(
    visit: Visitor, *, java_script_enabled: bool
) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.get_by_label("Why not").fill("tp=2")
    page.get_by_role("button", name="Ask").click()
    answer = page.locator(".why-not")
    expect(answer).to_contain_text("Why not tp=2: the best of")
    answer.get_by_role("link", name="Open it").click()
    see_title(page, "Tensor parallel 2")
    opened.check()
