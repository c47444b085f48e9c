from typing import Any

from planner.report.values import Terminal
from planner.sweep.frontier import clusters_for_models, models_for_clusters, outcome
from planner.sweep.frontier_text import outcome_text


def row(model: str, gpus: int, tokens_per_second: float, **more: Any) -> dict[str, Any]:
    return {
        "ok": True,
        "model": model,
        "method": "full",
        "cluster": f"1 x {gpus} a100",
        "parameters": len(model) * 10**9,
        "gpus": gpus,
        "usd_per_hour": None,
        "family": "ddp",
        "global_batch_size": 64,
        "reserved_bytes": 2**34,
        "tokens_per_second": tokens_per_second,
        **more,
    }


ROWS = [
    row("small", 1, 100.0),
    row("small", 2, 90.0),
    row("small", 4, 300.0),
    row("small", 8, 500.0),
    row("larger", 8, 200.0),
    row("largest of all", 8, 50.0),
    {"ok": False, "error": {"type": "NothingFitsError"}},
]


def test_a_cluster_stands_where_no_smaller_one_is_as_fast() -> None:
    (small,) = clusters_for_models(outcome(ROWS))
    assert [point.gpus for point in small.points] == [1, 4, 8]
    assert (small.of, small.out_of, small.is_priced) == ("small (full)", 4, False)


def test_dollars_are_compared_where_every_cluster_has_its_price() -> None:
    prices = {1: 9.0, 2: 2.0, 4: 8.0, 8: 8.0}
    priced = [{**each, "usd_per_hour": prices[each["gpus"]]} for each in ROWS[:4]]
    (small,) = clusters_for_models(outcome(priced))
    assert [point.gpus for point in small.points] == [2, 8]
    assert small.is_priced


def test_a_model_stands_where_no_larger_one_is_as_fast() -> None:
    (eight,) = models_for_clusters(outcome([*ROWS, row("largest too!!!", 8, 60.0)]))
    assert [point.model for point in eight.points] == ["largest too!!!", "larger", "small"]


def test_the_text_has_a_row_and_a_letter_in_the_plot_for_each() -> None:
    text = outcome_text(outcome(ROWS), Terminal())
    assert text.startswith("6 plans; no plan: 1 (nothing fits)\n")
    clusters, models = text.split("Which model fits")
    assert "Which cluster for small (full)" in clusters
    drawn = [line[4:] for line in clusters.splitlines() if line.startswith("  |")]
    assert [line.strip() for line in drawn if line.strip()] == ["c", "b", "a"]
    assert drawn[0].index("c") > drawn[-1].index("a") == 0
    assert "1 x 8 a100 (full)" in models
    assert "1 to 8 GPUs" in clusters


def test_a_sweep_without_any_plan_says_so() -> None:
    assert outcome_text(outcome(ROWS[-1:]), Terminal()) == "0 plans; no plan: 1 (nothing fits)\n"


def test_models_that_could_not_be_resolved_are_named_once_and_not_obeyed() -> None:
    missing = [
        {"ok": False, "error": {"type": kind}, "request": {"model": name}}
        for kind in ("HubUnreachableError", "ModelNotFoundError")
        for name in ("no/such", "\x1b[31mred\n", {"model_type": "nope"})
    ]
    text = outcome_text(outcome([*ROWS[:1], *missing]), Terminal())
    assert r"not resolved: 'no/such', '\x1b[31mred\n', 'a config of the sweep'" in text
    many = [{**missing[0], "request": {"model": f"no/{number}"}} for number in range(12)]
    assert "'no/9' and 2 more\n" in outcome_text(outcome(many), Terminal())


def test_a_single_plan_is_said_so() -> None:
    text = outcome_text(outcome(ROWS[:1]), Terminal())
    assert text.startswith("1 plan\n")
    assert "1 plans" not in text


def test_gpus_and_what_they_cost_are_columns_of_their_own() -> None:
    unpriced = outcome_text(outcome(ROWS), Terminal())
    assert "  GPUs  " in unpriced
    assert "price" not in unpriced
    priced = outcome_text(
        outcome([row("small", gpus, 9.0 * gpus, usd_per_hour=1.5 * gpus) for gpus in (1, 2)]),
        Terminal(),
    )
    assert "3.00 $/h" in priced
    assert "2 GPUs" not in priced
