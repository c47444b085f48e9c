"""What a script adds: plans take each other's place, texts are copied, files fill their fields."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from browsing import FOLDS, GPT2, Visitor, choose, see_title
from playwright.sync_api import Page, Request, Route, expect

pytest_plugins = ["chromium"]

LLAMA = "/plan?model=meta-llama/Llama-3.1-70B&gpu=h100-sxm-80gb&gpus_per_node=8&nodes=16"
TOP = "document.querySelector('#what-if').getBoundingClientRect().top"


def test_a_change_takes_the_place_of_the_plan(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 700})
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.get_by_text("Every term with its arithmetic").first.click()
    page.evaluate("document.querySelector('#what-if').scrollIntoView()")
    page.evaluate("window.wasHere = true")
    top = page.evaluate(TOP)
    choose(page, "GPUs", "8")
    # The estimate has the title already, the search the address.
    page.wait_for_url("**gpus_per_node=8*")
    see_title(page, "DDP over 8 GPUs")
    assert page.evaluate("window.wasHere")
    assert parse_qs(urlsplit(page.url).query)["gpus_per_node"] == ["8"]
    assert "8 x a100-sxm-80gb: DDP over 8 GPUs, fits" in page.title()
    assert page.evaluate("document.activeElement.id") == "if-plan"
    assert abs(page.evaluate(TOP) - top) < 2
    assert "faster" in page.get_by_role("status").inner_text()
    assert page.locator("details.fold[open]").count() == 1
    assert page.locator("main[aria-busy]").count() == 0
    box = page.evaluate("document.querySelector('.versus').getBoundingClientRect().bottom")
    is_seen = page.get_by_role("status").get_attribute("class") == "status"
    assert is_seen == (box <= 0)
    page.go_back()
    see_title(page, "DDP over 4 GPUs")
    page.wait_for_function("document.activeElement.tagName == 'H1'")
    page.go_forward()
    see_title(page, "DDP over 8 GPUs")
    opened.check()


def test_a_broken_model_name_is_told_in_place_and_kept(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.get_by_label("Model", exact=True).fill("../gpt2")
    page.get_by_label("Nodes", exact=True).fill("2")
    page.evaluate("window.wasHere = true")
    page.get_by_role("button", name="Plan it").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.evaluate("window.wasHere")
    assert page.get_by_label("Nodes", exact=True).input_value() == "2"
    assert page.get_by_label("Model", exact=True).get_attribute("aria-invalid") == "true"


def test_what_is_asked_last_is_shown(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    marked = page.evaluate(
        "names => { const gpus = document.querySelector('#if-gpus');"
        " names.forEach(name => { [...gpus.options].find(each => each.label === name).selected = true;"
        " gpus.form.requestSubmit(); });"
        " return [...document.querySelectorAll('.asked')].map(each => each.innerText) }",
        ["8", "2"],
    )
    assert marked == ["Plan it"]
    see_title(page, "DDP over 2 GPUs")
    expect(page.get_by_label("GPUs", exact=True).locator(":checked")).to_have_text("2")
    assert page.locator(".asked").count() == 0
    page.go_back()
    see_title(page, "DDP over 4 GPUs")


def test_a_double_click_asks_once_and_stays_with_what_was_meant(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 800})
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("GPUs per node").fill("4")
    page.get_by_role("button", name="Plan it").dblclick()
    see_title(page, "DDP over 4 GPUs")
    link = page.locator(".layouts a[fx-action]").first
    answer = page.request.get(opened.origin + (link.get_attribute("href") or ""))
    title = answer.text().partition("<h1")[2].partition(">")[2].partition(" <")[0]
    link.scroll_into_view_if_needed()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    place = link.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + 3, place["y"] + 9)
    page.mouse.click(place["x"] + 3, place["y"] + 9)
    see_title(page, title)
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    page.wait_for_load_state("networkidle")
    see_title(page, title)
    assert sum("/plan?" in url for url in sent) == 1
    opened.check()


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_who_goes_back_finds_the_form_as_it_was_sent(
    visit: Visitor, *, java_script_enabled: bool
) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("GPUs per node").fill("4")
    page.get_by_role("button", name="Plan it").click()
    see_title(page, "DDP over 4 GPUs")
    page.go_back()
    see_title(page, "Plan a training run")
    expect(page.get_by_label("Model", exact=True)).to_have_value("gpt2")
    expect(page.get_by_label("GPUs per node")).to_have_value("4")
    opened.check()


def test_where_no_answer_comes_the_browser_asks_itself(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.evaluate("window.wasHere = true")
    page.route(
        "**/plan",
        lambda route: (
            route.abort() if route.request.resource_type == "fetch" else route.continue_()
        ),
    )
    choose(page, "GPUs", "8")
    see_title(page, "DDP over 8 GPUs")
    assert not page.evaluate("window.wasHere")


def test_commands_and_the_link_are_copied(visit: Visitor) -> None:
    opened = visit(permissions=["clipboard-read", "clipboard-write"])
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.get_by_role("button", name="Copy the link").click()
    expect(page.get_by_role("status")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"{opened.origin}/plan?model=gpt2&gpus_per_node=4&planner=")
    page.evaluate(FOLDS)
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("status")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("planner suggest gpt2")
    opened.check()


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_machine_file_is_chosen_or_pasted(visit: Visitor, *, java_script_enabled: bool) -> None:
    opened = visit(java_script_enabled=java_script_enabled)
    page = opened.page
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_text("Everything else").click()
    file = Path(__file__).parents[2] / "data/measurements/h100_machine.json"
    if java_script_enabled:
        page.get_by_label("Machine file: a file").set_input_files(file)
        expect(page.get_by_label("Machine file", exact=True)).to_have_value(file.read_text())
    else:
        page.get_by_label("Machine file", exact=True).fill(file.read_text())
    page.get_by_role("button", name="Plan it").click()
    see_title(page, "No parallelism on 1 GPU")
    assert page.get_by_text("Measured on machine one H100 SXM").first.is_visible()
    assert len(page.url) < 4000
    opened.check()


def test_a_choice_is_estimated_at_once_and_searched_when_the_hand_rests(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 900})
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.route("**/plan", lambda route: route.abort())
    amounts = page.locator(".tile .amount")
    was = amounts.all_inner_texts()
    gpus = page.get_by_label("GPUs", exact=True)
    gpus.select_option(label="8")
    expect(page.locator(".chips .estimate")).to_have_count(1)
    see_title(page, "DDP over 8 GPUs")
    now = amounts.all_inner_texts()
    assert now[1:] != was[1:]
    assert "\u00b7".join(now) in page.get_by_role("status").inner_text().replace(
        " \u00b7 ", "\u00b7"
    )
    page.unroute("**/plan")
    gpus.press("ArrowDown")
    see_title(page, "DDP over 16 GPUs")
    expect(page.locator(".chips .estimate")).to_have_count(0)
    assert page.evaluate("document.activeElement.id") == "if-gpus"
    assert gpus.locator(":checked").inner_text() == "16"


def test_the_newest_of_many_choices_is_shown_and_one_is_asked_at_a_time(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    under_way, most, asked = 0, 0, 0

    def count(route: Route) -> None:
        nonlocal under_way, most, asked
        under_way, asked = under_way + 1, asked + 1
        most = max(most, under_way)
        route.continue_()

    def finish(request: Request) -> None:
        nonlocal under_way
        under_way -= "/estimate?" in request.url

    page.route("**/estimate?**", count)
    page.on("requestfinished", finish)
    page.evaluate(
        "const gpus = document.querySelector('#if-gpus');"
        "for (let turn = 0; turn < 10; turn++) { gpus.selectedIndex = turn % 4;"
        " gpus.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    see_title(page, "DDP over 2 GPUs")
    assert most == 1
    assert asked <= 2


def test_each_of_ten_moves_is_answered_and_the_last_is_planned(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 900})
    page = opened.page
    page.goto(opened.origin + GPT2)
    planned = page.locator("#answer .chips")
    for label in ["8", "4"] * 4 + ["2", "8"]:
        with page.expect_response(lambda answer: "/estimate?" in answer.url) as asked:
            page.get_by_label("GPUs", exact=True).select_option(label=label)
        assert asked.value.ok
        expect(planned).to_contain_text(f"{label} x a100-sxm-80gb")
    page.wait_for_url("**gpus_per_node=8*")
    expect(page.locator(".chips .estimate")).to_have_count(0)
    expect(page.get_by_label("GPUs", exact=True).locator(":checked")).to_have_text("8")
    see_title(page, "DDP over 8 GPUs")
    opened.check()


MOVES = (
    ("GPUs", "512"),
    ("Recompute", "full"),
    ("Sequence", "2,048"),
    ("Loss", "chunked"),
    ("GPUs", "64"),
    ("ZeRO stage", "2"),
    ("Sequence", "8,192"),
    ("ZeRO stage", "3"),
    ("Loss", "standard"),
    ("GPUs", "256"),
)


def test_each_move_beside_a_large_plan_is_estimated_while_a_search_goes_on(visit: Visitor) -> None:
    opened = visit(viewport={"width": 1280, "height": 900})
    page = opened.page
    page.goto(opened.origin + LLAMA)
    page.route("**/plan", lambda _: None)
    for number, (name, label) in enumerate(MOVES):
        with page.expect_response(lambda answer: "/estimate?" in answer.url) as asked:
            page.get_by_label(name, exact=True).select_option(label=label)
        assert asked.value.ok, (name, label)
        title = asked.value.text().partition("<h1")[2].partition(">")[2].partition(" <")[0]
        see_title(page, title)
        expect(page.locator(".chips .estimate")).to_have_count(1)
        if number == len(MOVES) // 2:
            page.wait_for_selector("main[aria-busy]")  # the search, which is never answered
    assert sum("/estimate?" in url for url in opened.requests) == len(MOVES)
    page.unroute("**/plan")
    last = {"GPUs": "256", "Sequence": "8,192", "Loss": "chunked"}
    page.get_by_label("Loss", exact=True).select_option(label=last["Loss"])
    page.wait_for_url("**nodes=32*loss=chunked*")
    expect(page.locator(".chips .estimate")).to_have_count(0)
    for name, label in last.items():
        expect(page.get_by_label(name, exact=True).locator(":checked")).to_have_text(label)
    opened.check()


def test_a_choice_that_no_layout_runs_is_refused_before_it_is_searched(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.route("**/plan", lambda _: None)
    page.get_by_label("Micro-batch", exact=True).select_option(label="4")
    page.get_by_label("GPUs", exact=True).select_option(label="16")
    expect(page.get_by_role("alert")).to_contain_text("does not split over 16 GPUs")


def hold_estimates(page: Page) -> list[Route]:
    """Let no estimate be answered; return those that are asked for."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/estimate?**", hold)
    return held


def test_an_estimate_that_is_late_is_shown_while_the_search_goes_on(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    waiting = hold_estimates(page)
    page.route("**/plan", lambda _: None)
    with page.expect_request("**/plan"):
        page.get_by_label("GPUs", exact=True).select_option(label="8")
    waiting[0].continue_()
    see_title(page, "DDP over 8 GPUs")
    expect(page.locator(".chips .estimate")).to_have_count(1)
    assert page.locator("main[aria-busy]").count() == 1


def test_choices_beside_a_new_plan_wait_for_no_estimate_of_the_one_before(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    late = hold_estimates(page)
    gpus = page.get_by_label("GPUs", exact=True)
    gpus.select_option(label="8")
    page.wait_for_url("**gpus_per_node=8*")
    page.unroute("**/estimate?**")
    page.route("**/plan", lambda _: None)
    gpus.select_option(label="16")
    expect(page.locator(".chips .estimate")).to_have_count(1)
    see_title(page, "DDP over 16 GPUs")
    assert len(late) == 1


def test_choices_that_cannot_be_together_stay_beneath_what_is_wrong(visit: Visitor) -> None:
    opened = visit()
    page = opened.page
    page.goto(opened.origin + GPT2)
    page.get_by_label("Micro-batch", exact=True).select_option(label="4")
    page.get_by_label("GPUs", exact=True).select_option(label="16")
    expect(page.get_by_role("alert")).to_contain_text("lobal batch")
    expect(page.get_by_label("GPUs", exact=True).locator(":checked")).to_have_text("16")
    assert page.locator("main[aria-busy]").count() == 0
    page.get_by_label("GPUs", exact=True).select_option(label="8")
    expect(page.locator("#answer .chips")).to_contain_text("8 x a100-sxm-80gb")
    expect(page.get_by_role("alert")).to_have_count(0)
