"""Time until a person sees a page, in Chromium, and weigh it: `make bench-page`."""

import os
import shutil

from playwright.sync_api import Browser, sync_playwright
from served import Service, served

TIMES = 3
PAGES = {
    "form": "/",
    "gpt2 on 4 GPUs": "/plan?model=gpt2&gpus_per_node=4&nodes={round}",
    "70B on 32 GPUs": "/plan?model=meta-llama/Llama-3.1-70B&gpu=h100-sxm-80gb&gpus_per_node=8"
    "&nodes=4&framework=megatron&sequence_length={length}",
    "two plans": "/compare?a=model%3Dgpt2%26gpus_per_node%3D8%26nodes%3D{round}&b=strategy%3Dzero-3",
    "model": "/models/gpt2",
}
"""A plan is another each time: one that is known already takes next to nothing."""
FIRST_PAINT = """() => new Promise(seen => new PerformanceObserver(list => list.getEntries()
  .filter(each => each.name === "first-contentful-paint").forEach(each => seen(each.startTime)))
  .observe({type: "paint", buffered: true}))"""
WEIGHT = "document.documentElement.outerHTML.length"


def main() -> None:
    """Print a line for each page."""
    print(f"{'page':<16}{'first paint, ms':>24}{'kB':>8}{'elements':>10}")
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with served(processes=2) as service, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for name, path in PAGES.items():
            seen = [_see(chromium, service, path, turn) for turn in range(1, TIMES + 1)]
            paints = " ".join(f"{paint:6,.0f}" for paint, _, _ in seen)
            _, weight, elements = seen[-1]
            print(f"{name:<16}{paints:>24}{weight / 1000:>8.1f}{elements:>10,}")
        chromium.close()


def _see(browser: Browser, service: Service, path: str, turn: int) -> tuple[float, int, int]:
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{service.port}{path.format(round=turn, length=2048 * turn)}")
    paint, weight = page.evaluate(FIRST_PAINT), page.evaluate(WEIGHT)
    elements = page.locator("*").count()
    page.close()
    return float(paint), int(weight), elements


if __name__ == "__main__":
    main()
