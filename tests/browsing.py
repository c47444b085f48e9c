"""A page in a real browser: what tests do with it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from playwright.sync_api import Page, expect

GPT2 = "/plan?model=gpt2&gpus_per_node=4"
FOLDS = "() => document.querySelectorAll('details').forEach(each => each.open = true)"


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


def choose(page: Page, name: str, label: str) -> None:
    """Choose another value beside a plan, and ask for the plan of it: with scripts it would come by itself."""
    region = page.get_by_role("region", name="What if")
    region.get_by_label(name, exact=True).select_option(label=label)
    region.get_by_role("button", name="Plan it").click()


def see_title(page: Page, text: str) -> None:
    """Wait until the page, or what took the place of it, is headed so."""
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text(re.compile(re.escape(text)))
