"""A browser, and the service that it looks at: a plugin of the tests that use them."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from browsing import Visit, Visitor
from needed import need
from playwright.sync_api import Browser, expect, sync_playwright

from api.main import create_app
from api.settings import Settings

_PATIENCE_SECONDS = 120.0
"""For a page, on a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The service, on a port that the system chose."""
    app = create_app(Settings(deadline_seconds=_PATIENCE_SECONDS, body_seconds=_PATIENCE_SECONDS))
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
    executable = os.environ.get("CHROMIUM") or need("chromium", get="apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visitor]:
    """`visit(java_script_enabled=False)`: the form in a fresh browser context."""
    contexts = []
    expect.set_options(timeout=1000 * _PATIENCE_SECONDS)

    def open_form(**options: Any) -> Visit:
        context = browser.new_context(**options)
        context.set_default_timeout(1000 * _PATIENCE_SECONDS)
        contexts.append(context)
        opened = Visit(context.new_page(), address)
        opened.page.goto(address)
        return opened

    yield open_form
    for context in contexts:
        context.close()
