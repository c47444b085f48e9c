"""What published setups ran, beside what the planner proposes for their jobs: `docs/accuracy/choices.md`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_docs import check_block

from planner.advice.plan import Plan
from planner.advice.why_not import why_not
from planner.answers.suggestion import suggest
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import DATA_NAMES, ZERO_2, ZERO_3, Layout
from planner.report.layout_words import sizes_text
from planner.request.schema import parse_request
from planner.request.sections import StrategyRequest
from planner.request.strategy import pinned_fields, requested_layout
from planner.search.candidate import Candidate, estimate

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/accuracy/choices.md"
SETUPS: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "data/measurements/setups.toml").read_text(encoding="utf-8")
)["setup"]
CLEARLY = 0.05
"""A predicted lead from which on another family is proposed for a reason, and is no open question."""
LEAST_ALIKE = 31
"""Of the setups: as many have the same sizes or the same family; more is better."""
_FINE = ("micro_batch_size", "recompute", "virtual_pipeline_size")

Kind = tuple[object, ...]


@cache
def proposed(index: int) -> Plan:
    payload = {key: SETUPS[index][key] for key in ("model", "cluster", "recipe")}
    return suggest(parse_request(payload), allow_paths=False)[1]


@cache
def published(index: int) -> Candidate:
    job = proposed(index).job
    return estimate(job, requested_layout(StrategyRequest(**SETUPS[index]["layout"]), job))


def degrees(s: Layout) -> tuple[int, ...]:
    return tuple(int(getattr(s, dimension.field)) for dimension in DIMENSIONS)


def sizes(s: Layout) -> Kind:
    """Return what two layouts have in common that divide the job alike."""
    stage = s.zero_stage if s.data_parallel_size > 1 else 0
    shard = s.data_parallel_shard_size if s.zero_stage else 1
    return (*degrees(s), stage, shard, s.offload)


def family(s: Layout) -> Kind:
    """Return the kind of a layout: ZeRO-2, ZeRO-3 and hybrid sharding are one."""
    data = DATA_NAMES[ZERO_3 if s.zero_stage >= ZERO_2 else s.zero_stage]
    used = (size > 1 for size in degrees(s))
    return (*used, data if s.data_parallel_size > 1 else "none", s.offloads_optimizer)


def verdict(index: int) -> str:
    ran, chosen = published(index).strategy, proposed(index).chosen.strategy
    if sizes(ran) == sizes(chosen):
        told = [name for name in _FINE if name not in SETUPS[index].get("unpublished", ())]
        is_same = all(getattr(ran, name) == getattr(chosen, name) for name in told)
        return "exact" if is_same else "sizes"
    return "family" if family(ran) == family(chosen) else "different"


def lead(index: int) -> float:
    """Return how much faster the proposal is, as predicted."""
    ran, chosen = published(index).step_time, proposed(index).chosen.step_time
    return float(ran.step_seconds / chosen.step_seconds) - 1


def rows_of(kind: str) -> list[int]:
    return [index for index in range(len(SETUPS)) if verdict(index) == kind]


def summary() -> str:
    counts = {kind: len(rows_of(kind)) for kind in ("exact", "sizes", "family", "different")}
    is_open = [index for index in rows_of("different") if lead(index) < CLEARLY]
    return (
        f"Of {len(SETUPS)} published setups the planner proposes the layout itself for"
        f" {counts['exact']}, the same sizes with another\nmicro-batch, recompute or number of chunks"
        f" for {counts['sizes']}, and the same family for {counts['family']}. Of the other\n"
        f"{counts['different']}, {len(is_open)} are open: what is proposed there is not predicted to be"
        f" {100 * CLEARLY:.0f} % faster. All proposals have launch files.\n"
    )


def brief(s: Layout) -> str:
    text = f"{s.family}, {sizes_text(s)}, micro-batch {s.micro_batch_size}"
    return f"{text}, recompute {s.recompute}"


def comparison(index: int) -> str:
    """Return what the planner says of the published layout, asked why it is not proposed."""
    layout = pinned_fields(StrategyRequest(**SETUPS[index]["layout"]))
    answer = why_not(proposed(index), layout)
    assert answer.candidate is not None
    assert answer.candidate.strategy == published(index).strategy
    return answer.comparison.replace(" than the choice", "").replace(" as the choice", "")


def table() -> str:
    lines = [
        "| setup | published | proposed | the published beside it | why |",
        "| --- | --- | --- | --- | --- |",
    ]
    for index in sorted(rows_of("different"), key=lead, reverse=True):
        cells = (
            SETUPS[index]["name"],
            brief(published(index).strategy),
            brief(proposed(index).chosen.strategy),
            comparison(index),
            SETUPS[index].get("why", "open"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_is_what_the_planner_proposes(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    check_block("setups", summary(), update=update, page=PAGE)
    check_block("differences", table(), update=update, page=PAGE)


def test_most_published_setups_are_proposed_in_their_sizes_or_family() -> None:
    assert len(SETUPS) - len(rows_of("different")) >= LEAST_ALIKE


def test_another_family_is_proposed_for_a_reason_or_is_called_open() -> None:
    told = {index for index, setup in enumerate(SETUPS) if "why" in setup}
    assert told == {index for index in rows_of("different") if lead(index) >= CLEARLY}


def test_all_proposals_have_launch_files() -> None:
    unwritten = [SETUPS[i]["name"] for i in range(len(SETUPS)) if not proposed(i).launch.targets]
    assert not unwritten


def test_what_was_run_is_said_to_fit() -> None:
    """With the loss that the plan takes: of one of them only the fused one, which it ran with, fits."""
    assert not [SETUPS[i]["name"] for i in range(len(SETUPS)) if not published(i).fits]


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup["name"])
def test_every_setup_has_its_source(setup: Mapping[str, Any]) -> None:
    assert setup["source"]
    assert set(setup) <= {
        *("name", "model", "cluster", "recipe", "layout", "source"),
        *("unpublished", "why"),
    }
