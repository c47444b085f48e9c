"""What kinds of jobs are off by, and that a source is in range by what the others say of its kinds."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import JobMaker
from fits import kinds
from test_docs import check_block

from planner.catalog.kinds import FEWEST, nearest_runs, spreads_of_kinds
from planner.catalog.records import data_root
from planner.core.units import format_fraction
from planner.domain.kinds import Kind, by_kind, conditions, kind_of
from planner.domain.strategy import Layout, Offload, tabulate

PAGE = Path(__file__).parents[2] / "docs/accuracy/runs.md"
LEAST, MOST_REACH = 0.75, 0.35
UNEXPLAINED = {
    "papers": "DeepSpeed's six runs of 2021, on 48 to 280 nodes",
    "small_pretraining": "compiled PyTorch and CUDA by hand on A100, up to half as fast again as planned",
    "nvidia_dle": "BERT on SQuAD and ResNet-50 on A100, a quarter slower than planned: apex's input and fused layers",
}
"""Sources below, and what keeps them there: no range is stretched over them."""


def a_run(ratio: float, width: float = 0.1, **fields: object) -> kinds.Shown:
    known: dict[str, object] = {"source": "made", "kind": Kind.DECODERS, "gpu": "a100"}
    known |= {"framework": "torch", "slower": 1.5}
    return kinds.Shown(ratio=ratio, width=width, **{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.1, 1.6])
def test_the_least_doubt_of_a_run_is_that_which_reaches_it(ratio: float) -> None:
    run = a_run(ratio)
    low, high = run.reaches(run.least)
    assert low - 1e-9 <= ratio <= high + 1e-9
    assert run.least == 0 or math.isclose(ratio, low) or math.isclose(ratio, high)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[kinds.Shown]], None]]:
    """Put runs in the place of those that were published."""

    def put(runs: list[kinds.Shown]) -> None:
        monkeypatch.setattr(kinds, "shown", lambda: tuple(runs))
        kinds.spreads.cache_clear()

    yield put
    kinds.spreads.cache_clear()


def test_a_kind_is_as_sure_as_four_of_five_of_its_runs(
    made: Callable[[list[kinds.Shown]], None],
) -> None:
    off = [a_run(1.0), a_run(1.0), a_run(1.0), a_run(1.0), a_run(1.6)]
    encoders = [a_run(0.8, source="other", kind=Kind.ENCODERS) for _ in range(3)]
    made([*off, *encoders])
    found = kinds.spreads()
    assert found[Kind.DECODERS] == 0
    assert found[Kind.ENCODERS] == pytest.approx(math.sqrt(0.25**2 - 0.1**2), abs=kinds.STEP)
    assert found[Kind.VISION] == found[Kind.ENCODERS]
    # Without its only source a kind is as little sure as the least sure of the others.
    assert kinds.spreads("other")[Kind.ENCODERS] == 0


def test_kinds_of_jobs(make_job: JobMaker) -> None:
    said = {
        "gpt2": Kind.DECODERS,
        "google-bert/bert-base-uncased": Kind.ENCODERS,
        "google-t5/t5-small": Kind.ENCODERS,
        "google/vit-base-patch16-224": Kind.VISION,
        "mistralai/Mixtral-8x7B-v0.1": Kind.MIXTURES,
    }
    for model, kind in said.items():
        assert kind_of(make_job(model), Layout()) == kind
    lora = make_job("meta-llama/Llama-2-7b-hf", recipe={"method": "lora"})
    assert kind_of(lora, Layout()) == Kind.ADAPTERS
    job = make_job("meta-llama/Llama-2-7b-hf", recipe={"sequence_length": 65536})
    assert kind_of(job, Layout()) == Kind.LONG_SEQUENCES
    away = Layout(zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    assert kind_of(job, away) == Kind.OFFLOAD


def test_experts_are_across_nodes_where_their_ranks_are(make_job: JobMaker) -> None:
    job = make_job(
        "mistralai/Mixtral-8x7B-v0.1",
        cluster={"gpu": "h100-sxm-80gb", "gpus_per_node": 4, "nodes": 2},
    )
    layouts = [
        Layout(data_parallel_shard_size=8, expert_parallel_size=size, zero_stage=1)
        for size in (4, 8)
    ]
    found = [kind_of(job, each) for each in layouts]
    assert found == [Kind.MIXTURES, Kind.MIXTURES_ACROSS_NODES]
    amounts = {kind: float(place) for place, kind in enumerate(Kind)}
    assert list(np.asarray(by_kind(job, tabulate(layouts), amounts))) == [
        amounts[kind] for kind in found
    ]
    assert [kind for kind, _ in conditions(job, layouts[0])] == list(Kind)


def test_runs_are_alike_from_the_narrowest_group_with_enough_of_them() -> None:
    groups = json.loads((data_root() / kinds.LIKENESS).read_text())["groups"]
    assert all(each["runs"] >= FEWEST for each in groups)
    narrow = nearest_runs(Kind.DECODERS, "h100-sxm-80gb", "nanotron")
    assert narrow is not None
    assert (narrow.gpu, narrow.framework) == ("h100-sxm-80gb", "nanotron")
    assert "runs of decoders on h100-sxm-80gb with nanotron" in narrow.words
    wide = nearest_runs(Kind.DECODERS, "rtx-5090", "no such framework")
    assert wide is not None
    assert (wide.gpu, wide.framework) == ("", "")
    assert wide.runs > narrow.runs


def test_what_is_kept_is_what_the_runs_say() -> None:
    """`make accuracy-kinds` writes both records."""
    assert dict(spreads_of_kinds()) == pytest.approx(dict(kinds.spreads()), abs=kinds.STEP)
    groups = json.loads((data_root() / kinds.LIKENESS).read_text())["groups"]
    assert [each["kind"] for each in groups] == [each["kind"] for each in kinds.likeness()]


def test_every_source_is_in_range_by_what_the_others_say() -> None:
    narrow = {each.source for each in kinds.judged() if each.in_range < LEAST}
    assert narrow == set(UNEXPLAINED)
    assert np.median([each.reach for each in kinds.judged()]) < MOST_REACH


def test_the_page_shows_every_source_judged_so(request: pytest.FixtureRequest) -> None:
    rows: list[tuple[str, ...]] = [
        ("source", "runs", "in range", "reach"),
        ("---", "---:", "---:", "---:"),
    ]
    rows += [
        (each.source, f"{each.runs:,}", *map(format_fraction, (each.in_range, each.reach)))
        for each in kinds.judged()
    ]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"
    update = bool(request.config.getoption("--update-golden"))
    check_block("kinds", body, update=update, page=PAGE)
