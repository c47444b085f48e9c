"""States in unified memory: on the card while there is room, else the host's, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.core.units import MIB
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, vary
from planner.memory.evaluation_and_checkpoint import checkpoint_host_bytes, checkpoint_peak_bytes
from planner.memory.host import estimate_host_memory, fits_host
from planner.memory.ledger import Memory, estimate_memory
from planner.memory.room import COMFORTABLE_FRACTION
from planner.search.candidate import estimate
from planner.step_time.ledger import estimate_step_time

GPT2 = 124_439_808
STATES = 8 * GPT2
"""Of 32-bit AdamW, two of fp32 whatever the parameters are."""
ONE = Layout()


def paged(make_job: JobMaker, optimizer: str = "paged-adamw", gpus: int = 1, **recipe: Any) -> Job:
    recipe = {"precision": "bf16", "sequence_length": 512, **recipe}
    return make_job(gpus=gpus, recipe={"optimizer": optimizer, "global_batch_size": 8, **recipe})


def with_room(job: Job, states_bytes: float, host_bytes: float = 0.0) -> Job:
    """Return the job on a card that has room for so much of the states beside all else."""
    needed = float(estimate_memory(job, ONE).reserved_bytes) - STATES + states_bytes + MIB
    usable = needed / COMFORTABLE_FRACTION
    gpu = replace(job.cluster.gpu, usable_bytes=usable)
    cluster = replace(job.cluster, gpu=gpu, host_memory_bytes=host_bytes)
    return replace(job, cluster=cluster)


def amounts(memory: Memory) -> dict[str, float]:
    return {term.name: float(term.amount) for term in memory.terms}


@pytest.mark.parametrize("optimizer", ["adamw-8bit", "adamw"])
def test_where_there_is_room_paging_changes_nothing_but_whose_memory_it_is(
    make_job: JobMaker, optimizer: str
) -> None:
    plain, with_pages = (
        estimate_memory(paged(make_job, name, precision="fp32"), ONE)
        for name in (optimizer, f"paged-{optimizer}")
    )
    states = amounts(plain)["optimizer_states"]
    assert amounts(with_pages)["paged_states"] == states
    assert amounts(with_pages)["optimizer_states"] == 0
    assert with_pages.paged_out_bytes == 0
    assert "paged_states" not in amounts(plain)
    # PyTorch's allocator does not see them.
    assert with_pages.reserved_bytes - with_pages.peak_bytes > states


def test_states_are_fp32_beside_parameters_in_16_bit_and_divided_where_shards_are(
    make_job: JobMaker,
) -> None:
    assert amounts(estimate_memory(paged(make_job), ONE))["paged_states"] == STATES
    half = Layout(data_parallel_shard_size=2, zero_stage=1)
    assert amounts(estimate_memory(paged(make_job, gpus=2), half))["paged_states"] == STATES / 2


def test_what_the_card_has_no_room_for_is_the_hosts_and_comes_back_in_every_step(
    make_job: JobMaker,
) -> None:
    whole = paged(make_job)
    job, room = with_room(whole, 100 * MIB), 100 * MIB
    memory = estimate_memory(job, ONE)
    assert amounts(memory)["paged_states"] == room
    assert memory.reserved_bytes == pytest.approx(COMFORTABLE_FRACTION * job.usable_bytes - MIB)
    assert estimate(job, ONE).is_comfortable
    assert memory.paged_out_bytes == STATES - room
    assert memory.peak_bytes == estimate_memory(whole, ONE).peak_bytes
    everything = estimate_memory(whole, ONE)
    rest, off = float(everything.reserved_bytes) - STATES, whole.framework.uncertainty.memory
    assert everything.high_bytes == pytest.approx((1 + off) * rest + STATES)
    assert memory.low_bytes == pytest.approx((1 - off) * rest + room)
    # Pages give way to what needs more than is likely.
    most = (1 + off) * rest
    assert memory.high_bytes == pytest.approx(max(most, min(most + room, job.usable_bytes)))
    (host,) = (
        term for term in estimate_host_memory(job, ONE).terms if term.name == "host_paged_states"
    )
    assert host.amount == STATES - room
    assert estimate_host_memory(job, ONE).training_bytes == STATES - room
    # Half of what 16 lanes of PCIe 4 copy: bitsandbytes has 1/8 s for 1 GB of them of PCIe 3.
    assert job.cluster.gpu.pcie_generation == 4
    slower = estimate_step_time(job, ONE).step_seconds - estimate_step_time(whole, ONE).step_seconds
    link = float(STATES - room) / float(slower)
    assert 0.5 * 20e9 < link < 0.5 * 31.5e9


def test_no_room_for_all_else_is_no_room(make_job: JobMaker) -> None:
    job = with_room(paged(make_job), -100 * MIB)
    memory = estimate_memory(job, ONE)
    assert amounts(memory)["paged_states"] == 0
    assert memory.paged_out_bytes == STATES
    assert not estimate(job, ONE).is_comfortable
    assert estimate(with_room(paged(make_job), 0), ONE).is_comfortable
    too_small = replace(job.cluster.gpu, usable_bytes=float(memory.peak_bytes))
    smaller = replace(job, cluster=replace(job.cluster, gpu=too_small))
    assert not estimate(smaller, ONE).fits


@pytest.mark.parametrize(("missing", "fits"), [(0, True), (1, False)])
def test_a_host_must_take_what_is_paged_out(
    make_job: JobMaker, missing: int, *, fits: bool
) -> None:
    room = 100 * MIB
    job = with_room(paged(make_job), room, host_bytes=STATES - room - missing)
    assert fits_host(job, ONE) == fits
    assert estimate(job, ONE).fits == fits


def test_rows_of_a_table_page_for_themselves(make_job: JobMaker) -> None:
    job = with_room(paged(make_job), 100 * MIB)
    table = vary(ONE, micro_batch_size=np.array([1, 2, 8]))
    memory, hosts = estimate_memory(job, table), estimate_host_memory(job, table)
    times = estimate_step_time(job, table)
    for row in range(3):
        s = table.at(row)
        alone = estimate_memory(job, s)
        assert memory.at(row).paged_out_bytes == alone.paged_out_bytes
        assert hosts.at(row).training_bytes == alone.paged_out_bytes
        assert float(times.at(row).step_seconds) == pytest.approx(
            float(estimate_step_time(job, s).step_seconds)
        )


def test_what_steps_on_the_host_has_its_states_there_unpaged(make_job: JobMaker) -> None:
    job = paged(make_job, gpus=2, precision="fp32")
    s = Layout(data_parallel_shard_size=2, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    assert amounts(estimate_memory(job, s))["paged_states"] == 0
    host = {term.name: float(term.amount) for term in estimate_host_memory(job, s).terms}
    assert host["host_optimizer_states"] == STATES
    assert host["host_paged_states"] == 0


def test_a_checkpoint_has_all_states_and_the_card_those_that_stay(make_job: JobMaker) -> None:
    job = paged(make_job)
    assert checkpoint_host_bytes(job, ONE, is_full=True) == 2 * GPT2 + STATES
    assert checkpoint_host_bytes(job, ONE, is_full=False) == 2 * GPT2 + STATES
    assert checkpoint_peak_bytes(job, ONE, is_full=False) == 2 * GPT2
