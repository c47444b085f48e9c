"""Time until a person sees a page, in Chromium, and weigh it; then move its choices: `make bench-page`."""

import os
import shutil
import statistics

from playwright.sync_api import Browser, Page, sync_playwright
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

MOVED = {
    "gpt2 on 4 GPUs": "/plan?model=gpt2&gpus_per_node=4",
    "70B on 128 GPUs": "/plan?model=meta-llama/Llama-3.1-70B&gpu=h100-sxm-80gb&gpus_per_node=8"
    "&nodes=16",
    "DeepSeek-V3 on 2,048": "/plan?model=deepseek-ai/DeepSeek-V3&gpu=h100-sxm-80gb&gpus_per_node=8"
    "&nodes=256&framework=megatron",
}
MOVES = 10
RESTS_MS = {"the hand goes on": 300, "the hand rests": 1500}
"""Between an answer and the next move: before the search begins, or in the middle of it."""
PATIENCE_MS = 5000
MEDIAN_MS = 150
"""At most, of moves one after another on an idle machine."""
MOVE = """([turn, patience]) => new Promise(answered => {
  const choices = NAMES.map(name => document.getElementById(`if-${name}`)).filter(each => each);
  const main = document.querySelector("main"), began = performance.now();
  const select = choices[turn % choices.length];
  if (!select) return answered(null);
  const seen = new MutationObserver(() => answered(performance.now() - began));
  seen.observe(main, {childList: true});
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("input", {bubbles: true}));
  setTimeout(() => answered(null), patience);
})""".replace("NAMES", str(["gpus", "micro-batch", "sequence", "recompute", "loss", "zero-stage"]))
"""The milliseconds until the answer beside a choice is another, null where that takes too long."""


def main() -> None:
    """Print a line for each page, and for each that is moved."""
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with served(processes=2, deadline_seconds=120) as service, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        print(f"{'page':<22}{'first paint, ms':>24}{'kB':>8}{'elements':>10}")
        for name, path in PAGES.items():
            seen = [_see(chromium, service, path, turn) for turn in range(1, TIMES + 1)]
            paints = " ".join(f"{paint:6,.0f}" for paint, _, _ in seen)
            _, weight, elements = seen[-1]
            print(f"{name:<22}{paints:>24}{weight / 1000:>8.1f}{elements:>10,}", flush=True)
        print(f"\n{MOVES} moves{'':<15}{'':<18}{'median, ms':>12}{'p95':>8}{'unanswered':>12}")
        for name, path in MOVED.items():
            for how, rest in RESTS_MS.items():
                _show_moves(name, how, _move(chromium, service, path, rest))
        chromium.close()


def _see(browser: Browser, service: Service, path: str, turn: int) -> tuple[float, int, int]:
    page = browser.new_page()
    page.goto(_address(service, path.format(round=turn, length=2048 * turn)))
    paint, weight = page.evaluate(FIRST_PAINT), page.evaluate(WEIGHT)
    elements = page.locator("*").count()
    page.close()
    return float(paint), int(weight), elements


def _move(browser: Browser, service: Service, path: str, rest_ms: int) -> list[float | None]:
    page = browser.new_page()
    page.goto(_address(service, path), timeout=120_000)
    waits = [_moved(page, turn, rest_ms) for turn in range(MOVES)]
    page.close()
    return waits


def _moved(page: Page, turn: int, rest_ms: int) -> float | None:
    """Move a choice, then wait; return the milliseconds until it was answered."""
    wait: float | None = page.evaluate(MOVE, [turn, PATIENCE_MS])
    page.wait_for_timeout(rest_ms)
    return wait


def _show_moves(name: str, how: str, waits: list[float | None]) -> None:
    """Print the figures of a page: one that was not answered counts as long as was waited."""
    known = sorted(PATIENCE_MS if wait is None else wait for wait in waits)
    median, p95 = statistics.median(known), known[round(0.95 * (len(known) - 1))]
    goal = f"   (at most {MEDIAN_MS})" if how == next(iter(RESTS_MS)) else ""
    print(
        f"{name:<22}{how:<18}{median:>12,.0f}{p95:>8,.0f}{waits.count(None):>12}{goal}", flush=True
    )


def _address(service: Service, path: str) -> str:
    return f"http://127.0.0.1:{service.port}{path}"


if __name__ == "__main__":
    main()
