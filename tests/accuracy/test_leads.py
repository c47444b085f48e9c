"""How often a predicted lead was real; docs/accuracy/leads.md and data/calibration/leads.toml cannot lie.

`pytest --update-golden tests/accuracy/test_leads.py` rewrites both; read the diff.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from fits.leads import (
    BANDS,
    FEWEST_PAIRS,
    Pair,
    bands,
    kinds,
    leads_of_frameworks,
    pairs,
    rising,
    smaller_is_faster,
)
from test_docs import check_block

from planner.accuracy.predict import Prediction, predict
from planner.catalog import choice
from planner.catalog.choice import POOLED, Lead, lead, leads, trusted_lead
from planner.catalog.published_runs import run_source, source_names
from planner.catalog.records import read
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import Layout

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/accuracy/leads.md"
CHOICES = ROOT / "docs/accuracy/choices.md"
RECORD = ROOT / "data/calibration/leads.toml"
TIE = 0.03
SIZES: dict[str, Callable[[Layout], int]] = {
    "tensor parallel size": lambda s: s.tensor_parallel_size,
    "pipeline stages": lambda s: s.pipeline_parallel_size,
    "number of parallel dimensions": lambda s: sum(bool(s.uses(each)) for each in DIMENSIONS),
    "micro-batch": lambda s: s.micro_batch_size,
    "ZeRO stage": lambda s: s.zero_stage,
}
TRADED = "the same, traded for stages: as many model-parallel ranks, the same micro-batch"
FALLING = ((0, 10, 0.5), (1, 30, 0.7), (2, 10, 0.5), (3, 5, 0.9))
HEAD = """\
# How often a predicted lead of one layout over another was real, by framework and band; written by
# `pytest --update-golden tests/accuracy/test_leads.py`.
source = "pairs of layouts of one job in data/measurements/runs, predicted by the planner; docs/accuracy/leads.md"
"""


@pytest.fixture(scope="module")
def found() -> tuple[Pair, ...]:
    return tuple(
        pair
        for name in source_names()
        for pair in pairs(
            name, (run for run in predict(run_source(name)) if isinstance(run, Prediction))
        )
    )


def record_text(by_framework: Mapping[str, Sequence[Lead]]) -> str:
    lines = [HEAD + "\n[leads]"]
    for name, found in by_framework.items():
        lines.append(f"{name} = [")
        lines += [
            f"  {{ from_fraction = {band.from_fraction}, pairs = {band.pairs},"
            f" real_share = {band.real_share} }},"
            for band in found
        ]
        lines.append("]")
    return "\n".join(lines) + "\n"


def table(rows: Mapping[str, Sequence[Lead]]) -> str:
    ends = [f"to {end:.0%}" for end in BANDS[1:]]
    head = ["", *ends, f"from {BANDS[-1]:.0%}"]
    lines = [head, ["---", *["---:"] * len(BANDS)]]
    lines += [[name, *map(cell, found)] for name, found in rows.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def cell(band: Lead) -> str:
    return f"{band.real_share:.0%} ({band.pairs:,})" if band.pairs else ""


def test_the_record_is_what_published_pairs_give(
    found: tuple[Pair, ...], request: pytest.FixtureRequest
) -> None:
    by_framework = leads_of_frameworks(found)
    expected = record_text(by_framework)
    if request.config.getoption("--update-golden"):
        RECORD.write_text(expected, encoding="utf-8")
        read.cache_clear()
        choice.leads.cache_clear()
    assert RECORD.read_text(encoding="utf-8") == expected
    assert {name: leads(name) for name in by_framework} == by_framework
    assert leads("a framework of which nothing is known") == by_framework[POOLED]


def test_the_page_shows_them(found: tuple[Pair, ...], request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    by_source = {
        name: bands([pair for pair in found if pair.source == name])
        for name in sorted({pair.source for pair in found})
    }
    by_kind = {name: bands(pairs) for name, pairs in kinds(found).items()}
    for marker, rows in (
        ("frameworks", leads_of_frameworks(found)),
        ("sources", by_source),
        ("kinds", by_kind),
    ):
        check_block(marker, table(rows), update=update, page=PAGE)


def is_traded(pair: Pair) -> bool:
    """Return whether tensor ranks are traded for stages, and nothing else of the model is."""
    first, second = pair.layouts
    return (first.model_parallel_size, first.micro_batch_size) == (
        second.model_parallel_size,
        second.micro_batch_size,
    )


def test_no_smaller_size_settles_a_tie(
    found: tuple[Pair, ...], request: pytest.FixtureRequest
) -> None:
    """Else the search should follow it: a habit that is right in two of three ties is worth having."""
    shares = {name: smaller_is_faster(found, size, within=TIE) for name, size in SIZES.items()}
    traded = smaller_is_faster(filter(is_traded, found), SIZES["tensor parallel size"], within=TIE)
    (first, *others), lines = shares.items(), ["| smaller | faster |", "| --- | ---: |"]
    for name, (share, count) in (first, (TRADED, traded), *others):
        lines.append(f"| {name} | {share:.0%} ({count:,}) |")
        assert count >= FEWEST_PAIRS, name
        assert share < 2 / 3, name
    update = bool(request.config.getoption("--update-golden"))
    check_block("ties", "\n".join(lines) + "\n", update=update, page=CHOICES)


def test_bands_that_fall_by_chance_have_the_mean_of_their_pairs() -> None:
    """(30 x 0.7 + 10 x 0.5) / 40 = 0.65, which is above the first band's 0.5."""
    found = [Lead(from_fraction=0.1 * n, pairs=p, real_share=s) for n, p, s in FALLING]
    assert [band.real_share for band in rising(found)] == [0.5, 0.65, 0.65, 0.9]
    assert [band.pairs for band in rising(found)] == [10, 30, 10, 5]


def test_larger_leads_are_real_more_often(found: tuple[Pair, ...]) -> None:
    for name, each in leads_of_frameworks(found).items():
        shares = [band.real_share for band in each]
        assert shares == sorted(shares), name


@pytest.mark.parametrize("framework", ["megatron", "nanotron", "torch"])
def test_a_lead_is_trusted_from_the_band_on_in_which_four_of_five_were_real(framework: str) -> None:
    first = trusted_lead(framework)
    assert all(
        (band.real_share >= choice.prices().trusted_share) == (band.from_fraction >= first)
        for band in leads(framework)
    )
    assert lead(framework, first) == lead(framework, first + 0.001)
    assert lead(framework, first - 0.001).from_fraction < first
    assert lead(framework, 0).from_fraction == 0


def test_a_pair_is_the_same_from_either_side(found: tuple[Pair, ...]) -> None:
    assert all(pair.predicted >= 0 for pair in found)
    assert any(pair.measured < 0 for pair in found)
