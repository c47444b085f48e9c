"""One person's way through the pages, on every width, with scripts and without."""

from io import BytesIO
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from zipfile import ZipFile

import pytest
from browsing import Visitor, choose, see_title
from playwright.sync_api import Page, expect

pytest_plugins = ["chromium"]

TOPOLOGY = Path(__file__).parents[1] / "topologies/dgxa100_40gb_12mlx5_tabs.txt"


def stays_on_the_screen(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("java_script_enabled", [True, False])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_from_a_pasted_topology_to_files_a_change_and_a_broken_name(
    visit: Visitor, width: int, *, java_script_enabled: bool
) -> None:
    opened = visit(
        viewport={"width": width, "height": 800}, java_script_enabled=java_script_enabled
    )
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("GPUs per node").fill("8")
    page.get_by_label("Topology", exact=True).fill(TOPOLOGY.read_text())
    page.get_by_role("button", name="Plan it").click()
    see_title(page, "DDP over 8 GPUs")
    expect(page.get_by_role("heading", name="How a node is wired")).to_be_visible()
    if not page.locator("svg.node:visible").count():
        page.get_by_role("heading", name="How a node is wired").click()
    expect(page.locator("svg.node:visible")).to_have_count(1)
    stays_on_the_screen(page, width)
    with page.expect_download() as download:
        page.get_by_text("Download the files").click()
    with ZipFile(BytesIO(Path(download.value.path()).read_bytes())) as archive:
        assert "plan/plan.json" in archive.namelist()
    choose(page, "Method", "LoRA")
    banner = page.get_by_role("region", name="What the change does")
    expect(banner).to_contain_text("Method")
    stays_on_the_screen(page, width)
    banner.get_by_role("link", name="Side by side").click()
    see_title(page, "Two plans side by side")
    assert page.locator("tr.differs").count() > 2
    stays_on_the_screen(page, width)
    page.goto(opened.origin)
    page.get_by_label("Model", exact=True).fill("gpt2/../../etc")
    page.get_by_role("button", name="Plan it").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Model", exact=True)).to_have_attribute("aria-invalid", "true")
    stays_on_the_screen(page, width)
    assert all(url.startswith(opened.origin) for url in opened.requests)
    assert "topology" not in parse_qs(urlsplit(page.url).query)
