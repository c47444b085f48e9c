"""Links of 30 random plans are followed: the page behind one shows the layout that was named.

Every row of a table has its link; those of one plan come from the same lines, so of each table one is opened, drawn by
the plan. FOLLOWED_LINKS=1000 opens all.
"""

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

import pytest
from fastapi.testclient import TestClient
from huggingface_hub import constants

from api.main import create_app
from api.settings import Settings
from planner.catalog import records
from planner.request.model import load_model

GROUPS, PLANS_OF_A_GROUP = 10, 3
OPENED = int(os.environ.get("FOLLOWED_LINKS", "1"))
LARGEST_MODEL = 2 * 10**9
"""Parameters: larger models are planned as the others are, and take longer to."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of the app, with the Hub out of reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        app = create_app(Settings(processes=0))
        yield TestClient(app, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def models() -> tuple[str, ...]:
    """The models of the catalogue that are planned in no time."""
    names = records.model_ids()
    sizes = {name: load_model(name, allow_paths=False)[0].parameters for name in names}
    return tuple(name for name in names if sizes[name] <= LARGEST_MODEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table of layouts, or a point: whatever of it the page says."""

    figures: tuple[str, ...]
    """The family, with what else the row says of the layout, then memory and step."""
    href: str = ""


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).replace("✓", "").split())


def section(page: str, name: str) -> str:
    return page.partition(f'<section aria-labelledby="{name}"')[2].partition("</section>")[0]


def rows(table: str) -> list[Row]:
    """The rows of a table of layouts, without what is said of each beside the chosen one."""
    body = table.partition("<tbody>")[2].partition("</tbody>")[0]
    found = []
    for row in body.split("<tr")[1:]:
        cells = re.findall(r"<t[hd]([^>]*)>(.*?)</t[hd]>", row, re.DOTALL)
        shown = [text_of(cell) for kind, cell in cells if "compared" not in kind]
        (link,) = re.findall(r'<th[^>]*>\s*<a[^>]*href="([^"]+)"', row) or ("",)
        found.append(Row(figures=tuple(shown), href=unescape(link)))
    return found


def chosen(page: str) -> tuple[str, ...]:
    """What a page says of its own layout."""
    return rows(section(page, "alternatives"))[0].figures


def points(page: str) -> dict[tuple[str, ...], str]:
    """Where each point leads that is a link, by GPUs, family, memory and step."""
    links = re.findall(r'href="(/plan[^"]+)" aria-label="([^"]+)"', section(page, "trade-offs"))
    said = re.compile(r"\w+: (\S+) on ([\d,]+) GPUs?: (.+), (.+)")
    found = [(said.fullmatch(unescape(label)), unescape(href)) for href, label in links]
    return {
        (words[2].replace(",", ""), words[1], words[3], words[4]): href
        for words, href in found
        if words
    }


def random_query(chance: random.Random, models: tuple[str, ...]) -> dict[str, str]:
    sometimes = {
        "sequence_length": chance.choice(("128", "500", "1024")),
        "global_batch_size": chance.choice(("30", "64", "256")),
        "optimizer": chance.choice(("sgd", "adamw")),
        "objective": chance.choice(("memory", "gpus", "cost")),
        "inter_node": chance.choice(("ethernet-10g", "infiniband-ndr")),
        "framework": chance.choice(records.framework_names()),
        "recompute": chance.choice(("none", "full")),
        "max_gpus": "6",
    }
    said = {name: text for name, text in sometimes.items() if chance.random() < 1 / 6}
    return {
        "model": chance.choice(models),
        "gpu": chance.choice(records.gpu_names()),
        "gpus_per_node": chance.choice(("1", "2", "3", "4", "6", "8")),
        "nodes": chance.choice(("1", "1", "2", "3")),
        "method": chance.choice(("full", "full", "lora", "qlora")),
        **said,
    }


def random_pages(client: TestClient, seed: int, models: tuple[str, ...]) -> Iterator[str]:
    """As many plans as a group has; questions without one are drawn again."""
    # Questions, not secrets.
    chance, left = random.Random(seed), PLANS_OF_A_GROUP
    while left:
        answer = client.get("/plan", params=random_query(chance, models))
        assert answer.status_code in {200, 409, 422}, answer.text
        if answer.status_code == 200:
            left -= 1
            yield answer.text


def opened(client: TestClient, href: str) -> str:
    answer = client.get(href)
    assert answer.status_code == 200, href
    return answer.text


def drawn(links: dict[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """As many of the links as are opened: which, the links themselves decide."""
    each = sorted(links.items())
    return random.Random(str(each)).sample(each, min(OPENED, len(each)))


def check_alternatives(client: TestClient, page: str) -> None:
    first, *others = rows(section(page, "alternatives"))
    assert not first.href
    links = {row.href: row.figures for row in others}
    assert "" not in links
    assert len(links) == len(others)
    for href, figures in drawn(links):
        assert chosen(opened(client, href)) == figures, href


def check_trade_offs(client: TestClient, page: str) -> None:
    """Every row of the table is this plan's own, or a point that opens it on as many GPUs."""
    led_to = points(page)
    links: dict[str, tuple[str, ...]] = {}
    for row in rows(section(page, "trade-offs")):
        gpus, *layout = row.figures
        href = led_to.pop((gpus, layout[0], *layout[-2:]), "")
        if href:
            links[href] = row.figures
        else:
            assert tuple(layout) == chosen(page)
    assert not led_to
    for href, (gpus, *layout) in drawn(links):
        there = opened(client, href)
        assert chosen(there) == tuple(layout), href
        assert f" {gpus} GPU" in text_of(there.partition("<h1")[2].partition("</h1>")[0])


@pytest.mark.parametrize("seed", range(GROUPS))
def test_a_link_of_random_plans_opens_the_layout_that_it_names(
    client: TestClient, models: tuple[str, ...], seed: int
) -> None:
    for page in random_pages(client, seed, models):
        (permalink,) = re.findall(r'rel="bookmark" href="([^"]+)"', page)
        assert chosen(opened(client, unescape(permalink))) == chosen(page)
        check_alternatives(client, page)
        check_trade_offs(client, page)
