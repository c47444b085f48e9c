"""What a telephone shows: tables in lines, parts of a plan folded, nothing that has to be scrolled sideways."""

import pytest
from browsing import FOLDS, GPT2, Visitor, see_title
from every_page import EVERY_PAGE

pytest_plugins = ["chromium"]

PHONE = {"width": 390, "height": 844}
TALLEST = 5400
"""Pixels of a page of the catalogue on a small telephone: 200 for each of the 27 sources of published runs."""


@pytest.mark.parametrize("width", [320, 390])
def test_tables_of_the_catalogue_are_read_downwards_on_a_phone(visit: Visitor, width: int) -> None:
    opened = visit(viewport={"width": width, "height": 800}, java_script_enabled=False)
    page = opened.page
    names = ("gpus", "sources", "accuracy", "instances", "links", "model", "models", "framework")
    for name in (*names, "terms", "rules"):
        page.goto(opened.origin + EVERY_PAGE[name])
        for region in page.locator(".scroll:has(.sheet)").all():
            assert region.evaluate("each => each.scrollWidth <= each.clientWidth"), name
        label = "cell => getComputedStyle(cell, '::before').content"
        for cell in page.locator(".sheet:not(.stays) tr:first-child td:first-of-type").all():
            assert cell.evaluate(label) == f'"{cell.get_attribute("data-label")}"'
        for table in page.locator(".sheet.stays").all():
            on_screen = "head => head.getBoundingClientRect().left >= 0"
            assert table.locator("thead").evaluate(on_screen), name
        assert page.evaluate("document.documentElement.scrollHeight") <= TALLEST
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


LINES = """row => {
  const cells = [...row.cells].filter(cell => cell.getClientRects().length);
  const tops = cells.map(cell => Math.round(cell.getBoundingClientRect().top));
  const line = parseFloat(getComputedStyle(row).lineHeight);
  return [new Set(tops).size, Math.max(...cells.map(cell => cell.offsetHeight)) / line];
}"""
"""How many lines the cells of a row stand in, and how many the tallest of them takes."""


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("name", ["plan", "pipeline", "pipeline of 32 stages"])
def test_a_layout_takes_two_lines(visit: Visitor, name: str, width: int) -> None:
    opened = visit(viewport={"width": width, "height": 800}, java_script_enabled=False)
    page = opened.page
    page.goto(opened.origin + EVERY_PAGE[name])
    page.get_by_role("region", name="Trade-offs").get_by_text("The same as a table").click()
    rows = page.locator(".layouts tbody tr").all()
    assert len(rows) > 4
    for row in rows:
        lines, tallest = row.evaluate(LINES)
        assert lines == 2, row.inner_text()
        assert tallest < 1.5, row.inner_text()
    opened.check()


def test_a_plan_begins_with_the_answer_and_its_contents_open_the_rest(visit: Visitor) -> None:
    opened = visit(viewport=PHONE)
    page = opened.page
    page.goto(opened.origin + GPT2)
    assert page.evaluate("document.documentElement.scrollHeight") <= 2520
    parts = page.locator("details.part")
    assert parts.count() >= 5
    assert page.locator("details.part[open]").count() == 0
    page.get_by_role("navigation", name="On this page").get_by_text("Memory").click()
    assert page.locator("svg.bar.stage").is_visible()
    page.get_by_role("region", name="What if").get_by_label("GPUs").select_option("8")
    page.wait_for_url("**gpus_per_node=8*")
    see_title(page, "DDP over 8 GPUs")
    assert page.locator("details.part[open]").count() == 1
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.part[open]").count() == parts.count()
    page.goto(f"{opened.origin}{GPT2}#time")
    assert page.locator("details.part[open]").count() == 1
    opened.check()


@pytest.mark.parametrize(("width", "java_script_enabled"), [(390, False), (1280, True)])
def test_elsewhere_a_plan_begins_unfolded(
    visit: Visitor, width: int, *, java_script_enabled: bool
) -> None:
    opened = visit(
        viewport={"width": width, "height": 800}, java_script_enabled=java_script_enabled
    )
    opened.page.goto(opened.origin + GPT2)
    assert opened.page.locator("details.part:not([open])").count() == 0
    opened.page.get_by_role("heading", name="Alternatives").click()
    assert not opened.page.locator("table.layouts").first.is_visible()
    opened.check()


SMALL = """() => [...document.querySelectorAll('a, button, select, summary, input:not([type=hidden]), textarea')]
  .filter(each => each.getClientRects().length && each.getBoundingClientRect().right > 0)
  .filter(each => !['rect', 'path'].some(name => each.querySelector(name)))
  .filter(each => { const box = each.getBoundingClientRect(); return Math.min(box.width, box.height) < 23.5; })
  .filter(each => ![...each.parentElement.childNodes].some(near => near.nodeType == 3 && near.data.trim().length > 1))
  .map(each => `${each.parentElement.outerHTML.slice(0, 120)} ${each.getBoundingClientRect().height}`)"""
"""What is no part of a sentence and smaller than a finger meets."""


@pytest.mark.parametrize("name", ["form", "plan", "compare", "sources", "rules"])
def test_a_finger_meets_24_pixels(visit: Visitor, name: str) -> None:
    opened = visit(viewport=PHONE)
    opened.page.goto(opened.origin + EVERY_PAGE[name])
    opened.page.evaluate(FOLDS)
    assert opened.page.evaluate(SMALL) == []
