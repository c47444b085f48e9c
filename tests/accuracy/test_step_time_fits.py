"""The fits behind `make accuracy-cross`: what they may use, and that they find what is there."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from fits import step_time as fits

from planner.catalog import records
from planner.catalog.published_runs import source_names
from planner.domain.framework import Framework
from planner.step_time.ledger import estimate_step_time

PAGE = Path(__file__).parents[2] / "docs/accuracy/runs.md"


def test_what_may_be_fitted_is_declared_with_known_names() -> None:
    known = {
        f"{section.name}.{field.name}"
        for section in fields(Framework)
        if is_dataclass(section.type)
        for field in fields(section.type)
    }
    for record, how in fits.FITS.items():
        assert set(how.constants) <= known & set(fits.START)
        assert set(how.sources) <= set(source_names())
        assert how.relative in set(fits.FITS) - {record}
    named = {fits.RECORDS.get(name, name) for name in records.framework_names()}
    assert set(fits.FITS) <= named


def test_a_fit_finds_the_constants_that_made_the_seconds() -> None:
    made = {"matmul.sustained_fraction": 0.6, "host.micro_batch_seconds": 0.004}
    groups = [
        replace(
            each,
            seconds=estimate_step_time(fits.with_values(each.job, made), each.layouts).step_seconds,
        )
        for each in fits.runs_of("vtrain_multi")
    ]
    found = fits.fit([groups], tuple(made))
    for each in groups:
        time = estimate_step_time(fits.with_values(each.job, found), each.layouts)
        assert np.max(np.abs(time.step_seconds / each.seconds - 1)) < 0.03
    assert found["matmul.sustained_fraction"] == pytest.approx(0.6, rel=0.03)


def test_a_source_left_out_has_no_part_in_its_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[set[str]] = []

    def record_runs(groups: list[list[fits.Runs]], _: object) -> dict[str, float]:
        used.append(
            {run.id.partition("-")[0] for group in groups for each in group for run in each.runs}
        )
        return {}

    monkeypatch.setattr(fits, "fit", record_runs)
    fits.fitted_without.cache_clear()
    fits.fitted_on.cache_clear()
    try:
        fits.fitted_without("bloom")
        assert used == [
            {"mosaic", "torchtitan"},
            {"papers", "vtrain_multi", "vtrain_single"},
            {"nanotron"},
        ]
        used.clear()
        assert fits.fitted_without("nanotron").by_record["nanotron"] == {}
        assert {"nanotron"} not in used
    finally:
        fits.fitted_without.cache_clear()
        fits.fitted_on.cache_clear()


def test_the_page_has_a_row_for_every_source_and_framework() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## Step time of a source left out")[2].partition("\n## ")[0]
    rows = {
        tuple(cell.strip() for cell in line.split("|")[1:4])
        for line in section.splitlines()
        if "|" in line
    }
    for source in source_names():
        for name in {each.job.framework.name for each in fits.runs_of(source)}:
            (fitted_on,) = (
                how for where, framework, how in rows if (where, framework) == (source, name)
            )
            assert source not in fitted_on.split(", ")
