from dataclasses import replace

import numpy as np
import pytest
from conftest import JobMaker

from planner.domain.strategy import Offload, Recompute, num_rows
from planner.search.candidate import estimate
from planner.search.local_sgd import LocalSgd, local_sgd
from planner.search.search import TIE, search
from planner.search.space import strategies

LLAMA = "meta-llama/Llama-2-7b-hf"


def test_every_layout_is_estimated_as_it_is_alone(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 16})
    found = search(job)
    assert found.size == num_rows(strategies(job))
    for row in np.linspace(0, found.size - 1, 40, dtype=int):
        alone = estimate(job, found.table.at(int(row)))
        assert found.reserved_bytes[row] == pytest.approx(alone.memory.reserved_bytes)
        assert found.fits[row] == alone.fits
        if alone.fits:
            assert found.step_seconds[row] == pytest.approx(alone.step_time.step_seconds)
        else:
            assert found.step_seconds[row] == np.inf


def test_estimates_made_together_are_those_of_each_alone_and_are_kept(make_job: JobMaker) -> None:
    found = search(make_job("gpt2", gpus=4, recipe={"global_batch_size": 8}))
    known = found.candidate(3)
    others = found.candidates([5, 3, 0, 5])
    assert others[1] is known
    assert others[0] is others[3] is found.candidate(5)
    for row, other in zip((5, 3, 0), others, strict=False):
        alone = estimate(found.job, found.table.at(row))
        assert other.strategy == alone.strategy
        assert other.memory.reserved_bytes == pytest.approx(alone.memory.reserved_bytes)
        assert [term.how for term in other.step_time.terms] == [
            term.how for term in alone.step_time.terms
        ]


@pytest.mark.parametrize(
    ("model", "gpus", "recipe"),
    [
        (LLAMA, 8, {"framework": "megatron", "global_batch_size": 16}),
        ("gpt2", 4, {"framework": "torch", "global_batch_size": 8}),
    ],
)
def test_a_row_that_the_search_kept_is_spelled_out_as_its_layout_alone(
    make_job: JobMaker, model: str, gpus: int, recipe: dict[str, object]
) -> None:
    found = search(make_job(model, gpus=gpus, recipe=recipe))
    assert found.ledgers
    is_divided = (found.table.pipeline_parallel_size > 1) | (found.table.tensor_parallel_size > 1)
    for row in np.flatnonzero(found.fits & is_divided)[::97]:
        kept, alone = found.candidate(int(row)), estimate(found.job, found.table.at(int(row)))
        assert kept.step_time.step_seconds == pytest.approx(alone.step_time.step_seconds, rel=1e-12)
        for mine, other in ((kept.memory, alone.memory), (kept.step_time, alone.step_time)):
            shown = {term.name: term.how for term in other.terms if term.amount}
            assert {term.name: term.how for term in mine.terms if term.amount} == shown


def test_what_is_written_alone_is_estimated_as_in_the_whole_search(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4, recipe={"framework": "deepspeed", "global_batch_size": 8})
    whole, written = search(job), search(job, written_alone=True)
    assert 0 < written.size < whole.size
    assert np.array_equal(written.step_seconds, whole.step_seconds[whole.is_writable])
    assert np.array_equal(written.reserved_bytes, whole.reserved_bytes[whole.is_writable])


def test_what_a_legal_layout_reserves_is_looked_up(make_job: JobMaker) -> None:
    found = search(make_job(LLAMA, gpus=8, recipe={"global_batch_size": 16}))
    for row in np.linspace(0, found.size - 1, 5, dtype=int):
        layout = found.table.at(int(row))
        assert found.reserved_bytes_of(layout) == found.reserved_bytes[row]
    assert found.reserved_bytes_of(replace(layout, tensor_parallel_size=3)) is None


@pytest.mark.parametrize("network", ["ethernet-1g", "ethernet-10g", "infiniband-ndr"])
def test_local_sgd_averages_as_often_as_is_enough(make_job: JobMaker, network: str) -> None:
    """However often the rows of the search average, the interval is that of its steps estimated apart."""
    cluster = {"nodes": 4, "inter_node": network}
    found = search(make_job("gpt2", gpus=1, cluster=cluster, recipe={"global_batch_size": 8}))
    members = found.families["local-sgd"]
    row = found.best(members, found.step_seconds)
    assert row is not None
    enough = max(2, local_sgd(found.job, found.table.at(row)).interval)
    assert found.table.synchronize_every[row] == enough
    few = members[found.table.synchronize_every[members] < enough]
    assert not len(few) or found.best(few, found.step_seconds) in few


def test_families_hold_every_row_once_under_their_name(make_job: JobMaker) -> None:
    found = search(make_job("gpt2", gpus=4, recipe={"global_batch_size": 8}))
    members = np.concatenate(list(found.families.values()))
    assert sorted(members.tolist()) == list(range(found.size))
    for name, group in found.families.items():
        assert {found.table.at(int(row)).family for row in group} == {name}


def test_the_best_is_comfortable_and_as_fast_as_any_but_for_a_tie(make_job: JobMaker) -> None:
    found = search(make_job(LLAMA, gpus=8))
    everything = np.arange(found.size)
    row = found.best(everything, found.step_seconds)
    assert row is not None
    fastest = found.step_seconds[found.is_comfortable].min()
    assert found.is_comfortable[row]
    assert found.step_seconds[row] <= TIE * fastest
    alike = found.is_comfortable & (found.step_seconds <= TIE * fastest)
    assert found.num_techniques[row] == found.num_techniques[alike].min()


def test_more_dimensions_lead_by_more_than_published_pairs_tell_from_none(
    make_job: JobMaker,
) -> None:
    found = search(make_job(gpus=4, recipe={"global_batch_size": 16}))
    plain, divided = (
        int(np.flatnonzero(found.is_comfortable & (found.num_dimensions == each))[0])
        for each in (0, 1)
    )
    by, lead = np.ones(found.size), 1.08
    for seconds, best in ((lead, plain), (np.nextafter(lead, 2), divided)):
        by[plain] = seconds
        assert found.best(np.array([divided, plain]), by) == best


def test_a_twelfth_of_what_is_usable_is_room_to_spare(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    found = search(job)
    share = found.reserved_bytes / job.usable_bytes
    assert np.any(found.fits & (share > 0.92))
    assert np.array_equal(found.is_comfortable, found.fits & (share <= 0.92))


def test_nothing_is_recomputed_that_need_not_be(make_job: JobMaker) -> None:
    """Over 1 Gbit/s gradients set the pace, so recompute would cost less than a tie."""
    nodes = {"nodes": 16, "inter_node": "ethernet-1g"}
    found = search(make_job("meta-llama/Llama-3.2-1B", gpus=8, gpu="h100", cluster=nodes))
    plain = found.families["ddp"]
    row = found.best(plain, found.step_seconds)
    assert row is not None
    assert found.table.recompute[row] == Recompute.NONE
    alike = plain[found.step_seconds[plain] <= TIE * found.step_seconds[plain].min()]
    assert Recompute.FULL in found.table.recompute[alike]


def test_chunks_that_change_neither_time_nor_memory_are_left_out(make_job: JobMaker) -> None:
    """Mixtral's 16 layers a stage: in 16 chunks they take what they do in 8, in 2 more memory."""
    recipe = {"framework": "megatron", "sequence_length": 4096, "global_batch_size": 128}
    model = "mistralai/Mixtral-8x7B-v0.1"
    result = search(make_job(model, gpus=8, cluster={"nodes": 2}, recipe=recipe))
    row = result.best(np.arange(result.size), result.weighted_seconds)
    assert row is not None
    s = result.table.at(row)
    assert s.virtual_pipeline_size == 8
    finer, coarser = (estimate(result.job, replace(s, virtual_pipeline_size=n)) for n in (16, 2))
    own = result.candidate(row)
    for amounts in (
        (finer.step_time.step_seconds, own.step_time.step_seconds),
        (finer.memory.reserved_bytes, own.memory.reserved_bytes),
    ):
        assert max(amounts) < TIE * min(amounts)
    assert coarser.memory.reserved_bytes > TIE * finer.memory.reserved_bytes


def test_where_nothing_fits_there_is_no_best(make_job: JobMaker) -> None:
    found = search(
        make_job("meta-llama/Llama-2-70b-hf", gpus=2, gpu="t4"), {"offload": Offload.NONE}
    )
    assert not np.any(found.fits)
    assert found.best(np.arange(found.size), found.step_seconds) is None
    smallest = found.smallest(np.arange(found.size))
    assert found.reserved_bytes[smallest] == found.reserved_bytes.min()


def test_offload_that_the_host_cannot_hold_does_not_fit(make_job: JobMaker) -> None:
    pinned = {"zero_stage": 3, "offload": Offload.OPTIMIZER_AND_PARAMETERS}
    recipe = {"framework": "deepspeed", "sequence_length": 512}
    small = make_job(
        "meta-llama/Llama-2-13b-hf",
        gpus=1,
        gpu="a10g",
        cluster={"instance": "g5.2xlarge"},
        recipe=recipe,
    )
    assert small.cluster.host_memory_bytes > 0
    assert not np.any(search(small, pinned).fits)


def test_what_fits_with_room_to_spare_fits(make_job: JobMaker) -> None:
    found = search(make_job(LLAMA, gpus=8, recipe={"global_batch_size": 16}))
    least = 0.92 * found.job.usable_bytes
    comfortable = [
        bool(fits and reserved <= least)
        for fits, reserved in zip(found.fits, found.reserved_bytes, strict=True)
    ]
    assert found.is_comfortable.tolist() == comfortable


@pytest.mark.parametrize(
    ("steps", "fixed_and_average", "interval", "is_near"),
    [
        # T_K = 1 + b / K: within 5 % of 1 from K = 20 b on.
        ((1.2, 1.04, 1.02), (1.0, 0.08), 2, True),
        ((2.0, 1.08, 1.04), (1.0, 0.16), 4, True),
        ((9.0, 2.0, 1.5), (1.0, 2.0), 64, True),
        ((9.0, 3.0, 2.0), (1.0, 4.0), 64, False),
        ((1.04, 1.5, 1.25), (1.0, 1.0), 1, True),
    ],
)
def test_an_interval_is_enough_where_a_step_is_near_one_without_averages(
    steps: tuple[float, float, float],
    fixed_and_average: tuple[float, float],
    interval: int,
    *,
    is_near: bool,
) -> None:
    found, (fixed, average) = LocalSgd.of_steps(*steps), fixed_and_average
    assert (found.fixed_seconds, found.average_seconds) == pytest.approx((fixed, average))
    assert (found.interval, found.is_near) == (interval, is_near)
    assert found.step_seconds(1) == steps[0]
    assert found.step_seconds(8) == pytest.approx(fixed + average / 8)


def test_a_step_of_five_percent_more_is_near() -> None:
    assert LocalSgd(ddp_seconds=9.0, fixed_seconds=1.0, average_seconds=0.4).interval == 8
